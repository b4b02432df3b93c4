"""Earliest deadline first."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Discipline, Run, Worker
from mezzotint.sim.scheduling.disciplines.priority_queue import PriorityQueue


@dataclass(slots=True)
class Edf(Discipline):
    """Earliest deadline first: it joins as soon as its worker has capacity.

    Of equal deadlines the higher priority goes first, then the earlier arrival.
    """

    _priority: "memoryview[int]" = field(init=False, repr=False)
    _queue: PriorityQueue = field(init=False, default_factory=PriorityQueue, repr=False)

    def bind(self, run: Run) -> None:
        self._priority = run.workload.priority

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        self._queue.add(worker, (request.deadline_s, -self._priority[request.row]), request)

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self._queue.next(worker)

    def leave(self, worker: Worker) -> Sequence[Request]:
        return self._queue.leave(worker)

    def __len__(self) -> int:
        return len(self._queue)
