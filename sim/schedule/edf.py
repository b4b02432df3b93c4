"""Earliest deadline first."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from sim.parts import Run, Worker
from sim.request import Request


@dataclass(slots=True)
class Edf:
    """Of those that wait at a worker the one with the earliest deadline joins as soon as there is room. Nobody is sent
    away, and who runs goes on.
    """

    _queues: dict[Worker, list[tuple[float, int, Request]]] = field(init=False, default_factory=dict, repr=False)
    _waiting: int = field(init=False, default=0, repr=False)

    def bind(self, run: Run) -> None:
        """See Discipline.bind."""

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        """See Discipline.add."""
        heappush(self._queues.setdefault(worker, []), (request.deadline_s, request.row, request))
        self._waiting += 1

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """See Discipline.next."""
        queue = self._queues.get(worker)
        if not queue:
            return None
        self._waiting -= 1
        return heappop(queue)[2]

    def leave(self, worker: Worker) -> Sequence[Request]:
        """See Discipline.leave."""
        left = [entry[2] for entry in self._queues.pop(worker, ())]
        self._waiting -= len(left)
        return sorted(left, key=lambda request: request.row)

    def __len__(self) -> int:
        return self._waiting
