"""Per-worker queues behind a router: several serving engines behind a load balancer."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from mezzotint.sim.core.clock import DISPATCH
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Discipline, Router, Run, Scheduler, Worker
from mezzotint.sim.scheduling.disciplines.fifo import FifoQueue
from mezzotint.sim.scheduling.hit_miss import refine_on


@dataclass(slots=True)
class PerWorkerQueues(Scheduler):
    """Queue each arriving request at the worker that ``router`` chooses; ``discipline`` orders each worker's queue.

    The router chooses among the workers of the planned model, or those that it is placed on. If there are none it
    chooses among all, and a hit is planned anew for the model it meets. Workers do not steal from each other's queues.
    The queue of a worker that changes its role or leaves is routed again.
    """

    router: Router
    discipline: Discipline = field(default_factory=FifoQueue)
    _run: Run = field(init=False, repr=False)
    _tells_ends: bool = field(init=False, repr=False)
    _seen: dict[Worker, Collection[str]] = field(init=False, default_factory=dict, repr=False)
    """The present workers, each with its models when it last changed."""
    _worker_of: dict[Request, Worker] = field(init=False, default_factory=dict, repr=False)
    _by_model: dict[str, tuple[Worker, ...]] = field(init=False, default_factory=dict, repr=False)
    _all: Sequence[Worker] = field(init=False, default=(), repr=False)
    _is_grouped: bool = field(init=False, default=False, repr=False)
    """True if ``_by_model`` groups the present workers by their present models."""

    def bind(self, run: Run) -> None:
        self._run = run
        self._tells_ends = getattr(type(self.discipline), "ended", Discipline.ended) is not Discipline.ended
        self.router.bind(run)
        self.discipline.bind(run)
        self._update_workers()

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self._enqueue(request, now_s)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self.discipline.next(worker, now_s)

    def request_ended(self, request: Request, now_s: float) -> None:
        worker = self._worker_of.pop(request, None)  # None if the cache answered it
        if worker is not None:
            self.router.left(worker, request, now_s)
            if self._tells_ends:
                self.discipline.ended(worker, request, now_s)
                # The end may let another request run, and of a cascade's first try it comes after the worker was
                # released (test_every_pair_that_works_is_in_a_system_that_works).
                if worker.has_capacity and len(self.discipline):
                    self._run.clock.at(now_s, DISPATCH, self._run.pull, worker)

    def worker_changed(self, worker: Worker, now_s: float) -> None:
        gone = self._update_workers(worker)
        # After the update, so that requests are routed again among the present workers.
        left = [seen for seen in self._seen if seen is worker or seen in gone] if gone else self._seen.keys() & {worker}
        for former in left:
            if former in gone:
                del self._seen[former]
            for request in self.discipline.leave(former):
                if self._worker_of.get(request) is not former or request.worker != MISSING:
                    raise SimulationError(
                        f"{class_name(self.discipline)} returned the request in row {request.row} from leave, which "
                        f"does not wait at {former}; forget requests that next returned"
                    )
                # The router forgets it at the old worker before it counts it at the new one.
                self.router.left(self._worker_of.pop(request), request, now_s)
                self._enqueue(request, now_s)

    def _update_workers(self, changed: Worker | None = None) -> Collection[Worker]:
        """Take note of the present workers, and of the models of ``changed``; return those that are gone."""
        workers = self._run.cluster.workers
        if workers is not self._all:
            self._all, self._is_grouped = workers, False
            self._seen |= {worker: self._models_of(worker) for worker in workers}
            return self._seen.keys() - workers
        if changed in self._seen and self._seen[changed] != self._models_of(changed):
            self._seen[changed], self._is_grouped = self._models_of(changed), False
        return ()

    def _group_by_model(self) -> None:
        by_model: dict[str, list[Worker]] = {}
        for worker in self._all:
            for model in self._models_of(worker):
                by_model.setdefault(model, []).append(worker)
        # A model that keeps its workers keeps their tuple, by which routers know them.
        known = self._by_model
        self._by_model = {
            model: known[model] if list(known.get(model, ())) == workers else tuple(workers)
            for model, workers in by_model.items()
        }
        self._is_grouped = True

    def _models_of(self, worker: Worker) -> Collection[str]:
        """Return the models placed on ``worker``, or that of its role."""
        return worker.serves or (self._run.models[worker.role].name,)

    def _enqueue(self, request: Request, now_s: float) -> None:
        worker = self._route(request, now_s)
        self.discipline.add(worker, request, now_s)
        # The discipline knows it first: pull asks it for the next request, which may be another.
        if worker.has_capacity:
            self._run.pull(worker)

    def _route(self, request: Request, now_s: float) -> Worker:
        if not self._is_grouped:
            self._group_by_model()
        of_model = self._by_model.get(request.model or "")
        worker = self.router.choose(request, of_model or self._all, now_s)
        # Written out, since a call per request takes 2 % of a run.
        if worker not in self._seen or (
            of_model
            and (
                self._run.models[worker.role].name != request.model
                if worker.serves is None
                else request.model not in worker.serves
            )
        ):
            raise SimulationError(
                f"{class_name(self.router)} chose {worker!r} for the request in row {request.row}, planned for "
                f"{request.model}; expected one of {list(of_model or self._all)}"
            )
        if request.plan.source != MISSING:
            refine_on(self._run, worker.role, request)
        self._worker_of[request] = worker
        self.router.sent(worker, request, now_s)
        return worker

    def __len__(self) -> int:
        return len(self.discipline)
