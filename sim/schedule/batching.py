"""A server's batch former: a batch sets out when it is full or its first request has waited long enough."""

from collections import deque
from dataclasses import dataclass, field
from math import inf

from conf.ranges import Count, Seconds
from sim.clock import CONTROL
from sim.errors import ConfigError
from sim.parts import Run, Worker
from sim.request import Request


@dataclass(slots=True)
class Batching:
    """One queue for all workers; the next idle one takes a batch, all at one instant (``executor=whole-batch``).

    Args:
        most: requests in a batch; a batch of as many need not wait.
        wait_s: seconds after which a request sets out with whoever is there, as soon as a worker is idle.

    Raises:
        ConfigError: a batch below 1, above what the executor takes, or a negative time.
    """

    most: Count = 8
    wait_s: Seconds = 5.0
    _waiting: deque[tuple[float, Request]] = field(init=False, default_factory=deque, repr=False)
    _run: Run = field(init=False, repr=False)
    _given: dict[int, int] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.most < 1 or not 0 <= self.wait_s < inf:
            raise ConfigError(
                f"scheduler: found most {self.most} and wait_s {self.wait_s}; expected 1 or more requests and 0 or "
                "more seconds"
            )

    def bind(self, run: Run) -> None:
        """See Scheduler.bind."""
        self._run = run
        limit = run.cluster.workers[0].limit
        if self.most > limit:
            raise ConfigError(
                f"scheduler.most: found {self.most}; the executor takes {limit} at once: raise executor.limit or "
                "choose executor=whole-batch"
            )

    def offer(self, request: Request, now_s: float) -> Worker | None:
        """See Scheduler.offer. A batch is asked for by ``next``, its first request too."""
        self._waiting.append((now_s, request))
        if self._due(now_s):
            self._send(None)
        elif len(self._waiting) == 1:
            self._run.clock.at(now_s + self.wait_s, CONTROL, self._send)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """See Scheduler.next. An idle worker is given a batch that is due, one request at a time."""
        if not worker.aboard:
            self._given[worker.id] = self.most if self._due(now_s) else 0
        if not self._given.get(worker.id) or not self._waiting:
            self._given[worker.id] = 0
            return None
        self._given[worker.id] -= 1
        _, request = self._waiting.popleft()
        if self._waiting:  # the next in line waits from when it came
            at_s = max(self._waiting[0][0] + self.wait_s, now_s)
            self._run.clock.at(at_s, CONTROL, self._send)
        return request

    def moved(self, worker: Worker, now_s: float) -> None:
        """See Scheduler.moved."""

    def _due(self, now_s: float) -> bool:
        waiting = self._waiting
        return bool(waiting) and (len(waiting) >= self.most or now_s >= waiting[0][0] + self.wait_s)

    def _send(self, _: None) -> None:
        """Have idle workers take the batches that are due."""
        for worker in self._run.cluster.idle():
            if not self._due(self._run.clock._now):
                return
            self._run.pull(worker)

    def __len__(self) -> int:
        return len(self._waiting)
