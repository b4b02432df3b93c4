"""Batches of one resolution, as ORCA's iteration-level batching needs: images of two sizes share no tensor."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Discipline, Stepper, Worker

Resolution = tuple[str | None, int, int, int]


@dataclass(slots=True)
class OneResolution(Discipline):
    """Batches hold one model and resolution; an empty batch takes that of the oldest waiting request.

    This is NIRVANA with ORCA's batching in PatchedServe's evaluation. With ``overtake`` requests of the batch's
    resolution pass older ones of another, which may starve them; without it, none joins before the oldest.
    """

    executor: Stepper
    overtake: bool = True
    _queues: dict[Worker, dict[Resolution, deque[tuple[int, Request]]]] = field(
        init=False, default_factory=dict, repr=False
    )
    _added: int = field(init=False, default=0, repr=False)

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        self._added += 1
        queues = self._queues.setdefault(worker, {})
        queues.setdefault(_resolution(request), deque()).append((self._added, request))

    def next(self, worker: Worker, now_s: float) -> Request | None:
        queues = self._queues.get(worker)
        if not queues:
            return None
        # Before the first step the batch has only joining requests; one of them tells its resolution.
        batch = self.executor.active(worker) or self.executor.joining(worker)
        # By the number of arrival, since a dictionary's order is that of the resolutions' first requests.
        oldest = min(queues, key=lambda resolution: queues[resolution][0])
        resolution = _resolution(batch[0]) if batch else oldest
        if resolution not in queues or (resolution != oldest and not self.overtake):
            return None
        request = queues[resolution].popleft()[1]
        if not queues[resolution]:
            del queues[resolution]
        return request

    def leave(self, worker: Worker) -> Sequence[Request]:
        left = [entry for queue in self._queues.pop(worker, {}).values() for entry in queue]
        return [request for _, request in sorted(left, key=lambda entry: entry[0])]

    def __len__(self) -> int:
        return sum(len(queue) for queues in self._queues.values() for queue in queues.values())


def _resolution(request: Request) -> Resolution:
    return request.model, request.width, request.height, request.frames
