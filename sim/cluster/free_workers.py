"""Who has room: workers by role and by how many requests they have aboard, in the order in which they came to that."""

from collections import deque
from collections.abc import Iterator

from sim.core.worker import Worker

Bucket = deque[Worker]


class FreeWorkers:
    """The workers that would take a request now; to list, to ask, and to take the first of a bucket off are O(1)."""

    __slots__ = ("_by_role", "_buckets", "_listed")

    def __init__(self) -> None:
        self._listed = 0
        self._by_role: dict[str, list[Bucket]] = {}
        self._buckets: list[Bucket] = []  # of the only role there is; none, where there are several

    def add(self, worker: Worker) -> None:
        buckets = self._by_role.get(worker._role)
        if buckets is None:
            buckets = self._by_role[worker._role] = [deque()]
            self._buckets = buckets if len(self._by_role) == 1 else []
        try:
            bucket = buckets[worker.running]
        except IndexError:  # as many as are aboard, whatever the limit
            buckets += [deque() for _ in range(worker.running + 1 - len(buckets))]
            bucket = buckets[worker.running]
        worker.bucket = bucket
        bucket.append(worker)
        worker.free_since = self._listed = self._listed + 1

    def remove(self, worker: Worker) -> None:
        bucket: Bucket = worker.bucket  # type: ignore[assignment]
        if bucket[0] is worker:
            bucket.popleft()
        else:
            bucket.remove(worker)
        worker.bucket = None

    def least_loaded(self, role: str | None = None) -> Worker | None:
        for bucket in self._buckets if role is None else self._by_role.get(role, ()):
            if bucket:
                return bucket[0]
        if self._buckets or role is not None:
            return None
        firsts = [worker for worker in map(self.least_loaded, self._by_role) if worker is not None]
        return min(firsts, key=lambda worker: (worker.running, worker.free_since), default=None)

    def idle(self, role: str | None = None) -> Iterator[Worker]:
        buckets = [rows[0] for name, rows in self._by_role.items() if role in (None, name)]
        if len(buckets) == 1:
            return iter(list(buckets[0]))
        return iter(sorted((worker for bucket in buckets for worker in bucket), key=lambda worker: worker.free_since))
