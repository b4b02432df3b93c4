"""First come, first served: one queue that every worker takes from."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sim.parts import Run, Scheduler, Worker
from sim.request import Request


@dataclass(slots=True)
class Fcfs(Scheduler):
    """One queue; the worker with the fewest requests aboard, of several the one that is so for the longest, is next."""

    _waiting: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _roomiest: Callable[[], Worker | None] = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._roomiest = run.cluster.roomiest

    def offer(self, request: Request, now_s: float) -> Worker | None:
        if not self._waiting:  # nobody is overtaken
            roomiest = self._roomiest
            worker = roomiest()
            if worker is not None:
                return worker
        self._waiting.append(request)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self._waiting.popleft() if self._waiting else None

    def __len__(self) -> int:
        return len(self._waiting)
