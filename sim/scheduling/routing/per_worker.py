"""A queue at every worker, and a router that decides at arrival whose: several engines behind a load balancer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.core.culprit import class_name
from sim.core.errors import SimulationError
from sim.core.request import MISSING, Request
from sim.protocols import Discipline, Router, Run, Scheduler, Worker
from sim.scheduling.disciplines.fifo import Fifo
from sim.scheduling.hit_miss import refine_on


@dataclass(slots=True)
class PerWorkerQueues(Scheduler):
    """Each request goes, when it comes, to the worker that ``router`` chooses; ``discipline`` says who is next there.

    Chosen among are the workers whose role's model is the one that is planned; where there are none, all of them, and
    a hit is then planned for the model that it meets. Nobody takes from another's queue. Who waits at a worker that
    changes its role, or is gone, is sent anew.
    """

    router: Router
    discipline: Discipline = field(default_factory=Fifo)
    _run: Run = field(init=False, repr=False)
    _known: dict[Worker, None] = field(init=False, default_factory=dict, repr=False)
    _at: dict[Request, Worker] = field(init=False, default_factory=dict, repr=False)
    _serving: dict[str, list[Worker]] = field(init=False, default_factory=dict, repr=False)
    _all: Sequence[Worker] = field(init=False, default=(), repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        self.router.bind(run)
        self.discipline.bind(run)
        self._look()

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self._wait(request, now_s)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self.discipline.next(worker, now_s)

    def request_ended(self, request: Request, now_s: float) -> None:
        worker = self._at.pop(request, None)  # none, of one that the cache answered
        if worker is not None:
            self.router.left(worker, request, now_s)

    def worker_changed(self, worker: Worker, now_s: float) -> None:
        self._look()
        for at in [at for at in self._known if at is worker or at not in self._all]:
            if at not in self._all:
                del self._known[at]
            for request in self.discipline.leave(at):
                self.request_ended(request, now_s)
                self._wait(request, now_s)

    def _look(self) -> None:
        self._all = self._run.cluster.workers
        self._serving = {}
        for worker in self._all:
            self._serving.setdefault(self._run.models[worker.role].name, []).append(worker)
            self._known[worker] = None

    def _wait(self, request: Request, now_s: float) -> None:
        """``request`` waits where it is sent, which may be no time."""
        worker = self._send(request, now_s)
        self.discipline.add(worker, request, now_s)
        if worker.has_capacity:
            self._run.pull(worker)

    def _send(self, request: Request, now_s: float) -> Worker:
        serving = self._serving.get(request.model or "")
        worker = self.router.choose(request, serving or self._all, now_s)
        if worker not in self._known or (serving and self._run.models[worker.role].name != request.model):
            raise SimulationError(
                f"{class_name(self.router)} chose {worker!r} for the request in row {request.row}, planned for "
                f"{request.model}; expected one of {serving or self._all}"
            )
        if request.source != MISSING:
            refine_on(self._run, worker, request)
        self._at[request] = worker
        self.router.sent(worker, request, now_s)
        return worker

    def __len__(self) -> int:
        return len(self.discipline)
