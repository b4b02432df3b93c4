"""Queue disciplines by a rank of requests: the lowest is served first, at each worker."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Discipline, Worker

Rank = float | tuple[float, int]
"""All ranks of a queue are of one kind."""

Ranked = tuple[Any, int, Request]
"""Rank, trace row and request: equal ranks are served in the order of rows."""


@dataclass(slots=True)
class RankedQueue(Discipline):
    """Serve the waiting request of the lowest rank first, at each worker."""

    _queues: dict[Worker, list[Ranked]] = field(init=False, default_factory=dict, repr=False)

    @abstractmethod
    def rank(self, request: Request) -> Rank:
        """Return the rank with which ``request`` queues."""

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        # The row breaks ties, so that requests themselves are never compared
        # (test_shortest_remaining_runs_the_requests_with_fewest_steps_left).
        heappush(self._queues.setdefault(worker, []), (self.rank(request), request.row, request))

    def next(self, worker: Worker, now_s: float) -> Request | None:
        queue = self._queues.get(worker)
        return heappop(queue)[2] if queue else None

    def leave(self, worker: Worker) -> Sequence[Request]:
        left = [request for _, _, request in self._queues.pop(worker, ())]
        # In the order of arrival: they queue anew at another worker.
        return sorted(left, key=lambda request: request.row)

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))
