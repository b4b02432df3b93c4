"""A server's batch former: a batch sets out when it is full or its first request has waited long enough."""

from dataclasses import dataclass, field

from conf.ranges import Count, Seconds
from sim.core.request import Request
from sim.protocols import Run, Scheduler, Worker
from sim.scheduling.batching.former import BatchFormer


@dataclass(slots=True)
class DynamicBatching(Scheduler):
    """One queue for all workers; the next idle one takes a batch, all at one instant (``executor=static-batch``).

    A batch of ``max_batch`` requests need not wait; after ``max_wait_s`` seconds a request sets out with whoever is there.

    Raises ConfigError for a batch above what the executor takes.
    """

    max_batch: Count = 8
    max_wait_s: Seconds = 5.0
    _former: BatchFormer = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._former = BatchFormer(run, self.max_batch, self.max_wait_s, {"": [None]}, lambda request: "")

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self._former.add(request, now_s)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self._former.next(worker, now_s)

    def __len__(self) -> int:
        return len(self._former)
