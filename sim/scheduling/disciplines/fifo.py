"""First in, first out."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Discipline, Worker


@dataclass(slots=True)
class FifoQueue(Discipline):
    """First in, first out: requests join in order of arrival, as soon as their worker has capacity."""

    _queues: dict[Worker, deque[Request]] = field(init=False, default_factory=dict, repr=False)
    _waiting: int = field(init=False, default=0, repr=False)

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        self._queues.setdefault(worker, deque()).append(request)
        self._waiting += 1

    def next(self, worker: Worker, now_s: float) -> Request | None:
        queue = self._queues.get(worker)
        if not queue:
            return None
        self._waiting -= 1
        return queue.popleft()

    def leave(self, worker: Worker) -> Sequence[Request]:
        left = self._queues.pop(worker, ())
        self._waiting -= len(left)
        return left

    def __len__(self) -> int:
        return self._waiting
