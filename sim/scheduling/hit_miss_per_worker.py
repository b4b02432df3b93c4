"""A queue at every worker, filled in turn: MoDM on several nodes, which share no queue (its multi-node artifact)."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle

from sim.core.request import MISSING, Request
from sim.protocols import Run, Scheduler, Worker

Queue = deque[Request]


@dataclass(slots=True)
class HitMissPerWorker(Scheduler):
    """Misses go in turn to the workers of one role, hits to the others; each works off its own, misses first.

    Where no worker is there for hits, they go in turn to those for misses, of role ``miss_role``. A worker that is to
    change from misses to hits first ends the misses in its queue; one that is to change from hits to misses hands its
    hits to those that still take them. Nobody takes from another's queue.
    """

    miss_role: str = "large"
    _run: Run = field(init=False, repr=False)
    _misses: dict[Worker, Queue] = field(init=False, default_factory=dict, repr=False)
    _hits: dict[Worker, Queue] = field(init=False, default_factory=dict, repr=False)
    _homeless: Queue = field(init=False, default_factory=deque, repr=False)
    _for_misses: Iterator[Worker] | None = field(init=False, default=None, repr=False)
    _for_hits: Iterator[Worker] | None = field(init=False, default=None, repr=False)
    _waiting: int = field(init=False, default=0, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        self._turn()

    def offer(self, request: Request, now_s: float) -> Worker | None:
        worker = self._chosen(request)
        if worker is None:
            self._homeless.append(request)
        elif worker.has_capacity and self._serves(worker) and not self._queue(worker, request):
            self._plan(worker, request)
            return worker
        else:
            self._queue(worker, request).append(request)
        self._waiting += 1
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        queue = self._misses.get(worker) or (self._hits.get(worker) if self._serves(worker) else None)
        if not queue:
            return None
        self._waiting -= 1
        request = queue.popleft()
        self._plan(worker, request)
        return request

    def has_backlog(self, worker: Worker) -> bool:
        return bool(self._misses.get(worker))

    def worker_changed(self, worker: Worker, now_s: float) -> None:
        self._turn()
        left = self._homeless
        self._homeless = deque()
        if worker.role == self.miss_role:
            if self._for_hits is not None:
                left.extend(self._hits.pop(worker, ()))
        elif worker.model != self._run.models[self.miss_role].name or not (worker.open or worker.running):
            # its model is not there any more, or never came; one that runs a batch is not open and keeps what it has
            left.extend(self._misses.pop(worker, ()))
        self._waiting -= len(left)
        for request in left:
            taker = self.offer(request, now_s)
            if taker is not None:
                self._queue(taker, request).append(request)
                self._waiting += 1
                self._run.pull(taker)

    def _turn(self) -> None:
        """Who takes what, in turn from the first: misses by number, hits from the last one down."""
        workers = self._run.cluster.workers
        large = [worker for worker in workers if worker.role == self.miss_role]
        small = [worker for worker in reversed(workers) if worker.role != self.miss_role]
        self._for_misses = cycle(large) if large else None
        self._for_hits = cycle(small) if small else None

    def _chosen(self, request: Request) -> Worker | None:
        turn = self._for_misses if request.source == MISSING else self._for_hits or self._for_misses
        return None if turn is None else next(turn)

    def _queue(self, worker: Worker, request: Request) -> Queue:
        return (self._misses if request.source == MISSING else self._hits).setdefault(worker, deque())

    def _serves(self, worker: Worker) -> bool:
        """Whether the model of its role is there already: not while it ends what it had in its last one."""
        return worker.model == self._run.models[worker.role].name

    def _plan(self, worker: Worker, request: Request) -> None:
        if request.source != MISSING and request.model != worker.model:
            self._run.assign(request, self._run.models[worker.role])

    def __len__(self) -> int:
        return self._waiting
