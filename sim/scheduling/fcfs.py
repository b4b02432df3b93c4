"""First come, first served."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Scheduler, Worker


@dataclass(slots=True)
class Fcfs(Scheduler):
    """One queue for all workers; the worker with the fewest running requests takes the next, the longest such first."""

    _waiting: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _find_worker: Callable[[], Worker | None] = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._find_worker = run.cluster.least_loaded

    def offer(self, request: Request, now_s: float) -> Worker | None:
        if not self._waiting:
            find_worker = self._find_worker  # reading and then calling is faster than calling an attribute
            worker = find_worker()
            if worker is not None:
                return worker
        self._waiting.append(request)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self._waiting.popleft() if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)
