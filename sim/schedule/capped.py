"""A cap on the batch by size: fewer of the larger images step together."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from conf.ranges import Count
from sim.parts import Run, Stepper, Worker
from sim.request import Request
from sim.schedule.memory import fits


@dataclass(slots=True)
class Capped:
    """First in, first out, while the pixels of a batch are no more than ``pixels`` and it fits into the memory. Nobody
    is overtaken; an image that is larger than that goes alone.

    Args:
        executor: which must step.
        pixels: of all images of a batch.
    """

    executor: Stepper
    pixels: Count = 4 * 1024 * 1024
    _run: Run = field(init=False, repr=False)
    _queues: dict[Worker, deque[Request]] = field(init=False, default_factory=dict, repr=False)
    _waiting: int = field(init=False, default=0, repr=False)

    def bind(self, run: Run) -> None:
        """See Discipline.bind."""
        self._run = run

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        """See Discipline.add."""
        self._queues.setdefault(worker, deque()).append(request)
        self._waiting += 1

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """See Discipline.next."""
        queue = self._queues.get(worker)
        if not queue:
            return None
        batch = [*self.executor.active(worker), *self.executor.joining(worker), queue[0]]
        over = sum(request.width * request.height for request in batch) > self.pixels
        if len(batch) > 1 and (over or not fits(self._run, worker, batch)):
            return None
        self._waiting -= 1
        return queue.popleft()

    def leave(self, worker: Worker) -> Sequence[Request]:
        """See Discipline.leave."""
        left = self._queues.pop(worker, ())
        self._waiting -= len(left)
        return left

    def __len__(self) -> int:
        return self._waiting
