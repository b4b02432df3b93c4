"""MoDM on several nodes, which share no queue (its multi-node artifact): per-worker queues, filled in turn."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle

from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Scheduler, Worker
from mezzotint.sim.scheduling.hit_miss import refine_on

Queue = deque[Request]


@dataclass(slots=True)
class HitMissPerWorker(Scheduler):
    """Misses go in turn to the workers of ``miss_role``, hits to the others; a worker serves its misses first.

    If all workers are of ``miss_role``, hits go to them in turn. A worker that changes from misses to hits first serves
    the misses in its queue. One that changes from hits to misses hands its hits to the workers that still take hits.
    Workers do not steal from each other's queues.

    Args:
        miss_role: role of the workers that take misses.
    """

    miss_role: str = "large"
    _run: Run = field(init=False, repr=False)
    _misses: dict[Worker, Queue] = field(init=False, default_factory=dict, repr=False)
    _hits: dict[Worker, Queue] = field(init=False, default_factory=dict, repr=False)
    _unassigned: Queue = field(init=False, default_factory=deque, repr=False)
    _for_misses: Iterator[Worker] = field(init=False, repr=False)
    _for_hits: Iterator[Worker] = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        self._restart_turns()

    def offer(self, request: Request, now_s: float) -> Worker | None:
        worker = next(self._for_misses if request.plan.source == MISSING else self._for_hits, None)
        if worker is None:
            self._unassigned.append(request)
        elif worker.has_capacity and self._has_role_model(worker) and not self._queue(worker, request):
            refine_on(self._run, worker.role, request)
            return worker
        else:
            self._queue(worker, request).append(request)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        queue = self._misses.get(worker) or (self._hits.get(worker) if self._has_role_model(worker) else None)
        if not queue:
            return None
        request = queue.popleft()
        refine_on(self._run, worker.role, request)
        return request

    def has_backlog(self, worker: Worker) -> bool:
        return bool(self._misses.get(worker))

    def worker_changed(self, worker: Worker, now_s: float) -> None:
        left = self._unassigned
        self._unassigned = deque()
        self._restart_turns()
        if worker.role == self.miss_role:
            if self._for_hits is not self._for_misses:
                left.extend(self._hits.pop(worker, ()))
        elif worker.model != self._run.models[self.miss_role].name or not (worker.open or worker.running):
            # The miss model is no longer there, or never came. A worker that is closed while it runs keeps its queue.
            left.extend(self._misses.pop(worker, ()))
        for request in left:
            taker = self.offer(request, now_s)
            if taker is not None:
                self._queue(taker, request).append(request)
                self._run.pull(taker)

    def _restart_turns(self) -> None:
        """Restart both turns: misses from the first worker up, hits from the last one down."""
        large = self._run.cluster.workers_of(self.miss_role)
        small = [worker for worker in reversed(self._run.cluster.workers) if worker.role != self.miss_role]
        self._for_misses = cycle(large)
        self._for_hits = cycle(small) if small else self._for_misses

    def _queue(self, worker: Worker, request: Request) -> Queue:
        return (self._misses if request.plan.source == MISSING else self._hits).setdefault(worker, deque())

    def _has_role_model(self, worker: Worker) -> bool:
        return worker.model == self._run.models[worker.role].name

    def __len__(self) -> int:
        return len(self._unassigned) + sum(map(len, (*self._misses.values(), *self._hits.values())))
