"""The laws that every finished run is held against, all requests at a time. An error names the part that broke one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.core.culprit import part_name, part_names
from sim.core.errors import SimulationError
from sim.core.model import Model
from sim.core.request import COMPLETED, MISSING
from sim.core.workload import Workload
from sim.metrics.recorder import BATCH_MEAN, STEP_SHARE, Record
from sim.metrics.request_columns import RequestColumns
from sim.protocols import Cluster

GAP_S = 1e-6
"""Seconds that sums of times may be apart by rounding."""

SHARE = 1e-6
"""The same, as a share."""

MOST = 2**20
"""More than the steps of any request."""

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is over.

    Attributes:
        record: what was written.
        parts: the parts by kind, to be named in errors.
        cluster, workload, models: of the run; ``last_order`` of each role a worker left: who ordered it, and when.
        area_s: the integral of the number in the system over time.
        arrival_s: of each request, as the engine had it come.
        plans: of each, K times MOST plus of_steps; where K is 0, minus the steps that are skipped all the same.
    """

    record: Record
    parts: Mapping[str, object]
    cluster: Cluster
    last_order: Mapping[str, tuple[str, float]]
    workload: Workload
    models: Mapping[str, Model]
    area_s: float
    arrival_s: ArrayLike
    plans: ArrayLike

    def policy_error(self, kind: str, what: str) -> SimulationError:
        """An error that names the part of ``kind``."""
        return SimulationError(f"{part_name(self.parts, kind)} {what}")

    def changed(self, name: str, row: int, planned: Any, found: Any) -> SimulationError:
        """An error that names those who may have changed what was planned."""
        who = part_names(self.parts, "scheduler", "executor", *(kind for kind in self.parts if "controller" in kind))
        return SimulationError(
            f"{who} changed {name} of the request in row {row} from {planned} to {found}; the front end plans a "
            "request, and after it only Run.assign does"
        )


def check(run: Finished) -> None:
    """Raise SimulationError where a law does not hold."""
    facts = run.record.request_columns
    if not len(facts):
        return
    served = facts["outcome"] == COMPLETED
    on_gpu = served & (facts["model"] != MISSING)
    _plans(run, facts, on_gpu)
    _values(run, facts, served, on_gpu)
    _times(run, facts, served, on_gpu)
    _energy(run)
    _busy(run, facts, on_gpu)
    _little(run, facts)


def incomplete(run: Finished, arrived: int, waiting: int, failures: int) -> SimulationError:
    """The error of a run in which not every request ended, and nothing is left to happen."""
    ended = int(np.count_nonzero(run.record.request_columns["outcome"]))
    aboard = {worker.id: worker.running for worker in run.cluster.workers if worker.running}
    roles = {worker.role for worker in run.cluster.workers}
    emptied = [role for role in run.last_order if role in run.models and role not in roles]
    kept = arrived - ended
    if aboard:
        who = ", ".join(map(str, list(aboard)[:8])) + (", ..." if len(aboard) > 8 else "")
        held = f"{part_name(run.parts, 'executor')} holds {sum(aboard.values())} requests aboard the workers {who}"
        what = f"{held}, and nothing is left to happen; call Run.end and Cluster.release once for each request"
        if waiting == kept:
            what += ": all of those have ended, so Cluster.release was not called"
    elif emptied:
        who, at_s = run.last_order[emptied[0]]
        what = f"{who} ordered the last worker of role {emptied[0]!r} elsewhere at {at_s} s; leave one for what waits"
    elif waiting < kept:
        what = (
            f"{part_name(run.parts, 'scheduler')} dropped {kept - waiting} requests: it neither handed them over nor "
        )
        what += "keeps them; return each from offer or next, or end it (Run.end)"
    else:
        what = f"{part_name(run.parts, 'scheduler')} kept requests that no worker may run"
        if failures:
            what += f", or GPUs do not stay up for as long as one takes: they failed {failures} times"
            what += "; raise failures.mean_up_s, or look at failures.outages"
    rows = len(run.record.request_columns)
    return SimulationError(f"of {rows} requests {arrived} arrived and {ended} ended; {waiting} still wait: {what}")


def _first(wrong: Flags) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


def _plans(run: Finished, facts: RequestColumns, on_gpu: Flags) -> None:
    """What the front end planned of a request is so when it ends, and its steps were all run."""
    workload, every = run.workload, np.ones(len(on_gpu), bool)
    head = slice(facts.first, facts.first + len(facts))
    plans = np.asarray(run.plans)
    k, of_steps = np.divmod(np.maximum(plans, 0), MOST)
    planned: list[tuple[str, NDArray[Any], Flags]] = [
        ("arrival_s", np.asarray(run.arrival_s), every),
        ("k", k, every),
        ("skipped", np.where(k > 0, k * facts["steps"] // np.maximum(of_steps, 1), np.maximum(-plans, 0)), every),
    ]
    for name in ("width", "height", "steps"):
        if workload.use_model_shape:
            of = np.zeros(len(facts.model_code), np.int32)
            for model in run.models.values():
                of[facts.model_code[model.name]] = getattr(model, name)
            planned.append((name, of[facts["model"]], on_gpu))
        else:
            planned.append((name, np.asarray(getattr(workload, name))[head], every))
    for name, expected, where in planned:
        at = _first(where & (facts[name] != expected))
        if at is not None:
            raise run.changed(name, facts.first + at, expected[at], facts[name][at])
    for row, (intended, ran) in facts.replanned.items():
        raise run.changed("model", row, intended, ran)
    steps = facts["steps"] - facts["skipped"]
    at = _first(on_gpu & (facts["left"] != 0) & (facts["left"] != steps))
    if at is not None:
        left = f"{facts['left'][at]} of its {steps[at]} steps left"
        raise run.policy_error(
            "executor", f"completed the request in row {facts.first + at} with {left}; run all of them"
        )


def _values(run: Finished, facts: RequestColumns, served: Flags, on_gpu: Flags) -> None:
    """What was written of a request is finite and not negative; a score of quality may be."""
    shared = [name for name in (STEP_SHARE, BATCH_MEAN) if name in facts]
    written: list[tuple[str, Flags, Sequence[str]]] = [
        ("frontend", served, ["search_s", "fetch_s"]),
        ("executor", on_gpu, ["start_s", "load_s", "denoise_s", "decode_s", "energy_j", *shared]),
        ("backend", served, ["quality"]),
    ]
    unknown = {"quality", BATCH_MEAN}
    if run.cluster.gpu.active_w is None:
        unknown.add("energy_j")
    bounds = {BATCH_MEAN: 1 - SHARE, "quality": np.finfo(float).min}
    for kind, where, names in written:
        for name in names:
            values, least = facts[name], bounds.get(name, 0.0)
            sane = (values >= least) & (values < np.inf)
            if name in unknown:
                sane |= np.isnan(values)
            at = _first(where & ~sane)
            if at is not None:
                found = f"wrote {name} = {values[at]} of the request in row {facts.first + at}"
                raise run.policy_error(kind, f"{found}; expected {least:g} or more, and finite")


def _times(run: Finished, facts: RequestColumns, served: Flags, on_gpu: Flags) -> None:
    """A request begins after it came, and the times on its GPU fit between its start and its end."""
    start_s, finish_s, denoise_s = facts["start_s"], facts["finish_s"], facts["denoise_s"]
    at = _first(~(finish_s < np.inf))
    if at is not None:
        raise run.policy_error("executor", f"ended the request in row {facts.first + at} at {finish_s[at]} s")
    slack_s = GAP_S + 4 * np.spacing(finish_s)
    from_s = facts["arrival_s"] + facts["search_s"]
    at = _first(served & ~((start_s >= from_s - slack_s) & (start_s <= finish_s)))
    if at is not None:
        when = f"started at {start_s[at]} s; it could from {from_s[at]} s on, and ended at {finish_s[at]} s"
        raise run.policy_error(
            "executor", f"says that the request in row {facts.first + at} {when}: set request.start_s"
        )
    took_s, parts_s = finish_s - start_s, facts["load_s"] + facts["fetch_s"] + denoise_s + facts["decode_s"]
    at = _first(on_gpu & (parts_s > took_s * (1 + SHARE) + slack_s))
    if at is not None:
        spent = f"for {parts_s[at]} s in the {took_s[at]} s from its start to its end"
        one = f"the request in row {facts.first + at}"
        raise run.policy_error("executor", f"says that {one} loaded, fetched, denoised and decoded {spent}")
    head = slice(facts.first, facts.first + len(facts))
    stepped = on_gpu & (facts["steps"] > facts["skipped"]) & (run.workload.standalone.denoise_s[head] > 0)
    shared = facts[STEP_SHARE if STEP_SHARE in facts else "denoise_s"]
    at = _first(stepped & ~((denoise_s > 0) & (shared > 0)))
    if at is not None:
        steps = facts["steps"][at] - facts["skipped"][at]
        raise run.policy_error(
            "executor",
            f"ran {steps} steps of the request in row {facts.first + at} in {denoise_s[at]} s (its share of them: "
            f"{shared[at]} s), from {start_s[at]} s to {finish_s[at]} s; a step takes time",
        )


def _busy(run: Finished, facts: RequestColumns, on_gpu: Flags) -> None:
    """A GPU was busy, with the model of the request, from its start to its end."""
    spans, worker = run.record.usage_log.spans(), facts["worker"]
    at = _first(on_gpu & ((worker < 0) | (worker >= len(run.cluster.gpu_counts()))))
    if at is not None:
        raise SimulationError(
            f"{part_names(run.parts, 'executor', 'scheduler')} completed the request in row {facts.first + at} on the "
            f"worker {worker[at]}, which is none of the cluster's"
        )
    spent, rows = _by_worker(spans["worker"]), np.flatnonzero(on_gpu)
    rows = rows[_by_worker(worker[rows])]
    of, from_s, until_s, joules, held = (
        np.ascontiguousarray(spans[name])[spent] for name in ("worker", "from_s", "until_s", "joules", "model")
    )
    number, start_s, finish_s = (facts[name][rows] for name in ("worker", "start_s", "finish_s"))
    slack_s = GAP_S + 4 * np.spacing(finish_s.max(initial=0.0))
    begins = np.ones(len(of), bool)  # a busy period, after a gap
    begins[1:] = (of[1:] != of[:-1]) | (from_s[1:] > until_s[:-1] + slack_s)
    first = np.flatnonzero(begins)
    ends_s = until_s[np.append(first[1:], len(of))[: len(first)] - 1]
    busy_s, last, latest = np.full(len(rows), -np.inf), np.zeros(len(rows), np.int64), np.zeros(len(rows), bool)
    there = np.flatnonzero(np.bincount(number))
    for its, their, asked in zip(*(_slices(column, there) for column in (of, of[first], number)), strict=True):
        latest[asked.start + finish_s[asked].argmax()] = True
        if its.start < its.stop:
            last[asked] = its.start + np.searchsorted(until_s[its], finish_s[asked] - slack_s)
            period = np.searchsorted(from_s[first[their]], start_s[asked] + slack_s, "right") - 1
            busy_s[asked] = np.append(ends_s[their], -np.inf)[period]
    at = _first(busy_s < finish_s - slack_s)
    if at is not None:
        told = f"in row {facts.first + rows[at]} on worker {number[at]} from {start_s[at]} s to {finish_s[at]} s"
        why = "the GPU was not busy all that time; record every second (Cluster.record_busy)"
        raise run.policy_error("executor", f"completed the request {told}, and {why}")
    codes = np.full(len(run.record.usage_log.models) + 1, MISSING)
    for name, code in run.record.usage_log.models.items():
        codes[code] = facts.model_code.get(name, MISSING)
    planned, resident = facts["model"][rows], codes[held[last]]
    at = _first(resident != planned)
    if at is not None:
        names = [*facts.model_code, "another model"]
        raise SimulationError(
            f"{part_names(run.parts, 'executor', 'scheduler')} completed the request in row {facts.first + rows[at]}, "
            f"planned for {names[planned[at]]}, on worker {number[at]}, which held {names[resident[at]]}"
        )
    # What follows the last image of a worker may outlive the run.
    shares_j = np.bincount(number, np.where(latest, 0.0, facts["energy_j"][rows]), len(run.cluster.gpu_counts()))
    drawn_j = np.bincount(of, joules, len(shares_j))
    at = _first(shares_j > drawn_j * (1 + SHARE) + SHARE)
    if at is not None:
        told = f"energy_j of {shares_j[at]} J in the requests of worker {at}, and its GPUs drew {drawn_j[at]} J"
        raise run.policy_error("executor", f"wrote {told}")


def _by_worker(numbers: NDArray[np.int32]) -> NDArray[np.intp]:
    small = numbers.max(initial=0) < 2**16  # which NumPy sorts by radix
    return np.argsort(numbers.astype(np.uint16) if small else numbers, kind="stable")


def _slices(ordered: NDArray[np.int32], numbers: NDArray[np.intp]) -> list[slice]:
    """Where each of ``numbers`` stands in ``ordered``."""
    low, high = (np.searchsorted(ordered, numbers, side).tolist() for side in ("left", "right"))
    return [slice(*each) for each in zip(low, high, strict=True)]


def _energy(run: Finished) -> None:
    """The joules of the GPUs are finite and not negative."""
    if run.cluster.gpu.active_w is None:
        return
    spans = run.record.usage_log.spans()
    at = _first(~((spans["joules"] >= 0) & (spans["joules"] < np.inf)))
    if at is not None:
        span = spans[at]
        told = f"{span['joules']} J on worker {span['worker']} from {span['from_s']} s to {span['until_s']} s"
        raise run.policy_error("executor", f"spends {told}; expected 0 or more, and finite")


def _little(run: Finished, facts: RequestColumns) -> None:
    """Little's law: the number in the system integrates to the sum of the requests' times."""
    stays_s = float((facts["finish_s"] - facts["arrival_s"]).sum())
    rounding = 1e-6 + 1e-15 * len(facts) * float(facts["finish_s"].max())
    if not np.isclose(run.area_s, stays_s, rtol=1e-6, atol=rounding):
        raise SimulationError(
            f"Little's law fails: the number in the system integrates to {run.area_s} request-seconds, the requests' "
            f"times sum to {stays_s}; nobody changed an arrival, so the engine's own count is wrong"
        )
