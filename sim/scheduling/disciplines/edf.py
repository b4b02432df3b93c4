"""Earliest deadline first."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.core.request import Request
from sim.protocols import Discipline, Worker
from sim.scheduling.disciplines.priority_queue import PriorityQueue


@dataclass(slots=True)
class Edf(Discipline):
    """Earliest deadline first: it joins as soon as its worker has capacity."""

    _queue: PriorityQueue = field(init=False, default_factory=PriorityQueue, repr=False)

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        self._queue.add(worker, request.deadline_s, request)

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self._queue.next(worker)

    def leave(self, worker: Worker) -> Sequence[Request]:
        return self._queue.leave(worker)

    def __len__(self) -> int:
        return len(self._queue)
