"""Vector index, updated in batches in the background (NIRVANA, 5.4: cache-maintainer): a new entry is found late, and a
deleted one is still found for a while."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from mezzotint.settings.ranges import Count, Seconds
from mezzotint.sim.cache.outage import Outages
from mezzotint.sim.protocols import Change, Partition, Watcher
from mezzotint.traces.similarity.search import Found, Index


@dataclass(slots=True)
class VectorIndex:
    """Vector index that is updated in batches, one after the other, while it keeps answering.

    A batch starts if none is running and ``batch`` records wait, or the oldest record has waited ``period_s``. It takes
    the oldest ``batch`` records at most, and they take effect together when it is done. During an outage records wait,
    and a batch that an outage interrupts starts again after it. By default updates are immediate.

    Due updates are applied at the next call, in the order and at the times at which they fell due.

    Args:
        batch: records in a batch, insertions and deletions together.
        period_s: longest wait of a record for its batch to fill, in seconds; null waits for a full one.
        per_10k_s: seconds to apply 10,000 records (NIRVANA, 5.4: 7.5 s).
        outages: windows [from_s, until_s] on the run's clock, in seconds, in order.
        timeout_s: seconds that a request waits for an index that is down before it is generated in full.

    Attributes:
        due_s: when ``advance`` next has an update to apply or a batch to start; infinity if nothing waits.
    """

    batch: Count = 1
    period_s: Seconds | None = None
    per_10k_s: Seconds = 0.0
    outages: Sequence[tuple[Seconds, Seconds]] = ()
    timeout_s: Seconds = 1.0
    outage: Outages = field(init=False)
    _indexes: dict[Partition, Index] = field(init=False, default_factory=dict, repr=False)
    _watcher: Watcher | None = field(init=False, default=None, repr=False)
    _waiting: deque[Change] = field(init=False, default_factory=deque, repr=False)
    _running_batch: list[Change] = field(init=False, default_factory=list, repr=False)
    due_s: float = field(init=False, default=inf, repr=False)
    _immediate: bool = field(init=False)
    _serving: bool = field(init=False, default=False)
    _bypasses_batches: bool = field(init=False, default=False)
    """True if updates are immediate and no watcher is registered (fast path)."""

    def __post_init__(self) -> None:
        self.outage = Outages(self.outages, "index.outages")
        self._immediate = (self.batch == 1 or self.period_s == 0) and self.per_10k_s == 0 and not self.outages

    def open(self, make: Callable[[], Index], watcher: Watcher | None = None) -> None:
        """Open empty; nothing is found before ``start_serving``. ``make`` makes the index of one partition
        (mezzotint.traces.similarity.search), and ``watcher`` is notified of applied changes."""
        self._indexes = defaultdict(make)
        self._watcher = watcher

    def __len__(self) -> int:
        """Return the number of entries that can be found."""
        return sum(len(index) for index in self._indexes.values())

    @property
    def is_immediate(self) -> bool:
        """True if changes take effect at once: no entry is found that is gone."""
        return self._immediate and self._serving

    def add(self, partition: Partition, entry: int, row: int, now_s: float) -> None:
        """Add ``entry``, which the cache stored. Entries come in increasing order."""
        # No event can come between the change and its effect, and nobody else is told: the queue would change nothing.
        if self._bypasses_batches:
            self._indexes[partition].add(entry, row)
        else:
            self._submit((now_s, partition, entry, row, True), now_s)

    def remove(self, partition: Partition, entry: int, row: int, now_s: float) -> None:
        """Remove ``entry``, which the cache evicted."""
        if self._bypasses_batches:
            self._indexes[partition].remove(entry)
        else:
            self._submit((now_s, partition, entry, row, False), now_s)

    def find(self, partition: Partition, row: int, now_s: float) -> Found | None:
        """Return the most similar entry that can be found now; None if none reaches the floor."""
        if self.due_s <= now_s:
            # Before the search: updates that fell due since the last call are found.
            self.advance(now_s)
        index = self._indexes.get(partition)
        return None if index is None else index.best(row)

    def start_serving(self) -> None:
        """Start serving at 0 s, with the entries that filled the cache before the start."""
        self._serving = True
        self._bypasses_batches = self._immediate and self._watcher is None
        # At once: the cache was filled before the clock started, and nobody pays for that.
        changes = list(self._waiting)
        self._waiting.clear()
        if changes:
            self._apply(changes, 0.0)

    def _submit(self, change: Change, now_s: float) -> None:
        if self._immediate and self._serving:
            self._apply((change,), now_s)
            return
        if self.due_s <= now_s:
            self.advance(now_s)
        waiting = self._waiting
        # After what fell due before it, or it would join a batch that started earlier than it came.
        waiting.append(change)
        if self._serving and not self._running_batch:
            # The first record of a batch sets when the batch starts at the latest; the following ones only fill it.
            if 1 < len(waiting) < self.batch:
                return  # due_s was set when the oldest record came
            self._start_batch(now_s)
            if self.due_s <= now_s:
                self.advance(now_s)

    def advance(self, now_s: float) -> None:
        """Apply the updates due by ``now_s``, which never falls."""
        while self.due_s <= now_s:
            # Each update at its own time, not at the call's: the next batch starts when the one before is done.
            due_s = self.due_s
            if self._running_batch:
                self._apply(self._running_batch, due_s)
                self._running_batch = []
            # From due_s, not now_s: results must not depend on how often the index is asked.
            self._start_batch(due_s)

    def _start_batch(self, now_s: float) -> None:
        """Start the next batch if it can start now, else set ``due_s`` to when it can."""
        waiting = self._waiting
        if not waiting:
            self.due_s = inf
            return
        if len(waiting) < self.batch:
            # The oldest record's own time: records that came during a batch have waited already.
            start_s = inf if self.period_s is None else waiting[0][0] + self.period_s
            if now_s < start_s:
                self.due_s = start_s
                return
        if len(waiting) <= self.batch:
            self._running_batch = list(waiting)
            waiting.clear()
        else:
            self._running_batch = [waiting.popleft() for _ in range(self.batch)]
        takes_s = len(self._running_batch) * self.per_10k_s / 10_000
        self.due_s = self.outage.completion_s(now_s, takes_s) if self.outages else now_s + takes_s

    def _apply(self, changes: Sequence[Change], now_s: float) -> None:
        for _, partition, entry, row, insert in changes:
            if insert:
                self._indexes[partition].add(entry, row)
            else:
                self._indexes[partition].remove(entry)
        if self._watcher is not None:
            self._watcher.applied(changes, now_s)
