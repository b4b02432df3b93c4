"""One queue for a fleet of several models: a free GPU takes the oldest request whose model it holds."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from mezzotint.backends.base import weights_of
from mezzotint.settings.ranges import Seconds
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Cluster, Run, Scheduler, Worker
from mezzotint.sim.protocols.cluster import IN_HOST
from mezzotint.sim.scheduling.routing.holders import FEW, Among, Holders, Key, LowestCost

Waiting = tuple[int, float, Request]
"""Order of the request, the instant at which it queued, and itself."""


@dataclass(slots=True)
class ResidentFirst(Scheduler):
    """A GPU takes the oldest request whose model is resident on it, else the oldest of all, and loads its model.

    A request that has waited ``max_wait_s`` is not overtaken any more by one that a GPU takes which may serve both. A
    GPU with running requests takes only those of their model.

    Args:
        max_wait_s: seconds of waiting after which a request is not overtaken; 0 is first come, first served.
    """

    max_wait_s: Seconds = 60.0
    _run: Run = field(init=False, repr=False)
    _queues: dict[str, deque[Waiting]] = field(init=False, default_factory=dict, repr=False)
    _offered: int = field(init=False, default=0, repr=False)
    _given: dict[int, str] = field(init=False, default_factory=dict, repr=False)
    """Model of the last request that each worker took, which it may not have loaded yet."""
    _holders: Holders = field(init=False, repr=False)
    _has_batches: bool = field(init=False, repr=False)
    _workers: Sequence[Worker] = field(init=False, default=(), repr=False)
    _takers_of: dict[str, Sequence[Worker]] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        self._run, self._holders = run, Holders(run, ("model", IN_HOST), self._coming)
        self._has_batches = run.cluster.worker(0).max_batch > 1

    def _coming(self, worker: Worker) -> Iterator[tuple[str, str]]:
        if worker.id in self._given:
            yield "model", self._given[worker.id]

    def offer(self, request: Request, now_s: float) -> Worker | None:
        model = request.model or ""
        worker = self._free_worker(model)
        if worker is not None and not self._queues:
            self._give(worker, model)
            return worker
        self._queues.setdefault(model, deque()).append((self._offered, now_s, request))
        self._offered += 1
        # Not at once: of those that wait, another may be due (test_no_request_is_overtaken_after_its_maximum_wait).
        if worker is not None:
            self._run.pull(worker)
        return None

    def _free_worker(self, model: str) -> Worker | None:
        """Return the worker that takes a request of ``model`` with the shortest load, and the first of several."""
        cluster, workers = self._run.cluster, self._run.cluster.workers
        if len(workers) > FEW:
            return self._listed_worker(model)
        best, min_load = None, (inf, 0)
        for worker in workers:
            if worker.open and worker.running < worker.max_batch and self._may_take(worker, model):
                load = 0.0 if holds_model(worker, model) else cluster.load_s(worker, model), worker.running
                if load < min_load:
                    best, min_load = worker, load
                    if load == (0.0, 0):
                        break  # no other has less, and the first of equals is taken
        return best

    def _listed_worker(self, model: str) -> Worker | None:
        cluster, takers = self._run.cluster, self._takers(model)

        def running(position: int) -> float:
            worker = takers[position]
            return worker.running if worker.has_capacity and self._may_take(worker, model) else inf

        def load_s(position: int) -> float:
            return 0.0 if holds_model(takers[position], model) else cluster.load_s(takers[position], model)

        # A scheduler gives to a worker with capacity at once: in place of seconds left, its running requests decide
        # between equal loads.
        lowest = LowestCost(lambda running, load_s: (load_s, running), load_s, True, (inf, inf))
        among = self._holders.among(takers)
        first = among.search(model_lists(cluster, among, model), lowest, 0.0, running)
        return takers[first[0]] if first else None

    def _takers(self, model: str) -> Sequence[Worker]:
        """Return the workers that any model is placed on, or ``model``."""
        workers = self._run.cluster.workers
        if workers is not self._workers:
            self._workers, self._takers_of = workers, {}
        takers = self._takers_of.get(model)
        if takers is None:
            takers = tuple(worker for worker in workers if worker.serves is None or model in worker.serves)
            takers = self._takers_of[model] = workers if len(takers) == len(workers) else takers
        return takers

    def worker_changed(self, worker: Worker, now_s: float) -> None:
        self._holders.sooner(worker)

    def request_ended(self, request: Request, now_s: float) -> None:
        # The end of a batch reopens its worker, and may offer a request again before the worker is released.
        if self._has_batches and request.worker != MISSING:
            worker = self._run.cluster.worker(request.worker)
            if worker.has_capacity:
                self._holders.sooner(worker)

    def next(self, worker: Worker, now_s: float) -> Request | None:
        if self._holders.is_used:
            self._holders.sooner(worker)  # it has capacity from now on
        served = worker.serves
        heads = {model: queue[0] for model, queue in self._queues.items() if served is None or model in served}
        if not heads:
            return None
        oldest = min(heads, key=heads.__getitem__)
        if now_s - heads[oldest][1] < self.max_wait_s:
            resident = [asset.name for asset in worker.resident if asset.kind == "model" and asset.name in heads]
            if worker.running:
                given = self._given[worker.id]
                resident = [given] if given in heads else []
            if resident:
                oldest = min(resident, key=heads.__getitem__)
        if not self._may_take(worker, oldest):
            return None
        self._give(worker, oldest)
        queue = self._queues[oldest]
        request = queue.popleft()[2]
        if not queue:
            del self._queues[oldest]
        return request

    def _give(self, worker: Worker, model: str) -> None:
        before = self._given.get(worker.id)
        self._given[worker.id] = model
        if self._holders.is_used and before != model:
            self._holders.hold(worker, "model", model)
            if before is not None:
                self._holders.drop(worker, "model", before)

    def _may_take(self, worker: Worker, model: str) -> bool:
        """Return True if ``worker`` serves ``model``, and runs no requests of another."""
        serves = worker.serves is None or model in worker.serves
        return serves and (not worker.running or self._given[worker.id] == model)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))


def holds_model(worker: Worker, model: str) -> bool:
    """Return True if ``model`` is resident on ``worker``."""
    return worker.model == model or weights_of(model) in worker.resident


def model_lists(cluster: Cluster, among: Among, model: str) -> Iterator[tuple[list[Key], float]]:
    """Yield the lists to search for ``model``, each with the least load of a worker in none before (Among.search)."""
    for kind, worker in among.kinds.items():
        holders, everyone = (kind, "model", model), (kind,)
        yield [holders], 0.0
        if len(among.lists.get(holders, ())) < len(among.lists[everyone]):
            from_host_s, from_disk_s = cluster.loads_s(worker, model)
            if from_host_s != from_disk_s:
                yield [(kind, IN_HOST, model)], from_host_s
            yield [everyone], from_disk_s
