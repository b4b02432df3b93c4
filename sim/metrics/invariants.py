"""Numbered invariants of the design, checked on every finished run; an error names the part at fault."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint.sim.core.culprit import class_name, error_of, is_ours, part_name, part_names
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import DECLARED, DENOISER, MISSING, WHOLE
from mezzotint.sim.core.request import COMPLETED
from mezzotint.sim.core.workload import Workload
from mezzotint.sim.metrics.attempts import AttemptLog
from mezzotint.sim.metrics.recorder import BATCH_MEAN, HANDLING, REUSED_SHARE, STEP_SHARE, RunRecord
from mezzotint.sim.metrics.request_columns import RequestColumns
from mezzotint.sim.protocols import Cluster

GAP_S = 1e-6
"""Tolerance for rounding of sums of times."""

SHARE = 1e-6
"""Relative tolerance for rounding."""

MIN_STEP_SHARE = 1e-5
"""Least seconds of a step, in those of the reference model's alone on a GPU: no model, group or cache is as fast."""

MAX_STEPS = 2**20
"""Greater than the steps of any request: the base in which a plan packs K and of_steps."""

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run after its last event.

    Attributes:
        parts: the parts by kind, for errors.
        last_order: which part took the last worker of a role away, and when, in words, by role.
        area_s: integral of the number of requests in the system over time.
        arrival_s: arrival of each request, as the engine scheduled it.
        plans: plan of each request, K * MAX_STEPS + of_steps; with K = 0, minus the steps skipped for another reason.
        holds_gpus: True if GPUs idle until the answers of what they made, and so do the others of a continuous batch.
    """

    record: RunRecord
    parts: Mapping[str, object]
    cluster: Cluster
    last_order: Mapping[str, str]
    workload: Workload
    models: Mapping[str, Model]
    area_s: float
    arrival_s: ArrayLike
    plans: ArrayLike
    holds_gpus: bool = False

    def policy_error(self, kind: str, what: str) -> SimulationError:
        """Return an error that names the part of ``kind``, and beside an executor a backend of others."""
        if kind == "executor" and not is_ours(class_name(self.parts["backend"])):
            return SimulationError(f"{part_names(self.parts, kind, 'backend')} {what}")
        return SimulationError(f"{part_name(self.parts, kind)} {what}")

    def plan_error(self, name: str, row: int, planned: Any, found: Any) -> SimulationError:
        """Return an error that names the parts that may have changed the plan of a request."""
        who = part_names(self.parts, "scheduler", "executor", *(kind for kind in self.parts if "controller" in kind))
        return SimulationError(
            f"{who} changed {name} of the request in row {row} from {planned} to {found}; only the front end and "
            "Run.assign may plan a request"
        )


def check(run: FinishedRun) -> None:
    """Raise SimulationError if an invariant does not hold."""
    every, stays_s, last_s = run.record.request_columns, 0.0, 0.0
    if not len(every):
        return
    _check_gauges(run)
    for columns in every.blocks():
        served, on_gpu = _served(columns)
        _check_plans(run, columns, on_gpu)
        _check_sources(run, columns, served)
        _check_values(run, columns, served, on_gpu)
        _check_times(run, columns, served, on_gpu)
        stays_s += float((columns["finish_s"] - columns["arrival_s"]).sum())
        last_s = max(last_s, float(columns["finish_s"].max()))
    _check_energy(run)
    if run.record.attempts is None:
        _check_usage(run, last_s)
    else:
        check_attempts = _check_attempts if run.record.attempts.is_exclusive else _check_passes
        check_attempts(run, run.record.attempts, every, _served(every)[1])
    _check_rentals(run)
    _check_littles_law(run, stays_s, last_s)


def _served(columns: RequestColumns) -> tuple[Flags, Flags]:
    """Return which requests were completed, and which of them on a GPU."""
    served: Flags = columns["outcome"] == COMPLETED
    return served, served & (columns["model"] != MISSING)


def incomplete(run: FinishedRun, rows: int, arrived: int, waiting: int, failures: int) -> SimulationError | ConfigError:
    """Return the error of a run without further events in which some of ``rows`` requests did not end (invariant 3).

    A ConfigError if a controller of ours left no GPU in a role that requests wait for: its split is a setting.
    """
    ended = int(np.count_nonzero(run.record.request_columns["outcome"]))
    running = {worker.id: worker.running for worker in run.cluster.workers if worker.running}
    roles = run.cluster.roles()
    emptied = [role for role in run.last_order if role in run.models and role not in roles]
    open_requests = arrived - ended
    kind: type[ConfigError] | type[SimulationError] = SimulationError
    if running:
        workers = ", ".join(map(str, list(running)[:8])) + (", ..." if len(running) > 8 else "")
        held = f"{part_name(run.parts, 'executor')} holds {sum(running.values())} requests on the workers {workers}"
        what = f"{held}, and no event is left; call Run.end and Cluster.release once for each request"
        if waiting == open_requests:
            what += ": all of those have ended, so Cluster.release was not called"
    elif open_requests == 0 and "client" in run.parts:
        what = f"{part_name(run.parts, 'client')} sent {arrived}; send each row that falls due, with all its tries"
    elif emptied:
        what = f"{run.last_order[emptied[0]]}; leave one for the queue, or choose a scheduler= whose others take them"
        kind = error_of(run.last_order[emptied[0]])
    elif waiting < open_requests:
        what = (
            f"{part_name(run.parts, 'scheduler')} dropped {open_requests - waiting} requests: it neither handed them "
        )
        what += "over nor keeps them; return each from offer or next, or end it (Run.end)"
    else:
        what = f"{part_name(run.parts, 'scheduler')} kept requests that no worker may run"
        if failures:
            what += f", or no GPU stays up for as long as a request takes: GPUs failed {failures} times"
            what += "; raise failures.mean_up_s, or check failures.outages"
    return kind(f"of {rows} requests {arrived} arrived and {ended} ended; {waiting} still wait: {what}")


def _first(wrong: Flags) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


def _check_plans(run: FinishedRun, columns: RequestColumns, on_gpu: Flags) -> None:
    """A request ends with the plan that the front end made, and all its steps were run."""
    workload, every = run.workload, np.ones(len(on_gpu), bool)
    head = slice(columns.first, columns.first + len(columns))
    of_run = slice(head.start - run.workload.preload, head.stop - run.workload.preload)
    plans = np.asarray(run.plans)[of_run]
    skipped = np.zeros(len(on_gpu), np.int64)
    if plans.any():
        k, of_steps = np.divmod(np.maximum(plans, 0), MAX_STEPS)
        # As Run.assign computes it, on the steps of the model that ran.
        skipped = np.where(k > 0, k * columns["steps"] // np.maximum(of_steps, 1), np.maximum(-plans, 0))
    if workload.sampling is not None:
        kinds, codes = workload.sampling.kinds, workload.sampling.codes[head]
        steps_of = columns["steps"].tolist()
        pairs = zip(codes, steps_of, strict=True)
        shorter = [0 if (kind := kinds[code]) is None else kind.skipped(steps) for code, steps in pairs]
        # An artifact that is the answer itself has no steps to skip, while a discarded request has its plan.
        answered = ~on_gpu & (columns["outcome"] == COMPLETED)
        skipped = np.where(answered, skipped, np.maximum(skipped, shorter))
    planned: list[tuple[str, NDArray[Any], Flags]] = [
        ("arrival_s", np.asarray(run.arrival_s)[of_run], every),
        ("skipped", skipped, every),
    ]
    for name in ("width", "height", "steps", "frames"):
        if name not in columns:  # no videos
            continue
        if workload.use_model_shape:
            by_model = np.zeros(len(columns.model_code), np.int32)
            for model in run.models.values():
                by_model[columns.model_code[model.name]] = getattr(model, name)
            planned.append((name, by_model[columns["model"]], on_gpu))
        else:
            planned.append((name, np.asarray(getattr(workload, name))[head], every))
    for name, expected, where in planned:
        bad = _first(where & (columns[name] != expected))
        if bad is not None:
            raise run.plan_error(name, columns.first + bad, expected[bad], columns[name][bad])
    steps = columns["steps"] - columns["skipped"]
    bad = _first(on_gpu & (columns["steps_left"] != 0) & (columns["steps_left"] != steps))
    if bad is not None:
        left = f"{columns['steps_left'][bad]} of its {steps[bad]} steps left; run all of them"
        raise run.policy_error("executor", f"completed the request in row {columns.first + bad} with {left}")


def _check_gauges(run: FinishedRun) -> None:
    """Every sample of a gauge is a number."""
    for name, gauge in run.record.gauges.items():
        if gauge.values and np.asarray(gauge.values).dtype.kind not in "biuf":
            texts = [value for value in gauge.values if not isinstance(value, float | int | np.number)]
            wrong = texts[0] if texts else max(gauge.values, key=abs)  # one of more than 64 bits
            raise SimulationError(f"{gauge.part} reads {wrong!r:.100} for its gauge {name!r}; expected a number")


def _check_sources(run: FinishedRun, columns: RequestColumns, served: Flags) -> None:
    """A request starts from an artifact that existed when it arrived, of a similarity in range."""
    source, hits = columns["source"], served & (columns["source"] != MISSING)
    known = hits & (source != DECLARED)
    last = run.workload.preload + len(run.record.request_columns) - 1
    bad = _first(known & ((source < 0) | (source > last)))
    if bad is not None:
        found = f"started the request in row {columns.first + bad} from the artifact of row {source[bad]}"
        raise run.policy_error("frontend", f"{found}; the trace has rows 0 to {last}")
    if known.any():
        _check_made(run, columns, known)
    for name, minimum, maximum in (("similarity", -1 - SHARE, 1 + SHARE), ("source_age_s", 0.0, np.inf)):
        values = columns[name]
        bad = _first(served & ((values < minimum) | (values > maximum)))
        if bad is not None:
            found = f"wrote {name} = {values[bad]} of the request in row {columns.first + bad}"
            raise run.policy_error("frontend", f"{found}; expected {minimum:g} to {maximum:g}")


def _check_made(run: FinishedRun, columns: RequestColumns, known: Flags) -> None:
    """The artifacts of the requests ``known`` were made before these arrived."""
    source, every = columns["source"], run.record.request_columns
    of_run = known & (source >= every.first)  # artifacts of earlier rows filled the cache before the clock started
    at_source = np.where(of_run, source - every.first, 0)
    made_s = np.where(every["outcome"][at_source] == COMPLETED, every["finish_s"][at_source], np.inf)
    bad = _first(of_run & ~(made_s <= columns["arrival_s"] + GAP_S))
    if bad is not None:
        when = "never was" if made_s[bad] == np.inf else f"was at {made_s[bad]} s"
        raise run.policy_error(
            "frontend",
            f"started the request in row {columns.first + bad}, which arrived at {columns['arrival_s'][bad]} s, from "
            f"the artifact of row {source[bad]}, which {when}; an artifact can be reused once it is completed",
        )


def _check_values(run: FinishedRun, columns: RequestColumns, served: Flags, on_gpu: Flags) -> None:
    """The values written for a request are finite and not negative; only a quality score may be negative."""
    shared = [name for name in (STEP_SHARE, BATCH_MEAN) if name in columns]
    written: list[tuple[str, Flags, Sequence[str]]] = [
        ("frontend", served, ["search_s", "fetch_s"]),
        ("executor", on_gpu, ["start_s", "load_s", "denoise_s", "decode_s", "energy_j", *shared]),
        ("backend", served, ["quality"]),
    ]
    unknown = {"quality", BATCH_MEAN}
    if any(gpu.active_w is None for gpu in run.cluster.kinds):
        unknown.add("energy_j")
    bounds = {BATCH_MEAN: 1 - SHARE, "quality": np.finfo(float).min}
    for kind, where, names in written:
        for name in names:
            values, minimum = columns[name], bounds.get(name, 0.0)
            sane = (values >= minimum) & (values < np.inf)
            if name in unknown:
                sane |= np.isnan(values)
            bad = _first(where & ~sane)
            if bad is not None:
                found = f"wrote {name} = {values[bad]} of the request in row {columns.first + bad}"
                raise run.policy_error(kind, f"{found}; expected {minimum:g} or more, and finite")
    if REUSED_SHARE in columns:
        share = columns[REUSED_SHARE]
        bad = _first(on_gpu & ~((share >= -SHARE) & (share <= 1 + SHARE)))
        if bad is not None:
            found = f"reused {share[bad]} of the features of the request in row {columns.first + bad}"
            raise run.policy_error("executor", f"{found}; expected 0 to 1 of all its steps (StepCosts.reused)")


def _check_times(run: FinishedRun, columns: RequestColumns, served: Flags, on_gpu: Flags) -> None:
    """A request starts after it arrives, and its times on the GPU fit between its start and its end."""
    start_s, finish_s, denoise_s = columns["start_s"], columns["finish_s"], columns["denoise_s"]
    bad = _first(~(finish_s < np.inf))
    if bad is not None:
        raise run.policy_error("executor", f"ended the request in row {columns.first + bad} at {finish_s[bad]} s")
    # Late in a long run the spacing of floats is above GAP_S: sums may be off by some of it.
    slack_s = GAP_S + 4 * np.spacing(finish_s)
    from_s = columns["arrival_s"] + columns["search_s"]
    bad = _first(served & ~((start_s >= from_s - slack_s) & (start_s <= finish_s)))
    if bad is not None:
        when = f"started at {start_s[bad]} s; it could from {from_s[bad]} s on, and ended at {finish_s[bad]} s"
        one = f"the request in row {columns.first + bad}"
        raise run.policy_error("executor", f"recorded that {one} {when}: set request.start_s")
    took_s, parts_s = finish_s - start_s, columns["load_s"] + columns["fetch_s"] + denoise_s + columns["decode_s"]
    # At most, not equal: a request may also wait on the GPU for others of its batch.
    bad = _first(on_gpu & (parts_s > took_s * (1 + SHARE) + slack_s))
    if bad is not None:
        parts = f"loaded, fetched, denoised and decoded for {parts_s[bad]} s in the {took_s[bad]} s from start to end"
        raise run.policy_error("executor", f"recorded that the request in row {columns.first + bad} {parts}")
    head = slice(columns.first, columns.first + len(columns))
    stepped = on_gpu & (columns["steps"] > columns["skipped"]) & (run.workload.standalone.denoise_s[head] > 0)
    shared = columns[STEP_SHARE if STEP_SHARE in columns else "denoise_s"]
    run_steps = columns["steps"] - columns["skipped"]
    standalone = run.workload.standalone.denoise_s[head] / np.maximum(columns["steps"], 1)  # 0: never sent
    bad = _first(stepped & ~(np.minimum(denoise_s, shared) > MIN_STEP_SHARE * run_steps * standalone))
    if bad is not None:
        steps = run_steps[bad]
        raise run.policy_error(
            "executor",
            f"ran {steps} steps of the request in row {columns.first + bad} in {denoise_s[bad]} s (its share of them: "
            f"{shared[bad]} s), from {start_s[bad]} s to {finish_s[bad]} s; a step takes time, and alone on a GPU the "
            f"profile has {standalone[bad]:.3g} s",
        )


def _check_usage(run: FinishedRun, last_s: float) -> None:
    """Invariant 8: by the usage log, a request's GPU was busy with its model all the time, and drew its energy.

    Args:
        last_s: the last end of a request.
    """
    every, log, counts = run.record.request_columns, run.record.usage_log, run.cluster.gpu_counts()
    slack_s = GAP_S + 4 * np.spacing(last_s)
    drawn_j, covers, max_held = _check_spans(run, slack_s)
    # A held GPU may idle for an answer of each request of its batch, one after another.
    held_s = every[HANDLING].max(initial=0.0) * max_held if run.holds_gpus else 0.0
    shares_j, last_j, ended_s = np.zeros(len(counts)), np.zeros(len(counts)), np.full(len(counts), -np.inf)
    # Many requests for each worker, since a block takes a step for each.
    for columns in every.blocks(16 * len(counts)):
        _, on_gpu = _served(columns)
        worker = columns["worker"]
        bad = _first(on_gpu & ((worker < 0) | (worker >= len(counts))))
        if bad is not None:
            raise SimulationError(
                f"{part_names(run.parts, 'executor', 'scheduler')} completed the request in row {columns.first + bad} "
                f"on the worker {worker[bad]}, which the cluster does not have"
            )
        if not on_gpu.any():
            continue
        # The spans of the time in which these requests ran; of a short run all.
        from_s, until_s = columns["start_s"][on_gpu].min() - held_s, columns["finish_s"][on_gpu].max()
        spans = log.between(covers, from_s - slack_s, until_s + slack_s)
        rows, latest, finish_s = _check_held(run, columns, on_gpu, spans, slack_s, held_s)
        energy_j = columns["energy_j"][rows]
        np.add.at(shares_j, worker[rows], energy_j)
        number, finish_s, energy_j = worker[rows[latest]], finish_s[latest], energy_j[latest]
        later = finish_s > ended_s[number]
        ended_s[number[later]], last_j[number[later]] = finish_s[later], energy_j[later]
    if not is_ours(class_name(run.parts["executor"])):
        _check_overlap(run, every, slack_s)
    # Work after a worker's last image may outlast the run, so its energy is not in the usage log yet.
    shares_j -= last_j
    bad = _first(shares_j > drawn_j * (1 + SHARE) + SHARE)
    if bad is not None:
        energy = f"energy_j of {shares_j[bad]} J in the requests of worker {bad}, and its GPUs drew {drawn_j[bad]} J"
        raise run.policy_error("executor", f"wrote {energy}")


def _check_overlap(run: FinishedRun, columns: RequestColumns, slack_s: float) -> None:
    """No more requests than an executor of others takes at once are between their start and their end on a worker."""
    executor: Any = run.parts["executor"]
    if hasattr(executor, "preempt"):  # a preempted request is on no worker
        return
    _, on_gpu = _served(columns)
    worker, start_s, finish_s = (columns[name][on_gpu] for name in ("worker", "start_s", "finish_s"))
    if HANDLING in columns:
        finish_s = finish_s - columns[HANDLING][on_gpu]
    by_start, by_end, at_once = np.lexsort((start_s, worker)), np.lexsort((finish_s, worker)), executor.max_batch
    # On each worker, by the start of the request after ``at_once`` others the first of them to end has ended.
    later, earlier = by_start[at_once:], by_end[: max(len(by_end) - at_once, 0)]
    bad = _first((worker[later] == worker[earlier]) & (start_s[later] < finish_s[earlier] - slack_s))
    if bad is not None:
        raise run.policy_error(
            "executor",
            f"recorded that {at_once + 1} requests were between start_s and their end on worker {worker[later[bad]]} "
            f"at {start_s[later[bad]]} s, and takes {at_once} at once; a request starts when its work does",
        )


def _check_spans(run: FinishedRun, slack_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """No GPU does two things at once, and no batch is over its bound.

    Returns:
        The joules of each worker, the first begin and the last end in each block of spans, and the greatest batch.
    """
    max_batch = getattr(run.parts["executor"], "max_batch", np.inf)
    is_outside = not is_ours(class_name(run.parts["executor"]))
    workers = len(run.cluster.gpu_counts())
    drawn_j, busy_until_s, covers, greatest = np.zeros(workers), np.full(workers, -np.inf), [], 1
    for spans in run.record.usage_log.blocks():
        bad = _first(spans["batch"] > max_batch)
        if bad is not None:
            found = f"ran {spans['batch'][bad]} requests at once on worker {spans['worker'][bad]}"
            raise SimulationError(f"{part_names(run.parts, 'executor', 'scheduler')} {found}, of at most {max_batch}")
        if is_outside:
            row, first = spans["row"], run.workload.preload
            bad = _first((row < MISSING) | (row >= first + len(run.record.request_columns)))
            if bad is not None:
                raise run.policy_error(
                    "executor", f"recorded busy time for row {row[bad]}, which the run does not have; -1 is no request"
                )
        covers.append((spans["from_s"].min(), spans["until_s"].max()))
        greatest = max(greatest, int(spans["batch"].max()))
        worker, from_s, until_s, joules = _by_worker(spans, "from_s", "until_s", "joules")
        np.add.at(drawn_j, worker, joules)
        follows = worker[1:] == worker[:-1]
        before_s = np.append(busy_until_s[worker[:1]], np.where(follows, until_s[:-1], busy_until_s[worker[1:]]))
        bad = _first(from_s < before_s - slack_s)
        if bad is not None:
            when = f"until {before_s[bad]} s, and something else from {from_s[bad]} s"
            raise run.policy_error(
                "executor", f"was busy on worker {worker[bad]} {when}; a GPU does one thing at a time"
            )
        busy_until_s[worker] = until_s  # of each worker the last
    return drawn_j, np.array(covers).reshape(-1, 2), greatest


def _by_worker(spans: NDArray[Any], *names: str) -> list[NDArray[Any]]:
    """Return the worker and the columns ``names`` of ``spans``, in the order of workers and then as they are."""
    spans = spans.take(_order_by_worker(spans["worker"]))  # record by record, since column by column takes longer
    return [np.ascontiguousarray(spans[name]) for name in ("worker", *names)]


def _check_held(
    run: FinishedRun,
    columns: RequestColumns,
    on_gpu: Flags,
    spans: NDArray[Any],
    slack_s: float,
    held_s: float,
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.float64]]:
    """The GPUs of the requests ``on_gpu`` were busy with their models from start to end, by ``spans``.

    Returns:
        These requests by worker, which of them is the last of its worker, and the ends of their images.
    """
    worker, rows = columns["worker"], np.flatnonzero(on_gpu)
    rows = rows[_order_by_worker(worker[rows])]
    span_worker, from_s, until_s, held = _by_worker(spans, "from_s", "until_s", "model")
    number, start_s, finish_s = (columns[name][rows] for name in ("worker", "start_s", "finish_s"))
    if HANDLING in columns:
        finish_s = finish_s - columns[HANDLING][rows]  # its image, which is the end on its GPU
    begins = np.ones(len(span_worker), bool)  # a busy period, after a gap
    begins[1:] = (span_worker[1:] != span_worker[:-1]) | (from_s[1:] > until_s[:-1] + slack_s + held_s)
    first = np.flatnonzero(begins)
    ends_s = until_s[np.append(first[1:], len(span_worker))[: len(first)] - 1]
    busy_s, last, latest = np.full(len(rows), -np.inf), np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
    workers = np.flatnonzero(np.bincount(number))
    sorted_workers = (span_worker, span_worker[first], number)
    for work, periods, asked in zip(*(_slices(column, workers) for column in sorted_workers), strict=True):
        latest[asked.start + finish_s[asked].argmax()] = True
        if work.start < work.stop:
            at_end = work.start + np.searchsorted(until_s[work], finish_s[asked] - slack_s)
            last[asked] = np.minimum(at_end, work.stop - 1)  # a held GPU may be idle at the end
            period = np.searchsorted(from_s[first[periods]], start_s[asked] + slack_s, "right") - 1
            busy_s[asked] = np.append(ends_s[periods], -np.inf)[period]
    bad = _first(busy_s < finish_s - slack_s - held_s)
    if bad is not None:
        where = f"in row {columns.first + rows[bad]} on worker {number[bad]} from {start_s[bad]} s to {finish_s[bad]} s"
        why = "the GPU was not busy all that time; record every second (Cluster.record_busy)"
        raise run.policy_error("executor", f"completed the request {where}, and {why}")
    codes = np.full(len(run.record.usage_log.models) + 1, MISSING)
    for name, code in run.record.usage_log.models.items():
        codes[code] = columns.model_code.get(name, MISSING)
    planned, resident = columns["model"][rows], codes[held[last]]
    bad = _first(resident != planned)
    if bad is not None:
        names = [*columns.model_code, "another model"]
        raise SimulationError(
            f"{part_names(run.parts, 'executor', 'scheduler')} completed the request in row "
            f"{columns.first + rows[bad]}, planned for {names[planned[bad]]}, on worker {number[bad]}, "
            f"which held {names[resident[bad]]}"
        )
    return rows, latest, finish_s


def _check_attempts(run: FinishedRun, log: AttemptLog, columns: RequestColumns, on_gpu: Flags) -> None:
    """Invariants 5 and 7: no GPU works twice at one instant, and the attempts of a request add up to it."""
    counts = np.array([len(gpus) for gpus in log.gpus], np.int64)
    attempt = np.repeat(np.arange(len(log)), counts)
    gpu = np.array([gpu for gpus in log.gpus for gpu in gpus], np.int64)
    from_s, until_s, row = np.asarray(log.from_s), np.asarray(log.until_s), np.asarray(log.row, np.int64)
    order = np.lexsort((until_s[attempt], from_s[attempt], gpu))
    sorted_gpu, begins_s, ends_s = gpu[order], from_s[attempt[order]], until_s[attempt[order]]
    slack_s = GAP_S + 4 * np.spacing(ends_s.max(initial=0.0))
    batch = np.asarray(log.batch)[attempt[order]]
    # Requests of one batch share the GPUs from begin to end; any other overlap is an error.
    together = (
        (batch[1:] > 1) & (batch[1:] == batch[:-1]) & (begins_s[1:] == begins_s[:-1]) & (ends_s[1:] == ends_s[:-1])
    )
    before_s = ends_s[:-1]
    if log.shares:
        # Or they join and leave it: then no other attempt begins before the last of them ends.
        joins = np.isin(attempt[order], list(log.shares))
        together |= joins[1:] & joins[:-1]
        before_s = np.where(joins[1:], before_s, _latest(np.where(joins, ends_s, -np.inf), sorted_gpu, before_s))
    bad = _first((sorted_gpu[1:] == sorted_gpu[:-1]) & ~together & (begins_s[1:] < before_s - slack_s))
    if bad is not None:
        first, second = (row[attempt[order[index]]] for index in (bad, bad + 1))
        raise run.policy_error(
            "executor",
            f"ran the requests in rows {first} and {second} on GPU {sorted_gpu[bad]} at the same time, "
            f"{begins_s[bad + 1]} s",
        )
    place = row - columns.first
    busy_s = np.bincount(place, until_s - from_s, len(on_gpu))
    parts_s = columns["denoise_s"] + columns["decode_s"]
    moved_s = np.bincount(place, np.where(np.asarray(log.stage) == MISSING, until_s - from_s, 0.0), len(on_gpu))
    bad = _first(on_gpu & (np.abs(busy_s - moved_s - parts_s) > GAP_S + SHARE * parts_s))
    if bad is not None:
        raise run.policy_error(
            "executor",
            f"ran the request in row {columns.first + bad} for {busy_s[bad]} s in its attempts, and recorded "
            f"{parts_s[bad]} s of stages",
        )
    component, stage = np.asarray(log.component), np.asarray(log.stage)
    denoises = (stage != MISSING) & ((component == WHOLE) | (component == DENOISER))
    # A request has the steps of its last plan: earlier tries of a cascade ran others.
    ran = np.bincount(place, np.where(denoises & log.of_last_try(), np.asarray(log.steps), 0), len(on_gpu))
    steps = columns["steps"] - columns["skipped"]
    bad = _first(on_gpu & (ran != steps))
    if bad is not None:
        raise run.policy_error(
            "executor", f"ran {ran[bad]:g} of the {steps[bad]} steps of the request in row {columns.first + bad}"
        )
    bad = _first(denoises & (until_s > from_s) & ~(np.asarray(log.estimate_s) > 0))
    if bad is not None:
        found = f"believed that steps of the request in row {row[bad]} take {log.estimate_s[bad]} s"
        raise run.policy_error("scheduler", f"{found}; an estimate is positive")


def _latest(ends_s: NDArray[np.float64], gpu: NDArray[np.int64], min_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the latest of the ends up to each but the last, of one GPU, and at least ``min_s``; GPUs ascend."""
    latest_s = ends_s.copy()
    for one in np.unique(gpu):
        latest_s[gpu == one] = np.maximum.accumulate(ends_s[gpu == one])
    return np.maximum(latest_s[:-1], min_s)


def _check_passes(run: FinishedRun, log: AttemptLog, columns: RequestColumns, on_gpu: Flags) -> None:
    """The attempts of a request follow each other between its start and its end, the last on its model."""
    place = np.asarray(log.row, np.int64) - columns.first
    from_s, until_s, slack_s = np.asarray(log.from_s), np.asarray(log.until_s), GAP_S
    order = np.lexsort((from_s, place))
    follows = place[order][1:] == place[order][:-1]
    early = follows & (from_s[order][1:] < until_s[order][:-1] - slack_s)
    outside = (from_s < columns["start_s"][place] - slack_s) | (until_s > columns["finish_s"][place] + slack_s)
    counts = np.bincount(place, minlength=len(on_gpu))
    bad = _first(on_gpu & (counts == 0))
    if bad is None and early.any():
        bad = int(place[order][1:][early][0])
    if bad is None and (outside & on_gpu[place]).any():
        bad = int(place[outside & on_gpu[place]][0])
    if bad is not None:
        raise run.policy_error(
            "executor", f"ran the request in row {columns.first + bad} in attempts that do not follow each other"
        )


def _order_by_worker(numbers: NDArray[np.int32]) -> NDArray[np.intp]:
    # Stable either way: spans of a worker keep the order of recording, which the checks rely on.
    small = numbers.max(initial=0) < 2**16  # NumPy sorts uint16 by radix
    return np.argsort(numbers.astype(np.uint16) if small else numbers, kind="stable")


def _slices(ordered: NDArray[np.int32], numbers: NDArray[np.intp]) -> list[slice]:
    """Return the slice of ``ordered`` that holds each of ``numbers``."""
    low, high = (np.searchsorted(ordered, numbers, side).tolist() for side in ("left", "right"))
    return [slice(*bounds) for bounds in zip(low, high, strict=True)]


def _check_energy(run: FinishedRun) -> None:
    """Invariant 8: the energy of every span of the usage log is finite and not negative."""
    if any(gpu.active_w is None for gpu in run.cluster.kinds):
        return
    for spans in run.record.usage_log.blocks():
        bad = _first(~((spans["joules"] >= 0) & (spans["joules"] < np.inf)))
        if bad is not None:
            span = spans[bad]
            spent = f"{span['joules']} J on worker {span['worker']} from {span['from_s']} s to {span['until_s']} s"
            raise run.policy_error("executor", f"spends {spent}; expected 0 or more, and finite")


def _check_rentals(run: FinishedRun) -> None:
    """Nothing runs on a GPU that is off or starting, so every busy second is paid."""
    log = run.record.usage_log
    if not log.rentals:
        return
    spans, rentals = log.spans(), sorted(log.rentals)
    order = _order_by_worker(spans["worker"])
    worker, from_s, until_s = (np.ascontiguousarray(spans[name])[order] for name in ("worker", "from_s", "until_s"))
    for gpu, away in groupby(rentals, key=lambda rental: rental[0]):
        of_gpu = slice(*np.searchsorted(worker, (gpu, gpu + 1)))
        for _, rental, away_s, back_s in away:
            later = of_gpu.start + np.searchsorted(until_s[of_gpu], away_s + GAP_S)  # the first span that ends later
            if later < of_gpu.stop and from_s[later] < back_s - GAP_S:
                when = (
                    f"from {from_s[later]} s to {until_s[later]} s, and it was {rental} from {away_s} s to {back_s} s"
                )
                raise run.policy_error("executor", f"ran something on GPU {gpu} {when}")


def _check_littles_law(run: FinishedRun, stays_s: float, last_s: float) -> None:
    """Invariant 4, Little's law: the number in the system integrates to the sum of the requests' times.

    Args:
        stays_s, last_s: the sum of these times, and the last end.
    """
    # The two sums add the same instants in different orders; their error grows with number and size.
    rounding = 1e-6 + 1e-15 * len(run.record.request_columns) * last_s
    if not np.isclose(run.area_s, stays_s, rtol=1e-6, atol=rounding):
        raise SimulationError(
            f"Little's law fails: the number in the system integrates to {run.area_s} request-seconds, the requests' "
            f"times sum to {stays_s}; nobody changed an arrival, so the engine's own count is wrong"
        )
