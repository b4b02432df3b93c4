"""A queue at every worker, and a router that decides at arrival whose: several engines behind a load balancer."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.parts import Router, Run, Worker
from sim.request import MISSING, Request

Queue = deque[Request]


@dataclass(slots=True)
class Routed:
    """Each request goes, when it comes, to the worker that ``router`` chooses, and waits there in order.

    Chosen among are the workers whose role's model is the one that is planned; where there are none, all of them, and
    a hit is then planned for the model that it meets. Nobody takes from another's queue, so an idle worker may stand
    beside a long one. Who waits at a worker that changes its role, or is gone, is sent anew.

    Args:
        router: which worker, of those that may serve a request.
    """

    router: Router
    _run: Run = field(init=False, repr=False)
    _queues: dict[Worker, Queue] = field(init=False, default_factory=dict, repr=False)
    _at: dict[Request, Worker] = field(init=False, default_factory=dict, repr=False)
    _serving: dict[str, list[Worker]] = field(init=False, default_factory=dict, repr=False)
    _all: Sequence[Worker] = field(init=False, default=(), repr=False)
    _waiting: int = field(init=False, default=0, repr=False)

    def bind(self, run: Run) -> None:
        """See Scheduler.bind."""
        self._run = run
        self.router.bind(run)
        self._look()

    def offer(self, request: Request, now_s: float) -> Worker | None:
        """See Scheduler.offer."""
        worker = self._send(request, now_s)
        queue = self._queues[worker]
        if worker.has_room and not queue:
            return worker
        queue.append(request)
        self._waiting += 1
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """See Scheduler.next."""
        queue = self._queues.get(worker)
        if not queue:
            return None
        self._waiting -= 1
        return queue.popleft()

    def ended(self, request: Request, now_s: float) -> None:
        """See Scheduler: ``request`` is not outstanding any more."""
        worker = self._at.pop(request, None)  # none, of one that the cache answered
        if worker is not None:
            self.router.left(worker, request, now_s)

    def moved(self, worker: Worker, now_s: float) -> None:
        """See Scheduler.moved."""
        self._look()
        homeless = [at for at in self._queues if at is worker or at not in self._all]
        for at in homeless:
            queue = self._queues[at]
            left, self._queues[at] = queue, deque()
            if at not in self._all:
                del self._queues[at]
            for request in left:
                self._waiting -= 1
                self.ended(request, now_s)
                taker = self._send(request, now_s)
                self._queues[taker].append(request)
                self._waiting += 1
                if taker.has_room:
                    self._run.pull(taker)

    def _look(self) -> None:
        """Who is there, and which model each serves."""
        self._all = self._run.cluster.workers
        self._serving = {}
        for worker in self._all:
            self._serving.setdefault(self._run.models[worker.role].name, []).append(worker)
            self._queues.setdefault(worker, deque())

    def _send(self, request: Request, now_s: float) -> Worker:
        worker = self.router.choose(request, self._serving.get(request.model or "") or self._all, now_s)
        model = self._run.models[worker.role]
        if request.source != MISSING and request.model != model.name:
            self._run.assign(request, model)
        self._at[request] = worker
        self.router.sent(worker, request, now_s)
        return worker

    def __len__(self) -> int:
        return self._waiting
