"""One simulation, from a resolved configuration to the files of a run directory."""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from tqdm import tqdm

from backends.base import Backend
from conf.assumption import Assumption
from conf.atomic import atomic_write
from sim.build import build
from sim.cluster.cluster import Cluster
from sim.engine import Engine
from sim.errors import ConfigError
from sim.gpu import Gpu
from sim.model import Model, reference
from sim.parts import Allocation, Door, Executor, Scheduler
from sim.record.cost import Service
from sim.record.quality import Judgement, Quality
from sim.record.series import series
from sim.record.summary import summarise
from sim.streams import stream
from sim.workload import Similarity, Workload, standalone
from traces.arrivals.base import Arrivals
from traces.encoders.embeddings import Encoder, embed
from traces.similarity.scale import Scale
from traces.similarity.search import Search
from traces.sources import Source
from traces.table.trace import Trace

SUMMARY, REQUESTS, CLUSTER, CONFIG = "summary.json", "requests.parquet", "cluster.parquet", "config.yaml"


def _told_apart(multiples: list[float]) -> list[float]:
    if len({f"{multiple:g}" for multiple in multiples}) < len(multiples):
        raise ValueError("expected multiples that differ in their first six digits")
    return multiples


class ClusterSettings(BaseModel):
    """How many GPUs, and of what kind."""

    model_config = ConfigDict(extra="forbid")
    count: Annotated[int, Field(gt=0)]
    gpu: dict[str, Any]


class Directory(BaseModel):
    """Where the run directory is."""

    model_config = ConfigDict(extra="forbid")
    dir: Annotated[str, Field(min_length=1)]


class System(BaseModel):
    """The parts of a system, each a mapping with ``_target_``, the services that it pays for, and its assumptions."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=1)]
    door: dict[str, Any]
    scheduler: dict[str, Any]
    allocation: dict[str, Any]
    executor: dict[str, Any]
    services: dict[str, Service] = {}
    assumptions: list[Assumption] = []


class Settings(BaseModel):
    """The keys of conf/config.yaml, resolved; what each means stands there."""

    model_config = ConfigDict(extra="forbid")
    seed: Annotated[int, Field(ge=0)]
    shapes: Literal["model", "trace"]
    extrapolate: Literal["error", "warn"]
    slo: Annotated[list[Annotated[float, Field(gt=0, allow_inf_nan=False)]], AfterValidator(_told_apart)]
    warmup: Annotated[int, Field(ge=0)]
    preload: Annotated[int, Field(ge=0)]
    sample_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    run: Directory
    models: dict[str, dict[str, Any]]
    trace: dict[str, Any]
    encoder: dict[str, Any]
    scale: dict[str, Any]
    search: dict[str, Any]
    arrivals: dict[str, Any]
    cluster: ClusterSettings
    backend: dict[str, Any]
    quality: dict[str, Any]
    system: System


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
    alpha: float | None = None
    record = engine.record
    if not engine.backend.live:
        judged = quality.judge(record, engine.models, name, alpha)
        record.facts["quality"][:] = judged.factor
    return Outcome(
        summarise(
            engine,
            record,
            trace,
            seed=engine.seed,
            simulate_s=wall.simulate_s,
            cpu_s=wall.cpu_s,
            system=name,
            slo=settings.slo,
            warmup=settings.warmup,
            services=settings.system.services,
            alpha=alpha,
            judged=judged,
        ),
        record.facts.table(trace.table.column("request_id")),
        series(record),
        again(config),
    )


def assemble(settings: Settings, *, progress: bool = False) -> tuple[Trace, Engine]:
    """Load the trace and put the system together, ready to run. Raises what ``simulate`` raises."""
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
    system = settings.system
    allocation: Allocation = build(system.allocation, "system.allocation", Allocation)
    arrivals: Arrivals = build(settings.arrivals, "arrivals", Arrivals)
    encoder: Encoder = build(settings.encoder, "encoder", Encoder)

    def embeddings() -> np.ndarray[Any, Any]:
        engine.assume(
            "similarity of prompts",
            f"cosine of {encoder.name}",
            "the encoder's cosine, carried to the scale that thresholds are on",
        )
        return embed(trace, encoder, progress=None if progress else False)

    shapes, native = _shapes(trace, reference(models), settings.shapes), settings.shapes == "model"
    roles = allocation.roles(settings.cluster.count, models, backend)
    engine = Engine(
        workload=Workload(
            arrivals.schedule(trace.arrival_s[settings.preload :], stream(settings.seed, "arrivals")),
            shapes,
            standalone(backend, reference(models), shapes, native),
            native,
            settings.preload,
            settings.slo[0] if settings.slo else float("inf"),
        ),
        similarity=Similarity(
            embeddings,
            build(settings.search, "search", Search),
            build(settings.scale, "scale", Scale),
            f"{trace.digest} {encoder.name}",
        ),
        models=models,
        cluster=Cluster(build(settings.cluster.gpu, "cluster.gpu", Gpu), roles, models, backend),
        backend=backend,
        door=build(system.door, "system.door", Door),
        scheduler=build(system.scheduler, "system.scheduler", Scheduler),
        executor=build(system.executor, "system.executor", Executor),
        seed=settings.seed,
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


def check(config: Mapping[str, Any]) -> Settings:
    """The configuration with its types checked. Raises ConfigError naming the first key that is wrong."""
    try:
        return Settings.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        found = "" if first["type"] == "missing" else f", found {first['input']!r}"
        raise ConfigError(f"{key}: {first['msg'][0].lower()}{first['msg'][1:]}{found}") from None


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
    """Write the files of a run directory: all under temporary names, then all renamed, summary.json last.

    A run that was there before is replaced as a whole, or, where writing fails, left as it was.

    Raises:
        ConfigError: the folder cannot be made, or a file not written; the message names it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"run.dir: {folder} cannot be used ({error.strerror}); name another folder") from None
    with ExitStack() as parts:
        # Renamed in the reverse order of entering.
        summary, config, cluster, requests = (
            parts.enter_context(atomic_write(folder / name, ConfigError))
            for name in (SUMMARY, CONFIG, CLUSTER, REQUESTS)
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
