"""Random dispatch to workers with queues of their own, which batch what waits (DiffServe)."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from mezzotint.settings.assumption import UNMEASURED
from mezzotint.settings.ranges import Count, Positive
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.request import DISCARDED, Request
from mezzotint.sim.core.streams import DISPATCH
from mezzotint.sim.core.workload import standalone_s
from mezzotint.sim.protocols import Run, Scheduler, Worker
from mezzotint.sim.scheduling.batching.dynamic import check_max_batch


@dataclass(slots=True)
class RandomDispatch(Scheduler):
    """Send a request to a random worker that holds its model; an idle worker runs what waits there as one batch.

    A batch takes up to ``max_batch`` requests of its role and waits for none. A request that would end later than
    ``drop_after`` times its deadline is dropped when a batch takes it (``executor=static-batch``).

    Args:
        max_batch: role -> requests in a batch at most; a controller may change it.
        drop_after: latest end over the deadline, both from the arrival.

    Source: DiffServe's artifact. Raises ConfigError if ``max_batch`` is above the executor's.
    """

    max_batch: dict[str, Count]
    drop_after: Positive = 1.5
    _run: Run = field(init=False, repr=False)
    _rng: np.random.Generator = field(init=False, repr=False)
    _queues: dict[int, deque[Request]] = field(init=False, default_factory=dict, repr=False)
    _batches: dict[int, deque[Request]] = field(init=False, default_factory=dict, repr=False)
    _roles: dict[str, str] = field(init=False, repr=False)
    _seconds: dict[tuple[str, int], float] = field(init=False, default_factory=dict, repr=False)
    _unsent: list[Request] = field(init=False, default_factory=list, repr=False)

    def bind(self, run: Run) -> None:
        self._run, self._rng = run, run.rng(DISPATCH)
        for role, count in self.max_batch.items():
            run.model(role)
            check_max_batch(run, count, f"scheduler.max_batch.{role}")
        self._roles = {model.name: role for role, model in run.models.items()}
        if run.workload.sampling is not None:
            source = f"it counts requests, whatever they ask for {UNMEASURED}"
            run.assume("what the scheduler expects of a request", "one image with usual guidance", source)

    def offer(self, request: Request, now_s: float) -> Worker | None:
        role = self._roles[request.model or ""]
        able = self._run.cluster.workers_of(role)
        if not able:
            self._unsent.append(request)
            return None
        worker = able[int(self._rng.integers(len(able)))]
        self._queues.setdefault(worker.id, deque()).append(request)
        if worker.open and not worker.running:
            self._run.pull(worker)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        batch = self._batches.get(worker.id)
        if not batch:
            if worker.running:
                return None
            batch = self._batches[worker.id] = self._close(worker, now_s)
        return batch.popleft() if batch else None

    def _close(self, worker: Worker, now_s: float) -> deque[Request]:
        """Take the batch that ``worker`` runs next, without the requests that would end too late."""
        queue, batch = self._queues.get(worker.id, deque[Request]()), deque[Request]()
        max_batch = self.max_batch.get(worker.role, 1)
        batch_s = self.batch_s(worker.role, min(len(queue), max_batch)) if queue else 0.0
        while queue and len(batch) < max_batch:
            request = queue.popleft()
            limit_s = request.deadline_s - request.arrival_s
            if now_s - request.arrival_s + batch_s > self.drop_after * limit_s:
                self._run.end(request, DISCARDED, "would end too late (scheduler.drop_after)")
            else:
                batch.append(request)
        return batch

    def batch_s(self, role: str, batch: int) -> float:
        """Return the seconds of ``batch`` requests of the model in ``role`` together."""
        seconds = self._seconds.get((role, batch))
        if seconds is None:
            model: Model = self._run.models[role]
            seconds = self._seconds[role, batch] = standalone_s(self._run.backend, model, batch)
        return seconds

    def queued(self, role: str) -> int:
        """Return the number of requests that wait at the workers of ``role``."""
        return sum(len(self._queues.get(worker.id, ())) for worker in self._run.cluster.workers_of(role))

    def worker_changed(self, worker: Worker, now_s: float) -> None:
        """Send the requests of ``worker`` to others if it serves another role now."""
        moved = [*self._unsent, *self._queues.pop(worker.id, ())]
        self._unsent.clear()
        for request in moved:
            self.offer(request, now_s)

    def __len__(self) -> int:
        return len(self._unsent) + sum(map(len, (*self._queues.values(), *self._batches.values())))
