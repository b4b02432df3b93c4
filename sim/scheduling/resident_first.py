"""One queue for a fleet of several models: a free GPU takes the oldest request whose model it holds."""

from collections import deque
from dataclasses import dataclass, field
from math import inf

from mezzotint.backends.base import Asset
from mezzotint.settings.ranges import Seconds
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Scheduler, Worker

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
    _length: int = field(init=False, default=0, repr=False)
    _given: dict[int, str] = field(init=False, default_factory=dict, repr=False)
    """Model of the last request that each worker took, which it may not have loaded yet."""

    def bind(self, run: Run) -> None:
        self._run = run

    def offer(self, request: Request, now_s: float) -> Worker | None:
        model = request.model or ""
        worker = self._free_worker(model)
        if worker is not None and not self._length:
            self._given[worker.id] = model
            return worker
        self._queues.setdefault(model, deque()).append((self._offered, now_s, request))
        self._offered += 1
        self._length += 1
        # Not at once: of those that wait, another may be due (test_no_request_is_overtaken_after_its_maximum_wait).
        if worker is not None:
            self._run.pull(worker)
        return None

    def _free_worker(self, model: str) -> Worker | None:
        """Return the worker that takes a request of ``model`` with the shortest load, and the first of several."""
        cluster = self._run.cluster
        best, min_load = None, (inf, 0)
        for worker in cluster.workers:
            if worker.has_capacity and self._may_take(worker, model):
                load = 0.0 if holds_model(worker, model) else cluster.load_s(worker, model), worker.running
                if load < min_load:
                    best, min_load = worker, load
                    if load == (0.0, 0):
                        break  # no other has less, and the first of equals is taken
        return best

    def next(self, worker: Worker, now_s: float) -> Request | None:
        if not self._length:
            return None
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
        self._given[worker.id] = oldest
        return self._take(oldest)

    def _may_take(self, worker: Worker, model: str) -> bool:
        """Return True if ``worker`` serves ``model``, and runs no requests of another."""
        serves = worker.serves is None or model in worker.serves
        return serves and (not worker.running or self._given[worker.id] == model)

    def _take(self, model: str) -> Request:
        queue = self._queues[model]
        request = queue.popleft()[2]
        if not queue:
            del self._queues[model]
        self._length -= 1
        return request

    def __len__(self) -> int:
        return self._length


def holds_model(worker: Worker, model: str) -> bool:
    """Return True if ``model`` is resident on ``worker``."""
    return worker.model == model or Asset("model", model, model) in worker.resident
