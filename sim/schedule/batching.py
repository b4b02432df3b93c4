"""A server's batch former: a batch sets out when it is full or its first request has waited long enough."""

from dataclasses import dataclass, field

from conf.ranges import Count, Seconds
from sim.parts import Run, Scheduler, Worker
from sim.request import Request
from sim.schedule.former import Former


@dataclass(slots=True)
class Batching(Scheduler):
    """One queue for all workers; the next idle one takes a batch, all at one instant (``executor=whole-batch``).

    A batch of ``most`` requests need not wait; after ``wait_s`` seconds a request sets out with whoever is there.

    Raises ConfigError for a batch above what the executor takes.
    """

    most: Count = 8
    wait_s: Seconds = 5.0
    _former: Former = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._former = Former(run, self.most, self.wait_s, {"": [None]}, lambda request: "")

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self._former.add(request, now_s)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self._former.next(worker, now_s)

    def __len__(self) -> int:
        return len(self._former)
