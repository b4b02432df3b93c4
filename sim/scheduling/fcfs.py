"""First come, first served: one queue that every worker takes from."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sim.core.request import Request
from sim.protocols import Run, Scheduler, Worker


@dataclass(slots=True)
class Fcfs(Scheduler):
    """One queue; the worker with the fewest requests aboard, of several the one that is so for the longest, is next."""

    _waiting: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _roomiest: Callable[[], Worker | None] = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._roomiest = run.cluster.least_loaded

    def offer(self, request: Request, now_s: float) -> Worker | None:
        if not self._waiting:  # nobody is overtaken
            least_loaded = self._roomiest
            worker = least_loaded()
            if worker is not None:
                return worker
        self._waiting.append(request)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self._waiting.popleft() if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)
