"""A server's batch former: a batch sets out when it is full or its first request has waited long enough."""

from dataclasses import dataclass, field

from conf.ranges import Count, Seconds
from sim.clock import CONTROL
from sim.parts import Run, Scheduler, Worker
from sim.request import Request
from sim.schedule.former import Former, refuse_over


@dataclass(slots=True)
class Batching(Scheduler):
    """One queue for all workers; the next idle one takes a batch, all at one instant (``executor=whole-batch``).

    Args:
        most: requests in a batch; a batch of as many need not wait.
        wait_s: seconds after which a request sets out with whoever is there, as soon as a worker is idle.

    Raises:
        ConfigError: a batch below 1, above what the executor takes, or a negative time.
    """

    most: Count = 8
    wait_s: Seconds = 5.0
    _former: Former = field(init=False, repr=False)
    _run: Run = field(init=False, repr=False)
    _given: dict[int, int] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._former = Former(self.most, self.wait_s)

    def bind(self, run: Run) -> None:
        self._run = run
        refuse_over(run.cluster.workers[0].limit, self.most, "scheduler.most")

    def offer(self, request: Request, now_s: float) -> Worker | None:
        """A batch is asked for by ``next``, its first request too."""
        self._former.add(request, now_s)
        if self._former.due(now_s):
            self._send(None)
        elif len(self._former) == 1:
            self._run.clock.at(now_s + self.wait_s, CONTROL, self._send)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """An idle worker is given a batch that is due, one request at a time."""
        former = self._former
        if not worker.aboard:
            self._given[worker.id] = self.most if former.due(now_s) else 0
        if not self._given.get(worker.id) or not len(former):
            self._given[worker.id] = 0
            return None
        self._given[worker.id] -= 1
        request = former.take()
        if len(former):  # the next in line waits from when it came
            self._run.clock.at(max(former.due_s(), now_s), CONTROL, self._send)
        return request

    def _send(self, _: None) -> None:
        """Have idle workers take the batches that are due."""
        for worker in self._run.cluster.idle():
            if not self._former.due(self._run.clock._now):
                return
            self._run.pull(worker)

    def __len__(self) -> int:
        return len(self._former)
