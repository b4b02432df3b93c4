"""One simulation, from a resolved configuration to the files of a run directory."""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from tqdm import tqdm

from backends.base import Assumption, Backend
from sim.build import build
from sim.cluster.allocation import Allocation
from sim.cluster.worker import Gpu
from sim.engine import Door, Engine, Executor, Model, Scheduler, in_role, stream
from sim.errors import ConfigError
from sim.record.quality import Judgement, Quality
from sim.record.summary import summarise
from sim.settings import Settings, System, check
from traces.arrivals import Arrivals
from traces.aside import aside
from traces.embeddings import Encoder, embed
from traces.scale import Scale
from traces.schema import Trace
from traces.search import Search
from traces.sources import Source

SUMMARY, REQUESTS, CLUSTER, CONFIG = "summary.json", "requests.parquet", "cluster.parquet", "config.yaml"


@dataclass(frozen=True, slots=True)
class Rows:
    """What the rows of a trace ask for: its prompts, and its seeds or, where it has none, the row's number."""

    trace: Trace

    def prompt(self, row: int) -> str:
        """The prompt of ``row``; empty where the trace has none."""
        return self.trace.prompts()[row].as_py() or ""

    def seed(self, row: int) -> int:
        """The seed of the noise that ``row`` starts from."""
        seed = self.trace.table.column("seed")[row].as_py()
        return row if seed is None else int(seed)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run says: the summary, a table row per request, the time series, and its configuration."""

    summary: dict[str, Any]
    requests: pa.Table
    cluster: pa.Table
    config: dict[str, Any]


def simulate(config: Mapping[str, Any], *, progress: bool = False) -> Outcome:
    """Run one simulation.

    Args:
        config: the resolved configuration, as conf/config.yaml composes it.
        progress: show a bar, where standard error is a terminal.

    Raises:
        ConfigError, TraceError, BackendError: the input cannot be used; one line says where and what to do.
    """
    settings = check(config)
    trace, engine = assemble(settings, progress=progress)
    return replay(settings, trace, engine, config, progress=progress)


def replay(
    settings: Settings, trace: Trace, engine: Engine, config: Mapping[str, Any], *, progress: bool = False
) -> Outcome:
    """Run what ``assemble`` put together from ``config``, and say what happened. Raises what ``simulate`` raises."""
    name = settings.system.name
    quality: Quality = build(settings.quality, "quality", Quality)
    with tqdm(total=engine.rows, unit="req", desc=name, disable=None if progress else True) as bar:
        engine.progress = lambda ended: bar.update(ended - bar.n)
        wall = engine.run()
        bar.update(engine.rows - bar.n)
    judged: Judgement | None = None
    if not engine.backend.live:
        judged = quality.judge(engine, name)
        engine.columns["quality"][:] = judged.factor
    return Outcome(
        summarise(
            engine,
            trace,
            wall,
            system=name,
            slo=settings.slo,
            warmup=settings.warmup,
            services=settings.system.services,
            judged=judged,
        ),
        engine.columns.table(trace.table.column("request_id"), settings.preload),
        engine.series.table(engine.columns, engine.outages),
        again(config),
    )


def assemble(settings: Settings, *, progress: bool = False) -> tuple[Trace, Engine]:
    """Load the trace and put the system together, ready to run. Raises what ``simulate`` raises."""
    system, parts = settings.system, settings.parts()
    door: Door = parts.get("door", Door)
    scheduler: Scheduler = parts.get("scheduler", Scheduler)
    executor: Executor = parts.get("executor", Executor)
    allocation: Allocation = parts.get("allocation", Allocation)
    parts.refuse_unread(system.name)  # also a controller, which no run takes yet
    source: Source = build(settings.trace, "trace", Source)
    trace = source.load(stream(settings.seed, "trace"))
    if len(trace) - settings.preload - settings.warmup <= 0:
        raise ConfigError(
            f"preload={settings.preload} and warmup={settings.warmup} leave nothing of the {len(trace)} requests of "
            f"{trace.name} to measure; lower them or take a longer trace"
        )
    models: dict[str, Model] = {role: build(m, f"models.{role}", Model) for role, m in settings.models.items()}
    backend: Backend = build(settings.backend, "backend", Backend)
    backend.open(Rows(trace))
    arrivals: Arrivals = build(settings.arrivals, "arrivals", Arrivals)
    encoder: Encoder = build(settings.encoder, "encoder", Encoder)

    def embeddings() -> np.ndarray[Any, Any]:
        engine.assume(
            "similarity of prompts",
            f"cosine of {encoder.name}",
            "the encoder's cosine, carried to the scale that thresholds are on",
        )
        return embed(trace, encoder, progress=None if progress else False)

    engine = Engine(
        schedule=arrivals.schedule(trace.arrival_s[settings.preload :], stream(settings.seed, "arrivals")),
        shapes=_shapes(trace, in_role(models, "large"), settings.shapes),
        models=models,
        gpu=build(settings.cluster.gpu, "cluster.gpu", Gpu),
        workers=allocation.workers(settings.cluster.count, models, backend),
        backend=backend,
        door=door,
        scheduler=scheduler,
        executor=executor,
        seed=settings.seed,
        embeddings=embeddings,
        search=build(settings.search, "search", Search),
        scale=build(settings.scale, "scale", Scale),
        content=f"{trace.digest} {encoder.name}",
        native=settings.shapes == "model",
        preload=settings.preload,
        sample_s=settings.sample_s,
    )
    _assume(engine, trace, system, allocation.assumptions())
    return trace, engine


def _assume(engine: Engine, trace: Trace, system: System, allocated: list[Assumption]) -> None:
    """Say what the trace and the system's file rest on."""
    if trace.notes.get("synthetic"):
        engine.assume("the trace is synthetic", trace.name, trace.source)
    if "arrival_s" in trace.notes:
        engine.assume("arrival times of the trace", trace.notes["arrival_s"], trace.source)
    images = trace.column("images")
    if (images > 1).any():
        engine.assume("images per request", 1, f"{int((images > 1).sum())} requests ask for more; one is served")
    for said in (*system.assumptions, *allocated):
        engine.assume(said.what, said.value, said.source)


def again(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as config.yaml holds it: a run directory has to be named, and Hydra keeps out of it.

    ``mezzotint run --config-path DIR --config-name config run.dir=NEW`` reads it as it is.
    """
    quiet = [{f"override hydra/{group}": "none"} for group in ("job_logging", "hydra_logging")]
    return {
        "defaults": [*quiet, {"override hydra/launcher": "joblib"}, "_self_"],
        **{key: value for key, value in config.items() if key not in ("defaults", "hydra", "run")},
        "run": {"dir": "???"},
        "hydra": {
            "output_subdir": None,
            "job": {"chdir": False},
            "run": {"dir": "."},
            "sweep": {"dir": "${run.dir}", "subdir": "${hydra.job.num}"},
        },
    }


def check_folder(folder: Path) -> None:
    """Refuse, before any long work, a run directory that could not be written. Raises ConfigError."""
    nearest = folder
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise ConfigError(f"run.dir: {folder} cannot be used ({nearest} is no folder to write in); name another folder")


def write(outcome: Outcome, folder: Path) -> None:
    """Write the files of a run directory: all of them aside, then all renamed, summary.json last.

    A run that was there before is replaced as a whole, or, where writing fails, left as it was.

    Raises:
        ConfigError: the folder cannot be made.
        TraceError: a file could not be written; the message names it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"run.dir: {folder} cannot be used ({error.strerror}); name another folder") from None
    with ExitStack() as parts:
        # Renamed in the reverse order of entering.
        summary, config, cluster, requests = (
            parts.enter_context(aside(folder / name)) for name in (SUMMARY, CONFIG, CLUSTER, REQUESTS)
        )
        pq.write_table(outcome.requests, requests)
        pq.write_table(outcome.cluster, cluster)
        config.write_text(yaml.safe_dump(outcome.config, sort_keys=False), encoding="utf-8")
        summary.write_text(json.dumps(outcome.summary, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _shapes(
    trace: Trace, large: Model, shapes: str
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Width, height and steps of every row: the large model's own, or the trace's where it has them."""
    own = (large.width, large.height, large.steps)
    if shapes == "model":
        width, height, steps = (np.full(len(trace), value, np.int32) for value in own)
    else:
        asked = (trace.column(name) for name in ("width", "height", "steps"))
        width, height, steps = (
            np.where(column > 0, column, value).astype(np.int32) for column, value in zip(asked, own, strict=True)
        )
    return width, height, steps
