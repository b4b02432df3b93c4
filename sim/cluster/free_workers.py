"""Index of the free workers, by role and number of running requests."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter

from mezzotint.sim.core.worker import Worker

Bucket = OrderedDict[Worker, None]
"""Workers of equal load, the longest free first."""


def remove(worker: Worker) -> None:
    """Take ``worker`` out of the free ones, if it is among them."""
    if worker.bucket is not None:
        del worker.bucket[worker]
        worker.bucket = None


class FreeWorkers:
    """The workers with capacity, in buckets of equal load by role, the longest free first; O(1) but for ``idle``."""

    __slots__ = ("_added", "_buckets", "_by_role")

    def __init__(self) -> None:
        self._added = 0
        self._by_role: dict[str, list[Bucket]] = {}
        self._buckets: list[Bucket] = []  # of the only role; empty if there are several

    def add(self, worker: Worker) -> None:
        buckets = self._by_role.get(worker._role)
        if buckets is None:
            buckets = self._by_role[worker._role] = [Bucket()]
            self._buckets = buckets if len(self._by_role) == 1 else []
        try:
            bucket = buckets[worker.running]
        except IndexError:  # as many buckets as requests ever run, however large max_batch is
            buckets += [Bucket() for _ in range(worker.running + 1 - len(buckets))]
            bucket = buckets[worker.running]
        worker.bucket = bucket
        bucket[worker] = None
        # Between buckets of several roles, the rank tells which worker was free first
        # (test_least_loaded_and_idle_match_a_linear_search).
        worker.free_rank = self._added = self._added + 1

    def least_loaded(self, role: str | None = None) -> Worker | None:
        for bucket in self._buckets if role is None else self._by_role.get(role, ()):
            if bucket:
                return next(iter(bucket))
        if self._buckets or role is not None:
            return None
        firsts = [worker for worker in map(self.least_loaded, self._by_role) if worker is not None]
        return min(firsts, key=lambda worker: (worker.running, worker.free_rank), default=None)

    def idle_count(self) -> int:
        """Return the number of workers without requests."""
        if self._buckets:  # of the only role; faster, since this is sampled every minute of simulated time
            return len(self._buckets[0])
        return sum(len(buckets[0]) for buckets in self._by_role.values())

    def idle(self, role: str | None = None) -> Iterator[Worker]:
        buckets = [rows[0] for name, rows in self._by_role.items() if role in (None, name)]
        if len(buckets) == 1:
            # A copy: callers hand out the workers that they iterate over.
            return iter(list(buckets[0]))
        return iter(sorted((worker for bucket in buckets for worker in bucket), key=lambda worker: worker.free_rank))


class FreeWorkersByKind:
    """The workers with capacity on GPUs of several kinds: of equal load, those of the earlier kind first.

    Args:
        kinds: names of the kinds, in the order of preference.
    """

    __slots__ = ("_by_kind",)

    def __init__(self, kinds: Sequence[str]) -> None:
        self._by_kind = {kind: FreeWorkers() for kind in kinds}

    def add(self, worker: Worker) -> None:
        self._by_kind[worker.gpu.name].add(worker)

    def least_loaded(self, role: str | None = None) -> Worker | None:
        firsts = (free.least_loaded(role) for free in self._by_kind.values())
        # min keeps the first of equals, which is of the preferred kind
        # (test_first_kind_is_preferred_among_equally_loaded_workers).
        return min((worker for worker in firsts if worker is not None), key=attrgetter("running"), default=None)

    def idle_count(self) -> int:
        return sum(free.idle_count() for free in self._by_kind.values())

    def idle(self, role: str | None = None) -> Iterator[Worker]:
        return chain.from_iterable([free.idle(role) for free in self._by_kind.values()])
