"""First come, first served: one queue that every worker takes from."""

from collections import deque
from dataclasses import dataclass, field

from sim.cluster.worker import Worker
from sim.engine import Engine
from sim.request import Request


@dataclass(slots=True)
class Fcfs:
    """One queue; the worker that has been idle longest takes the next request."""

    _waiting: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _idle: deque[Worker] = field(init=False, default_factory=deque, repr=False)

    def bind(self, engine: Engine) -> None:
        """See Scheduler.bind."""

    def offer(self, request: Request, now_s: float) -> Worker | None:
        """See Scheduler.offer."""
        if self._idle:
            return self._idle.popleft()
        self._waiting.append(request)
        return None

    def free(self, worker: Worker, now_s: float) -> Request | None:
        """See Scheduler.free."""
        if self._waiting:
            return self._waiting.popleft()
        self._idle.append(worker)
        return None

    def __len__(self) -> int:
        return len(self._waiting)
