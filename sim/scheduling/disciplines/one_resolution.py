"""Batches of one size: ORCA's iteration-level scheduling, where images of different sizes share no tensor."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.core.request import Request
from sim.protocols import Discipline, Stepper, Worker

Shape = tuple[str | None, int, int]


@dataclass(slots=True)
class OneResolution(Discipline):
    """Whoever has the model and size of the batch joins it, in order; when nobody is left in it, the first of all that
    wait says which size is next (NIRVANA with ORCA's batching, as PatchedServe's evaluation has it).

    With ``overtake`` those of the batch's size pass others, who may wait for long; else nobody joins before the first.
    """

    executor: Stepper
    overtake: bool = True
    _queues: dict[Worker, dict[Shape, deque[tuple[int, Request]]]] = field(init=False, default_factory=dict, repr=False)
    _came: int = field(init=False, default=0, repr=False)
    _waiting: int = field(init=False, default=0, repr=False)

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        self._came += 1
        self._waiting += 1
        shapes = self._queues.setdefault(worker, {})
        shapes.setdefault(_shape(request), deque()).append((self._came, request))

    def next(self, worker: Worker, now_s: float) -> Request | None:
        shapes = self._queues.get(worker)
        if not shapes:
            return None
        batch = self.executor.active(worker) or self.executor.joining(worker)
        first = min(shapes, key=lambda shape: shapes[shape][0])
        shape = _shape(batch[0]) if batch else first
        if shape not in shapes or (shape != first and not self.overtake):
            return None
        request = shapes[shape].popleft()[1]
        if not shapes[shape]:
            del shapes[shape]
        self._waiting -= 1
        return request

    def leave(self, worker: Worker) -> Sequence[Request]:
        left = [entry for queue in self._queues.pop(worker, {}).values() for entry in queue]
        self._waiting -= len(left)
        return [request for _, request in sorted(left, key=lambda entry: entry[0])]

    def __len__(self) -> int:
        return self._waiting


def _shape(request: Request) -> Shape:
    return request.model, request.width, request.height
