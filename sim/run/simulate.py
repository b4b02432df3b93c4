"""Run one simulation, from a resolved configuration to the files of a run folder."""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tqdm import tqdm

from mezzotint.files.document import dump
from mezzotint.files.scratch import Scratch
from mezzotint.settings.assumption import Assumption
from mezzotint.sim.addons.async_loading import AsyncLoading
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.cluster.residency import ModelResidency
from mezzotint.sim.core.culprit import class_name, is_ours
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.model import Model, reference
from mezzotint.sim.core.request import COMPLETED, Addons
from mezzotint.sim.core.run_folder import (
    ATTEMPTS,
    CLUSTER,
    CONFIG,
    REQUESTS,
    SUMMARY,
    TIMELINE,
    Claim,
    claim_folder,
    config_of,
    holds_run,
)
from mezzotint.sim.core.server import Size
from mezzotint.sim.core.slo import Limit, own_deadlines
from mezzotint.sim.core.streams import ARRIVALS, CELL, TRACE, seed_of, seeded, stream
from mezzotint.sim.core.tenant import USER
from mezzotint.sim.core.workload import (
    Shapes,
    SimilarityInputs,
    StandaloneLatency,
    Workload,
    addon_bytes,
    cells,
    standalone,
)
from mezzotint.sim.engine import Engine, attribute_errors
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.metrics.clients import check_seen
from mezzotint.sim.metrics.quality import Quality, QualityEstimate
from mezzotint.sim.metrics.recorder import RunRecord
from mezzotint.sim.metrics.request_columns import IMAGE, IMAGES
from mezzotint.sim.metrics.run_files import read_summary
from mezzotint.sim.metrics.summary import source_age_trace_s, summarise
from mezzotint.sim.metrics.time_series import series
from mezzotint.sim.metrics.timeline import write_timeline
from mezzotint.sim.metrics.warmup import find_warmup, first_requests, periods
from mezzotint.sim.protocols import Allocation, Client, Controller, Executor, FrontEnd, Scheduler, Selector
from mezzotint.sim.run.cells import Cells
from mezzotint.sim.run.config.build import build
from mezzotint.sim.run.config.paths import whole_paths
from mezzotint.sim.run.config.settings import Settings, System, check
from mezzotint.sim.run.fleets import alias, allocate, fleet_log, models_of_fleet
from mezzotint.sim.run.gpus import check_reference, kinds
from mezzotint.sim.run.sampling import SamplingCounter, images_mode, split
from mezzotint.sim.run.sweep_folder import is_claimed
from mezzotint.sim.run.together import (
    check_placement,
    check_roles,
    check_server,
    check_together,
    check_warm_up,
    choose_scheduler,
    split_by_pool,
)
from mezzotint.sim.run.trace_columns import SIMILARITY, columns_read
from mezzotint.sim.run.tries import Rows, keep_sent
from mezzotint.traces.arrivals.base import Arrivals, Schedule
from mezzotint.traces.arrivals.trace_clock import TraceClock
from mezzotint.traces.encoders.embeddings import Encoder, embed, identity
from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.search import Search
from mezzotint.traces.similarity.similarity_map import SimilarityMap
from mezzotint.traces.sources import Source
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceInputs:
    """Prompts, seeds and seconds of a trace's rows; the row's number where the trace has no seed."""

    trace: Trace

    def prompt(self, row: int) -> str:
        """Return the prompt of ``row``; empty if the trace has none."""
        return self.trace.prompts()[row].as_py() or ""

    def seed(self, row: int) -> int:
        """Return the seed of the noise that ``row`` starts from."""
        seed = self.trace.cells("seed")[row].as_py()
        return row if seed is None else int(seed)

    def service_s(self, row: int) -> float:
        """Return the seconds that the service took to generate ``row``. Raises TraceError if the trace lacks them."""
        seconds = self.trace.cells("gen_s")[row].as_py()
        if seconds is None:
            request = self.trace.cells("request_id")[row].as_py()
            raise TraceError(
                f"{self.trace.path or self.trace.name}: request {request}: has no gen_s, which backend.service=trace"
                " needs of every request; drop the request, or choose backend.service=profile"
            )
        return float(seconds)

    def has_several_images(self) -> bool:
        """Return True if a row asks for several images."""
        return self.trace.requests_of_several_images > 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The results of a run: summary, request table, time series and configuration.

    ``tables`` yields the request table by row groups, ``series`` returns the time series. ``timeline`` writes the
    timeline to a path; None if it was not asked for. ``attempts`` is None if every request ran in one attempt.
    """

    summary: dict[str, Any]
    tables: Callable[[], Iterator[pa.Table]]
    series: Callable[[], pa.Table]
    config: dict[str, Any]
    timeline: Callable[[Path], None] | None = None
    attempts: pa.Table | None = None

    @property
    def requests(self) -> pa.Table:
        """The request table, made anew each time."""
        return pa.concat_tables(self.tables())

    @property
    def cluster(self) -> pa.Table:
        """The time series, made anew each time: of a long run it is not in memory beside the request table."""
        return self.series()


@dataclass(frozen=True, slots=True)
class Assembled:
    """A run that is ready to start.

    Attributes:
        alpha: of its selector; None without one.
        warmup: first requests that are not measured; None: those that `find_warmup` finds.
    """

    trace: Trace
    engine: Engine
    alpha: float | None
    quality: Quality
    warmup: int | None


def simulate(
    config: Mapping[str, Any], *, progress: bool = False, trace: Trace | None = None, folder: Path | None = None
) -> Outcome:
    """Run one simulation.

    Args:
        config: the resolved configuration, as conf/config.yaml composes it.
        progress: show a bar if standard error is a terminal.
        trace: see `assemble`.
        folder: where a long run keeps its columns in files without a name; None is the folder for temporary files.

    Raises:
        ConfigError, TraceError, BackendError: the input cannot be used; one line names the place and the remedy.
        SimulationError: a part broke a law; it is named.
    """
    settings = check(config)
    with seeded(settings.seed):
        assembled = assemble(settings, progress=progress, trace=trace, scratch=Scratch(folder))
        return replay(settings, assembled, config, progress=progress)


def simulate_into(
    plain: dict[str, Any],
    folder: Path,
    *,
    fresh: bool = False,
    keep: bool = False,
    progress: bool = True,
    load: Callable[[Mapping[str, Any]], Trace] | None = None,
) -> tuple[dict[str, Any], Path, bool]:
    """Run one simulation into a run folder.

    Args:
        fresh: if ``folder`` exists, take another one.
        keep: if ``folder`` holds the same run, read it instead.
        progress: show a bar, on a terminal.
        load: returns the trace of the configuration, in place of loading it for this run alone.

    Returns:
        Its summary, its folder, and True if it was read.

    Raises:
        ConfigError: ``folder`` cannot be used or holds a run of another configuration; also what ``simulate`` raises.
    """
    if not keep:
        _refuse_point(plain, folder)
    with claim_folder(folder, fresh=fresh) as claim:
        if keep and holds_run(folder):
            if config_of(folder) != saved_config(plain):
                raise ConfigError(f"run.dir: {folder} holds a run of another configuration; remove it or name another")
            return read_summary(folder), claim.folder, True
        trace = None if load is None else load(plain)
        outcome = simulate(plain, progress=progress and not keep, trace=trace, folder=claim.staging)
        save(outcome, claim)
        return outcome.summary, claim.folder, False


def _refuse_point(plain: dict[str, Any], folder: Path) -> None:
    """Raise ConfigError for a folder in that of a sweep, unless it holds a run of the configuration ``plain``."""
    sweep = Path(os.path.realpath(folder)).parent
    if is_claimed(sweep) and config_of(folder) != saved_config(plain):
        raise ConfigError(
            f"run.dir: {folder} belongs to a sweep, and would no longer be what its command makes; name a folder "
            f"outside of {folder.parent}, or add the point to that sweep's command and give it another run.dir"
        )


@attribute_errors({})
def replay(settings: Settings, assembled: Assembled, config: Mapping[str, Any], *, progress: bool = False) -> Outcome:
    """Run what ``assemble`` built from ``config``, and return its results. Raises what ``simulate`` raises."""
    trace, engine, alpha = assembled.trace, assembled.engine, assembled.alpha
    name, record = settings.system.name, engine.record
    with tqdm(total=engine.rows, unit="req", desc=name, disable=None if progress else True) as bar:
        engine.progress = lambda ended: bar.update(ended - bar.n)
        simulate_s, cpu_s = engine.run()
        sent = trace if engine.workload.max_tries == 1 else keep_sent(engine, trace)
        rows, periods_s = assembled.warmup, periods(engine.controllers)
        warmup = find_warmup(record.request_columns, periods_s) if rows is None else first_requests(rows)
        _check_completed(engine, warmup.rows)
        bar.update(engine.rows - bar.n)
    judged: QualityEstimate | None = None
    if config.get("feature_cache"):
        unknown = np.broadcast_to(np.nan, len(record.request_columns))
        judged = QualityEstimate(unknown, reason="feature_cache changes every image, and no table covers that")
        record.request_columns.write("quality", judged.factor)
    elif not engine.backend.live:
        judged = _judged(assembled.quality, record, engine.models, config, alpha)
        record.request_columns.write("quality", judged.factor)
    if judged is not None:
        judged = replace(judged, factor=record.request_columns["quality"])
    seen = {} if engine.client is None else engine.client.seen()
    check_seen(seen, class_name(engine.client))
    users = sent.encoded(USER)
    sent.release()
    source_ages_s = source_age_trace_s(record.request_columns, sent)
    summary = summarise(
        engine,
        record,
        trace,
        source_ages_s,
        users,
        columns_read(trace, settings, engine),
        seed=settings.seed,
        simulate_s=simulate_s,
        cpu_s=cpu_s,
        system=name,
        slo=settings.slo,
        warmup=warmup,
        periods_s=periods_s,
        services=settings.system.services,
        alpha=alpha,
        judged=judged,
        seen=seen,
    )
    ids = sent.cells("request_id")

    def timeline(path: Path) -> None:
        cluster = engine.cluster
        of_kind = [f" ({gpu.name})" if len(cluster.kinds) > 1 else "" for gpu in cluster.gpu_kinds()[: cluster.gpus]]
        names = [f"GPU {index}{kind}" for index, kind in enumerate(of_kind)]
        write_timeline(record, path, names, cluster.gpus_of, ids.to_pylist())

    kept = timeline if settings.timeline else None
    attempts = None if record.attempts is None else record.attempts.table(ids)

    def tables() -> Iterator[pa.Table]:
        for table in record.request_columns.tables(ids, source_ages_s, users):
            yield table
            del table
            sent.release()

    return Outcome(summary, tables, lambda: series(record), saved_config(config), kept, attempts)


@attribute_errors({})
def assemble(
    settings: Settings, *, progress: bool = False, trace: Trace | None = None, scratch: Scratch | None = None
) -> Assembled:
    """Load the trace and build the system. Raises what ``simulate`` raises.

    Args:
        trace: the trace of an earlier call with the same ``trace`` and ``seed``, to save loading it.
        scratch: where the columns of a long run are.
    """
    system, parts = settings.system, settings.parts()
    frontend: FrontEnd = parts.get("frontend", FrontEnd)
    executor: Executor = parts.get("executor", Executor)
    scheduler = choose_scheduler(parts.get("scheduler", Scheduler), executor)
    allocation: Allocation = parts.get("allocation", Allocation)
    controllers = [parts.get(group, Controller) for group in ("failures", "controller")]
    client: Client | None = parts.get("client", Client)
    max_tries = 1 if client is None else _max_tries(client)
    server = settings.server.server()
    residency: ModelResidency | None = parts.get("residency", ModelResidency)
    check_together(controllers[0], controllers[1], frontend, scheduler, executor)
    check_placement(allocation, frontend, scheduler, executor, controllers[1])
    parts.refuse_unread(system.name)
    selector: Selector | None = parts.get("selector", Selector)
    cache = parts.get("cache")
    if isinstance(cache, ArtifactCache) and selector is not None:
        cache.refuse_unstored(selector)
    quality: Quality = build(settings.quality, "quality", Quality)
    if trace is None:
        source: Source = build(settings.trace, "trace", Source)
        trace = source.load(stream(settings.seed, TRACE))
    _check_left(trace, settings)
    models: Mapping[str, Model] = {role: build(m, f"models.{role}", Model) for role, m in settings.models.items()}
    if settings.assume is not None and "assume" not in settings.backend:
        raise ConfigError(
            f"assume: found {settings.assume}, but this backend looks no times up; choose backend=profiled"
        )
    gpus = kinds(settings.backend, settings.cluster)
    backends = list(dict(gpus).values())
    arrivals: Arrivals = build(settings.arrivals, "arrivals", Arrivals)
    _check_times(trace, arrivals)
    encoder: Encoder = build(settings.encoder, "encoder", Encoder)

    def embeddings() -> np.ndarray[Any, Any]:
        engine.assume(
            SIMILARITY,
            f"cosine of {encoder.name}",
            "the encoder's cosine, mapped to the scale that thresholds are on",
        )
        return embed(rows, encoder, progress=None if progress else False)

    schedule = arrivals.schedule(trace.arrival_s[settings.preload :], stream(settings.seed, ARRIVALS))
    expected = len(trace) - settings.preload
    _check_schedule(schedule, expected, class_name(arrivals))
    if schedule.rows is not None:
        trace = trace.head(settings.preload + schedule.rows)
    _check_left(trace, settings)
    settings, trace, schedule, cell = _cell(settings, trace, schedule)
    scratch = Scratch() if scratch is None else scratch
    schedule = schedule.with_times_moved(scratch.copy)
    images, warmup, image_number = images_mode(settings.images, trace), settings.warmup, None
    if images == "requests" and trace.requests_of_several_images:
        trace, schedule, image_number = split(trace, schedule, settings.preload, max_tries)
        warmup = None if warmup is None else int(np.searchsorted(np.cumsum(image_number == 1), warmup + 1))
    rows = trace  # of the closure above: a trace, and not None
    tries = Rows(len(trace), settings.preload, max_tries)
    for backend in backends:
        backend.open(TraceInputs(tries.of_trace(trace)))
    # Of the rows as they are served: one for each image, where requests were split.
    models = models_of_fleet(frontend, trace, models)
    alias(backends, models)
    shapes, native = shapes_of(trace, reference(models), settings.shapes), settings.shapes == "model"
    check_reference(gpus, models)
    noted: list[Assumption] = []
    sampling = SamplingCounter(
        images,
        settings.unsupported,
        list(dict.fromkeys(models.values())),
        {gpu.name: backend for gpu, backend in gpus},
        executor,
        lambda *assumption: noted.append(Assumption(*assumption)),
        settings.addons == "serve",
    ).column(trace)
    check_server(server, controllers[0], controllers[1], backends[0].live)
    if isinstance(controllers[0], Failures):
        server = replace(server, crashes=controllers[0].crashes_servers)
    check_warm_up(server, _sizes(models, shapes, native))
    others = executor.other_stages if isinstance(executor, Stages) else ()
    full = standalone(backends[0], reference(models), shapes, native, sampling, others)
    first_limit = settings.slo[0] if settings.slo else Limit("x", math.inf)
    of_gpus, placed = allocate(allocation, frontend, settings.cluster, gpus, models, residency)
    check_roles(frontend, scheduler, controllers[1], of_gpus, models)
    if isinstance(executor, Stages):
        split_by_pool(executor, models, of_gpus, controllers[1], len(dict(gpus)))
    own_s = own_deadlines(trace.column("slo_s"), lambda: _pixels(shapes), settings.slo_by_size, full.total_s)
    engine = Engine(
        workload=Workload(
            schedule,
            tuple(tries.of(column) for column in shapes),
            StandaloneLatency(tries.of(full.denoise_s), tries.of(full.total_s)),
            use_model_shape=native,
            preload=settings.preload,
            deadline=first_limit.value if first_limit.unit == "x" else math.inf,
            deadline_s=math.inf if first_limit.unit == "x" else first_limit.value,
            own_deadline_s=None if own_s is None else tries.of(own_s),
            priority=cells(tries.of(_priority(trace))),
            addons=_addons(trace) if settings.addons == "serve" else None,
            addon_bytes=addon_bytes(trace),
            column_codes=lambda name: tries.of(trace.codes(name)),
            column_values=lambda name: trace.encoded(name).dictionary.to_pylist(),
            sampling=None if sampling is None else replace(sampling, codes=tries.of(sampling.codes)),
            max_tries=max_tries,
            scratch=scratch,
        ),
        similarity=SimilarityInputs(
            embeddings,
            build(settings.search, "search", Search),
            build(settings.similarity_map, "similarity_map", SimilarityMap),
            lambda: f"{rows.digest} {identity(encoder)}",
        ),
        models=models,
        cluster=Cluster(gpus, of_gpus, models, residency, placed),
        backend=backends[0],
        frontend=frontend,
        scheduler=scheduler,
        executor=executor,
        controllers=[controller for controller in controllers if controller is not None],
        handling=settings.handling.handling(),
        server=server,
        seed=settings.seed,
        sample_s=settings.sample_s,
        client=client,
    )
    engine.record.fleet = fleet_log(frontend, residency, models, len(engine.record.request_columns), settings.preload)
    for name, column in (
        (IMAGE, image_number),
        (IMAGES, None if sampling is None else tries.of(sampling.images)[settings.preload :]),
    ):
        if column is not None and (column > 1).any():
            engine.record.request_columns.declare(name, int, default=1).values[:] = column
    _assume(engine, trace, system, settings.addons, noted, [*schedule.assumptions, *cell, *allocation.assumptions()])
    return Assembled(trace, engine, None if selector is None else selector.alpha, quality, warmup)


def _cell(settings: Settings, trace: Trace, schedule: Schedule) -> tuple[Settings, Trace, Schedule, list[Assumption]]:
    """Return settings, trace and arrivals of the run's cell, and what it assumes; all as they are without cells.

    The arrivals were drawn for the whole trace, so that a cell has its share of them.
    """
    chosen, preload = settings.cells, settings.preload
    if chosen.count == 1:
        return settings, trace, schedule, []
    if len(schedule.times) < len(trace) - preload:
        raise ConfigError(
            "cells: found a closed loop, whose clients wait for answers of every cell; choose other arrivals, or run "
            "one cluster with its share of the clients"
        )
    cells = Cells(chosen.count, chosen.number, chosen.by)
    rows = cells.rows(trace)
    first, warmed = (int(np.searchsorted(rows, bound)) for bound in (preload, preload + (settings.warmup or 0)))
    if warmed == len(rows):
        raise ConfigError(
            f"cells.number={chosen.number}: has no request to measure of the {len(trace):,} rows of {trace.name}, by "
            f"{chosen.by}; lower cells.count, or choose another cells.by"
        )
    of_cell = {
        "preload": first,
        "warmup": None if settings.warmup is None else warmed - first,
        # Parts of different cells draw different numbers: not all of them fail at one instant.
        "seed": seed_of(settings.seed, CELL.format(chosen.number, chosen.count)),
    }
    times = Schedule(schedule.times[rows[first:] - preload], assumptions=schedule.assumptions)
    return settings.model_copy(update=of_cell), trace.take(rows), times, [cells.assumption(len(rows), len(trace))]


def _check_times(trace: Trace, arrivals: Arrivals) -> None:
    if isinstance(arrivals, TraceClock) and trace.notes.get("arrival_s") == ORDER_ONLY:
        raise ConfigError(
            f"arrivals=trace: {trace.path or trace.name} has an order of requests and no times to replay; choose others"
            ", such as arrivals=poisson arrivals.rate_rpm=10, or map its column of times in `mezzotint trace import`"
        )


def _judged(
    quality: Quality, record: RunRecord, models: Mapping[str, Model], config: Mapping[str, Any], alpha: float | None
) -> QualityEstimate:
    if is_ours(class_name(quality)):
        return quality.judge(record, models, config, alpha)
    columns = record.request_columns.read_only()
    judged = quality.judge(replace(record, request_columns=columns), models, deepcopy(dict(config)), alpha)
    factor = np.asarray(judged.factor)
    if factor.shape != (len(columns),) or factor.dtype.kind not in "fiu" or np.isinf(factor).any():
        raise SimulationError(
            f"{class_name(quality)} returned factors of {factor.dtype} {factor.shape} from judge; expected a number "
            f"for each of the {len(columns)} requests, NaN where it is not known"
        )
    return judged


def _check_schedule(schedule: Schedule, rows: int, who: str) -> None:
    """Raise ConfigError for a schedule that does not fit a trace of ``rows``."""
    times, think_s = len(schedule.times), np.shape(schedule.think_s)
    if times > rows:
        what, expected = f"{times} times", "as many, or fewer in a closed loop"
    elif not times:
        what, expected = "no times", "one or more"
    elif think_s not in ((), (rows,)):
        what, expected = f"think_s of shape {think_s}", "a number, or one for each"
    elif schedule.rows is not None and (not isinstance(schedule.rows, int) or schedule.rows < 0):
        what, expected = f"rows = {schedule.rows!r}", "a whole number, or None"
    else:
        return
    raise ConfigError(f"arrivals: {who} gave {what} for the {rows} requests of the trace; expected {expected}")


def _max_tries(client: Client) -> int:
    """Return the tries of a request at most. Raises SimulationError if ``client`` states no number of them."""
    if not isinstance(client.max_tries, int | np.integer) or client.max_tries < 1:
        raise SimulationError(
            f"{class_name(client)} has max_tries = {client.max_tries!r}; expected a whole number from 1 on"
        )
    return int(client.max_tries)


def _check_completed(engine: Engine, warmup: int) -> None:
    columns = engine.record.request_columns
    outcome = columns["outcome"][warmup:]
    if (outcome == COMPLETED).any():
        return
    reasons = Counter(reason for row, reason in columns.reasons.items() if row >= columns.first + warmup)
    why = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(3)) or "no reason was given"
    by = f"; {engine.outsiders} took part" if engine.outsiders else ""
    raise ConfigError(f"none of the {len(outcome)} requests to measure was completed: {why}{by}")


def _check_left(trace: Trace, settings: Settings) -> None:
    warmup = settings.warmup or 0
    if len(trace) - settings.preload - warmup <= 0:
        raise ConfigError(
            f"preload={settings.preload} and warmup={warmup} leave nothing of the {len(trace)} requests of "
            f"{trace.name} to measure; lower them or take a longer trace"
        )


def _assume(
    engine: Engine,
    trace: Trace,
    system: System,
    addons: str,
    sampling: list[Assumption],
    of_parts: list[Assumption],
) -> None:
    if trace.notes.get("synthetic"):
        engine.assume("the trace is synthetic", trace.name, trace.source)
    first, *others = engine.cluster.kinds
    if others:
        engine.assume("kind of GPU that multiples of the standalone latency refer to", first.name, "the first pool's")
    if "arrival_s" in trace.notes:
        engine.assume("arrival times of the trace", trace.notes["arrival_s"], trace.source)
    for noted in sampling:
        engine.assume(noted.what, noted.value, noted.source)
    names = [name for name in ("controlnets", "loras") if trace.has(name)]
    if names and addons == "ignore":
        lists = (trace.cells(name) for name in names)
        counts = [pc.fill_null(pc.list_value_length(addons_of), 0).to_numpy() for addons_of in lists]
        engine.assume(
            "add-ons (ControlNets, LoRAs) served",
            0,
            f"addons=ignore; {int((sum(counts) > 0).sum())} requests ask for some",
        )
    elif names:
        steps = getattr(engine.executor, "batching", None)
        if not isinstance(getattr(steps, "lora_loading", None), AsyncLoading):
            engine.assume(
                "seconds to take LoRAs out of a model's weights again", 0, "nobody published them; not charged"
            )
        if any(gpu.memory_bytes is None for gpu in engine.cluster.kinds):
            engine.assume(
                "GPU memory for ControlNets",
                "not bounded",
                "cluster.gpu.memory_bytes is null; what was loaded stays",
            )
    for stated in (*system.assumptions, *of_parts):
        try:
            json.dumps(stated.value, allow_nan=False)
        except (TypeError, ValueError) as error:
            reason = f"the value of {stated.what!r}: {error}; found {stated.value!r}"
            raise ConfigError(f"system.assumptions: {reason}") from None
        engine.assume(stated.what, stated.value, stated.source)


def saved_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration to save as config.yaml: paths are absolute, and ``run.dir`` must be given anew.

    ``mezzotint run --config-path DIR --config-name config run.dir=NEW`` repeats the run from it.
    """
    quiet = [{f"override hydra/{group}": "none"} for group in ("job_logging", "hydra_logging")]
    return {
        "defaults": [*quiet, {"override hydra/launcher": "joblib"}, "_self_"],
        **{key: whole_paths(value) for key, value in config.items() if key not in ("defaults", "hydra", "run")},
        "run": {"dir": "???"},
        "hydra": {
            "output_subdir": None,
            "job": {"chdir": False},
            "run": {"dir": "."},
            "sweep": {"dir": "${run.dir}", "subdir": "${hydra.job.num}"},
        },
    }


def write(outcome: Outcome, folder: Path) -> None:
    """Claim ``folder``, waiting for other processes, and ``save`` there. Raises what ``claimed`` and ``save`` raise."""
    with claim_folder(folder, wait=True) as claim:
        save(outcome, claim)


def save(outcome: Outcome, claim: Claim) -> None:
    """Write the files of a run and publish them together; a failure leaves an earlier run as it was.

    Raises ConfigError if they cannot be written.
    """
    staging = claim.staging
    try:
        cluster = (make() for make in [outcome.series])  # made when it is written
        files = {REQUESTS: outcome.tables(), CLUSTER: cluster, ATTEMPTS: iter([outcome.attempts])}
        for name, tables in files.items():
            table = next(tables)
            if table is None:
                continue
            with (staging / name).open("wb") as file, pq.ParquetWriter(file, table.schema) as writer:
                while table is not None:
                    writer.write_table(table)
                    del table  # before the next one is made, so that two are never in memory
                    table = next(tables, None)
        if outcome.timeline is not None:
            outcome.timeline(staging / TIMELINE)
        (staging / CONFIG).write_text(dump(outcome.config), encoding="utf-8")
        summary = json.dumps(outcome.summary, indent=2, allow_nan=False)
        (staging / SUMMARY).write_text(f"{summary}\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"run.dir: {claim.folder} cannot be written ({error.strerror or error}); free the disk or name another one"
        ) from error
    claim.publish()


def _priority(trace: Trace) -> NDArray[np.int32]:
    """Return the priority of every row, (n,); 0 where it has none."""
    if not trace.has("priority"):
        return np.broadcast_to(np.int32(0), len(trace))
    found: NDArray[np.int32] = np.maximum(trace.column("priority"), 0).astype(np.int32)
    return found


def _addons(trace: Trace) -> Callable[[int], Addons | None]:
    """Return a function: trace row -> its add-ons, None without any."""
    controlnets, loras = (trace.cells(name).combine_chunks() for name in ("controlnets", "loras"))

    def addons_of(row: int) -> Addons | None:
        addons = Addons(tuple(controlnets[row].as_py() or ()), tuple(loras[row].as_py() or ()))
        return addons if any(addons) else None

    return addons_of


def _sizes(models: Mapping[str, Model], shapes: Shapes, native: bool) -> set[Size]:
    """Return width, height and frames that requests may have."""
    if native:
        return {(model.width, model.height, model.frames) for model in models.values()}
    return set(map(tuple, np.unique(_pixels(shapes), axis=1).T.tolist()))


def _pixels(shapes: Shapes) -> NDArray[np.int32]:
    """Return width, height and frames of every row, (3, rows)."""
    width, height, _, frames = (*shapes, np.ones(len(shapes[0]), np.int32))[:4]
    return np.stack([width, height, frames])


def shapes_of(trace: Trace, model: Model, shapes: str) -> Shapes:
    """Return width, height, steps and, of videos, frames of every row: the model's, or the trace's own where known."""
    columns = []
    for name in ("width", "height", "steps", "frames"):
        of_model = np.broadcast_to(np.int32(getattr(model, name)), len(trace))
        if shapes == "trace":
            stated = trace.column(name)
            of_model = np.where(stated > 0, stated, of_model).astype(np.int32)
        columns.append(of_model)
    return tuple(columns if (columns[3] > 1).any() else columns[:3])
