"""The whole-batch executor: requests that set out together run as one batch, and none joins on the way."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from backends.base import Cost, Work, WorkFailed, total_j
from conf.ranges import Count
from sim.addons.assets import addons
from sim.core.clock import COMPLETION, DISPATCH, Entry
from sim.core.culprit import checked_cost
from sim.core.errors import SimulationError
from sim.core.request import FAILED, Request
from sim.execution.loading import DoesNotFit, cancel_due, ensure, joules_of, record_interrupted, record_loads, seconds
from sim.metrics.recorder import BATCH_MEAN, STEP_SHARE
from sim.protocols import Executor, Loads, RequestColumn, Run, Worker

Ran = tuple[Worker, list[Request], Loads, float, float | None, str | None]
"""A batch: its worker, requests and loads, when it began, its joules, and why it fails when its loads are there."""


@dataclass(slots=True)
class StaticBatch(Executor):
    """What a worker was given at one instant runs as one batch, from text encoding to the images, which are all out
    at its end; its steps are shared by those that still have some. Who waits for whom is the scheduler's (Batching).

    Args:
        max_batch: images in a batch at most.
    """

    max_batch: Count = 8
    _run: Run = field(init=False, repr=False)
    _formed: dict[int, list[Request]] = field(init=False, default_factory=dict, repr=False)
    _loads: dict[int, Loads] = field(init=False, default_factory=dict, repr=False)
    _refused: dict[int, deque[Entry]] = field(init=False, default_factory=dict, repr=False)
    _addons: bool = field(init=False, repr=False)
    _share: RequestColumn = field(init=False, repr=False)
    _batch: RequestColumn = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        self._share, self._batch = run.add_column(STEP_SHARE, public=False), run.add_column(BATCH_MEAN)
        self._addons = run.workload.addons is not None

    def accept(self, worker: Worker, request: Request) -> None:
        run = self._run
        formed = self._formed.setdefault(worker.id, [])
        if worker.model != request.model or self._addons:
            try:
                self._loads.setdefault(worker.id, []).extend(ensure(run, worker, request, formed))
            except DoesNotFit as failure:
                self._loads[worker.id] += failure.loads
                request.start_s = run.clock._now
                refused = run.clock.at(run.clock._now, DISPATCH, self._refuse, (worker, request, str(failure)))
                self._refused.setdefault(worker.id, deque()).append(refused)
                return
        if not formed:
            if len(worker.gpus) > 1:
                raise SimulationError(
                    f"{worker} was given a batch, and nothing says how fast several GPUs run one; a group serves with "
                    "executor=sequential"
                )
            worker.due = run.clock.at(run.clock._now, DISPATCH, self._start, worker)
        formed.append(request)

    def _refuse(self, refused: tuple[Worker, Request, str]) -> None:
        worker, request, reason = refused
        self._refused[worker.id].popleft()
        self._run.end(request, FAILED, reason)
        self._run.cluster.release(worker)

    def _start(self, worker: Worker) -> None:
        run = self._run
        batch = self._formed.pop(worker.id)
        loads = self._loads.pop(worker.id, [])
        load_s = seconds(loads)
        run.cluster.close(worker)
        now_s = run.clock._now
        works = [run.work(request) for request in batch]
        try:
            runs = [addons(work.model, work.controlnets, work.loras) for work in works]
            run.cluster.check_memory(worker, run.backend.peak_bytes(works), runs)
            denoise, other = _costs(run, works)
        except WorkFailed as failure:
            ran: Ran = (worker, batch, loads, now_s, None, str(failure))
            worker.due = run.clock.at(now_s + load_s, COMPLETION, self._done, ran)
            return
        fetch_s = max(request.fetch_s for request in batch)
        ready_s = load_s + fetch_s
        busy_s = ready_s + sum(cost.seconds for cost, _ in denoise) + other.seconds
        joules = total_j([*(cost for cost, _ in denoise), other])
        if joules is not None and fetch_s:
            joules += run.cluster.gpu.energy_j(fetch_s)
        for request, work in zip(batch, works, strict=True):
            request.start_s, request.load_s = now_s, load_s
            mine = [(cost, on) for cost, on in denoise if work in on]
            request.denoise_s = sum(cost.seconds for cost, _ in mine)
            self._share[request.row] = sum(cost.seconds / len(on) for cost, on in mine)
            steps_s = request.denoise_s or 1.0
            self._batch[request.row] = (
                sum(cost.seconds * len(on) for cost, on in mine) / steps_s if mine else len(batch)
            )
            request.decode_s = other.seconds
            run.keep_artifact(request, work)
        ran = (worker, batch, loads, now_s, joules, None)
        worker.due = run.clock.at(now_s + busy_s, COMPLETION, self._done, ran)

    def _done(self, ran: Ran) -> None:
        worker, batch, loads, from_s, joules, reason = ran
        run = self._run
        from_s, drawn = record_loads(run, worker, loads, from_s, run.clock._now)
        if reason is None:
            drawn += run.cluster.record_busy(worker, from_s, run.clock._now, "serve", joules, len(batch))
        run.cluster.reopen(worker)
        for request in batch:
            if reason is None:
                request.energy_j = drawn / len(batch)
                run.end(request)
            else:
                run.end(request, FAILED, reason)
        run.cluster.release(worker, len(batch))

    def abort(self, worker: Worker, now_s: float) -> list[Request]:
        """A batch that was formed at this very instant has not begun."""
        run = self._run
        formed = self._formed.pop(worker.id, [])
        self._loads.pop(worker.id, None)
        refused = self._refused.pop(worker.id, ())
        for entry in refused:
            run.clock.cancel(entry)
        taken = cancel_due(run, worker)
        lost = formed + [entry[4][1] for entry in refused]
        if taken is not None and not formed:
            until_s, (_, batch, loads, from_s, joules, _) = taken
            record_interrupted(run, worker, from_s, until_s, None if joules is None else joules + joules_of(run, loads))
            lost += batch
        return lost


def _costs(run: Run, works: Sequence[Work]) -> tuple[list[tuple[Cost, list[Work]]], Cost]:
    """What each stretch of steps costs and whom it serves, and what all else does."""
    backend = run.backend
    begin = checked_cost(backend.begin(works), backend, "begin")
    stretches: list[tuple[Cost, list[Work]]] = []
    stops = sorted({work.steps - work.skipped for work in works} - {0})
    for at, stop in zip([0, *stops], stops, strict=False):
        on, count = [work for work in works if work.steps - work.skipped >= stop], stop - at
        stretches.append((checked_cost(backend.steps(on, count), backend, "steps"), on))
    end = checked_cost(backend.end(works), backend, "end")
    return stretches, begin.plus(end)
