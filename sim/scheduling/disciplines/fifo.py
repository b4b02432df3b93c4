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

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        self._queues.setdefault(worker, deque()).append(request)

    def next(self, worker: Worker, now_s: float) -> Request | None:
        queue = self._queues.get(worker)
        return queue.popleft() if queue else None

    def leave(self, worker: Worker) -> Sequence[Request]:
        return self._queues.pop(worker, ())

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))
