"""Static batching: requests admitted together run as one batch, and no request joins it on the way."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from mezzotint.backends.base import Backend, Cost, Work, WorkFailed, total_j
from mezzotint.settings.ranges import Count
from mezzotint.sim.cluster.loads import record_loads
from mezzotint.sim.core.clock import COMPLETION, DISPATCH, Entry
from mezzotint.sim.core.request import FAILED, Request
from mezzotint.sim.execution.loading import cancel_due, check_memory, ensure, record_interrupted, seconds
from mezzotint.sim.metrics.recorder import BATCH_MEAN, STEP_SHARE
from mezzotint.sim.protocols import Executor, Loads, RequestColumn, Run, Worker

RunningBatch = tuple[Worker, list[Request], Loads, float, float | None, str | None]
"""A batch: worker, requests, loads, start in seconds, joules, and the reason if it fails after its loads."""


@dataclass(slots=True)
class StaticBatch(Executor):
    """Run the requests given to a worker at one instant as one batch, from text encoding to decoding.

    All images are complete at the end of the batch. A step is shared by the requests that have steps left. The
    scheduler decides which requests wait for each other (``scheduler=dynamic-batching``).

    Args:
        max_batch: maximum number of images in a batch.
    """

    max_batch: Count = 8
    _run: Run = field(init=False, repr=False)
    _forming: dict[int, tuple[list[Request], Loads]] = field(init=False, default_factory=dict, repr=False)
    """By worker id: the batch that it starts at this instant, and the loads before it."""
    _refused: dict[int, deque[Entry]] = field(init=False, default_factory=dict, repr=False)
    _prepares: bool = field(init=False, repr=False)
    """True if a request may load add-ons, or be the first of its shape."""
    _share: RequestColumn = field(init=False, repr=False)
    _batch: RequestColumn = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        self._share, self._batch = run.add_column(STEP_SHARE, public=False), run.add_column(BATCH_MEAN)
        self._prepares = run.workload.addons is not None or run.cluster.compiles

    def accept(self, worker: Worker, request: Request) -> None:
        run = self._run
        batch, loads = self._forming.setdefault(worker.id, ([], []))
        if worker.model != request.model or self._prepares:
            try:
                ensure(run, worker, request, loads, batch)
            except WorkFailed as failure:
                request.start_s = run.clock._now
                # Not within accept, which the engine calls from its own loop over the worker's capacity.
                refused = run.clock.at(run.clock._now, DISPATCH, self._fail_refused, (worker, request, str(failure)))
                self._refused.setdefault(worker.id, deque()).append(refused)
                return
        if not batch:
            # The batch closes after all arrivals of the instant, once the scheduler has handed over what it has
            # (test_batch_takes_the_service_time_of_its_workers_kind).
            worker.due = run.clock.at(run.clock._now, DISPATCH, self._start, worker)
        batch.append(request)

    def _fail_refused(self, refused: tuple[Worker, Request, str]) -> None:
        worker, request, reason = refused
        self._refused[worker.id].popleft()
        self._run.end(request, FAILED, reason)
        self._run.cluster.release(worker)

    def _start(self, worker: Worker) -> None:
        run = self._run
        batch, loads = self._forming.pop(worker.id)
        load_s = seconds(loads)
        # Nobody joins on the way (test_static_batch_runs_as_one_and_admits_no_later_request).
        run.cluster.close(worker)
        now_s = run.clock._now
        works = [run.work(request) for request in batch]
        try:
            check_memory(run.cluster, worker, works)
            denoise, other = _costs(worker.backend, works)
        except WorkFailed as failure:
            running: RunningBatch = (worker, batch, loads, now_s, None, str(failure))
            worker.due = run.clock.at(now_s + load_s, COMPLETION, self._complete, running)
            return
        # Fetches go side by side, on no GPU
        # (test_batch_draws_device_power_during_fetch_and_measured_power_during_steps).
        fetch_s = max(request.plan.fetch_s for request in batch)
        ready_s = load_s + fetch_s
        busy_s = ready_s + sum(cost.seconds for cost, _ in denoise) + other.seconds
        joules = total_j([*(cost for cost, _ in denoise), other])
        if joules is not None and fetch_s:
            joules += worker.gpu.energy_j(fetch_s)
        for request, work in zip(batch, works, strict=True):
            request.start_s, request.load_s = now_s, load_s
            stepped = [(cost, stepping) for cost, stepping in denoise if work in stepping]
            request.denoise_s = sum(cost.seconds for cost, _ in stepped)
            self._share[request.row] = sum(cost.seconds / len(stepping) for cost, stepping in stepped)
            steps_s = request.denoise_s or 1.0
            self._batch[request.row] = (
                sum(cost.seconds * len(stepping) for cost, stepping in stepped) / steps_s if stepped else len(batch)
            )
            request.decode_s = other.seconds
            run.keep_artifact(request, work)
        running = (worker, batch, loads, now_s, joules, None)
        worker.due = run.clock.at(now_s + busy_s, COMPLETION, self._complete, running)

    def _complete(self, running: RunningBatch) -> None:
        worker, batch, loads, from_s, joules, reason = running
        run = self._run
        from_s, drawn = record_loads(run.cluster, worker, loads, from_s, run.clock._now)
        if reason is None:
            drawn += run.cluster.record_busy(worker, from_s, run.clock._now, "serve", joules, len(batch))
            for request in batch:
                request.energy_j = drawn / len(batch)
            if run.handling.holds_gpus:
                # The GPU idles until all are answered, and its worker stays closed.
                answered_s = run.clock._now + max(map(run.handling.answer_s, batch))
                worker.due = run.clock.at(answered_s, COMPLETION, self._end, (worker, batch, None))
                return
        self._end((worker, batch, reason))

    def _end(self, ended: tuple[Worker, list[Request], str | None]) -> None:
        worker, batch, reason = ended
        run = self._run
        run.cluster.reopen(worker)
        for request in batch:
            if reason is None:
                run.end(request)
            else:
                run.end(request, FAILED, reason)
        run.cluster.release(worker, len(batch))

    def abort(self, worker: Worker, now_s: float) -> list[Request]:
        run = self._run
        forming, _ = self._forming.pop(worker.id, ([], []))  # a batch formed at this very instant has not begun
        refused = self._refused.pop(worker.id, ())
        for entry in refused:
            run.clock.cancel(entry)
        cancelled = cancel_due(run, worker)
        lost = forming + [entry[4][1] for entry in refused]
        # With ``forming`` the call is _start, whose batch has begun nothing
        # (test_request_assigned_at_the_instant_of_failure_has_not_started).
        if cancelled is not None and not forming:
            until_s, (_, batch, *rest) = cancelled
            if len(rest) > 1:  # else the images are made, and the answers are lost
                loads, from_s, joules, _ = rest
                record_interrupted(run, worker, from_s, until_s, loads, joules)
            lost += batch
        return lost


def _costs(backend: Backend, works: Sequence[Work]) -> tuple[list[tuple[Cost, list[Work]]], Cost]:
    """Return the cost of each stretch of steps with the works it steps, and the cost of encoding and decoding."""
    begin = backend.begin(works)
    stretches: list[tuple[Cost, list[Work]]] = []
    # The batch shrinks where a request has run its last step; between two such stops a step costs the same.
    stops = sorted({work.steps - work.skipped for work in works} - {0})
    for start, stop in zip([0, *stops], stops, strict=False):
        stepping, count = [work for work in works if work.steps - work.skipped >= stop], stop - start
        stretches.append((backend.steps(stepping, count), stepping))
    end = backend.end(works)
    return stretches, begin.plus(end)
