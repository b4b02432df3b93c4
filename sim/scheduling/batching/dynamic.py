"""Dynamic batching, as in inference servers: a batch starts when it is full or its oldest request has waited enough."""

from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count, Seconds
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Scheduler, Worker
from mezzotint.sim.scheduling.batching.former import BatchFormer


@dataclass(slots=True)
class DynamicBatching(Scheduler):
    """One queue for all workers; an idle worker takes a whole batch (``executor=static-batch``).

    A batch of ``max_batch`` requests starts at once. A smaller one starts when its oldest request has waited
    ``max_wait_s`` seconds.

    Raises ConfigError if ``max_batch`` is above the executor's.
    """

    max_batch: Count = 8
    max_wait_s: Seconds = 5.0
    _former: BatchFormer = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._former = BatchFormer(run, self.max_batch, self.max_wait_s, {"": [None]}, lambda _: "")

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self._former.add(request, now_s)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self._former.next(worker, now_s)

    def __len__(self) -> int:
        return len(self._former)
