"""Who has room: workers by role and by how many requests they have aboard, in the order in which they came to that."""

from collections import deque
from collections.abc import Iterator

from sim.worker import Worker

Lane = deque[Worker]


class Rooms:
    """The workers that would take a request now; to list, to ask, and to take the first of a lane off are O(1)."""

    __slots__ = ("_by_role", "_lanes", "_listed")

    def __init__(self) -> None:
        self._listed = 0
        self._by_role: dict[str, list[Lane]] = {}
        self._lanes: list[Lane] = []  # of the only role there is; none, where there are several

    def add(self, worker: Worker) -> None:
        lanes = self._by_role.get(worker._role)
        if lanes is None:
            lanes = self._by_role[worker._role] = [deque()]
            self._lanes = lanes if len(self._by_role) == 1 else []
        try:
            lane = lanes[worker.aboard]
        except IndexError:  # as many as are aboard, whatever the limit
            lanes += [deque() for _ in range(worker.aboard + 1 - len(lanes))]
            lane = lanes[worker.aboard]
        worker.lane = lane
        lane.append(worker)
        worker.listed = self._listed = self._listed + 1

    def remove(self, worker: Worker) -> None:
        lane: Lane = worker.lane  # type: ignore[assignment]
        if lane[0] is worker:
            lane.popleft()
        else:
            lane.remove(worker)
        worker.lane = None

    def roomiest(self, role: str | None = None) -> Worker | None:
        for lane in self._lanes if role is None else self._by_role.get(role, ()):
            if lane:
                return lane[0]
        if self._lanes or role is not None:
            return None
        firsts = [worker for worker in map(self.roomiest, self._by_role) if worker is not None]
        return min(firsts, key=lambda worker: (worker.aboard, worker.listed), default=None)

    def idle(self, role: str | None = None) -> Iterator[Worker]:
        lanes = [rows[0] for name, rows in self._by_role.items() if role in (None, name)]
        if len(lanes) == 1:
            return iter(list(lanes[0]))
        return iter(sorted((worker for lane in lanes for worker in lane), key=lambda worker: worker.listed))
