"""The vector database: which entries a search can find, and from when on. It is updated in batches, in the background
(NIRVANA, 5.4: cache-maintainer), so a new entry is found late, and a deleted one is still found for a while."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

from conf.ranges import Count, Seconds
from sim.cache.outage import Outages
from sim.protocols import Change, Shape, Watcher
from traces.similarity.search import Found, Index


@dataclass(slots=True)
class VectorIndex:
    """A vector database that is updated in batches, one after the other, while it goes on answering.

    A batch begins as soon as none is under way and ``batch`` records wait, or the oldest has waited ``period_s``.
    It takes the oldest ``batch`` records at most, and all of them are seen when it is done. During an outage
    records wait, and a batch that an outage cuts begins again after it. By default the database knows at once.

    What is due is applied when somebody next asks, in the order and at the times at which it fell due.

    Args:
        batch: records, insertions and deletions together.
        period_s: seconds that a record waits at most for its batch to fill; null waits for a full one.
        per_10k_s: seconds to apply 10,000 records (NIRVANA, 5.4: 7.5 s).
        outages: windows [from_s, until_s] on the run's clock, in seconds, in order.
        timeout_s: how long a request waits for a database that is down before it is generated in full.

    Attributes:
        due_s: when ``advance`` has something to do next; infinity where nothing waits.
    """

    batch: Count = 1
    period_s: Seconds | None = None
    per_10k_s: Seconds = 0.0
    outages: Sequence[tuple[Seconds, Seconds]] = ()
    timeout_s: Seconds = 1.0
    outage: Outages = field(init=False)
    _indexes: dict[Shape, Index] = field(init=False, default_factory=dict, repr=False)
    _make: Callable[[], Index] = field(init=False, repr=False)
    _watcher: Watcher | None = field(init=False, default=None, repr=False)
    _waiting: deque[Change] = field(init=False, default_factory=deque, repr=False)
    _under_way: list[Change] = field(init=False, default_factory=list, repr=False)
    due_s: float = field(init=False, default=inf, repr=False)
    _at_once: bool = field(init=False)
    _serving: bool = field(init=False, default=False)
    _known_at_once: bool = field(init=False, default=False)
    """Whether nobody else is told of what is stored."""

    def __post_init__(self) -> None:
        self.outage = Outages(self.outages, "index.outages")
        self._at_once = (self.batch == 1 or self.period_s == 0) and self.per_10k_s == 0 and not self.outages

    def open(self, make: Callable[[], Index], watcher: Watcher | None = None) -> None:
        """Begin empty, with nothing to be found before ``settle``: ``make`` gives the indexes
        (traces.similarity.search), ``watcher`` is told of what is applied."""
        self._make = make
        self._watcher = watcher

    def __len__(self) -> int:
        """Records that can be found."""
        return sum(len(index) for index in self._indexes.values())

    def add(self, shape: Shape, entry: int, row: int, now_s: float) -> None:
        """The cache stored ``entry``. Entries are given in increasing order."""
        if self._known_at_once:
            self._index(shape).add(entry, row)
        else:
            self._ask((now_s, shape, entry, row, True), now_s)

    def remove(self, shape: Shape, entry: int, row: int, now_s: float) -> None:
        """The cache let ``entry`` go."""
        if self._known_at_once:
            self._index(shape).remove(entry)
        else:
            self._ask((now_s, shape, entry, row, False), now_s)

    def best(self, shape: Shape, row: int, now_s: float) -> Found | None:
        """The most similar entry that can be found now; None where none reaches the floor."""
        if self.due_s <= now_s:
            self.advance(now_s)
        index = self._indexes.get(shape)
        return None if index is None else index.best(row)

    def settle(self, now_s: float) -> None:
        """Begin to serve: what filled the cache before the start is there when it starts."""
        self._serving = True
        self._known_at_once = self._at_once and self._watcher is None
        changes = list(self._waiting)
        self._waiting.clear()
        if changes:
            self._apply(changes, now_s)

    def _ask(self, change: Change, now_s: float) -> None:
        if self._at_once and self._serving:
            self._apply((change,), now_s)
            return
        if self.due_s <= now_s:
            self.advance(now_s)
        waiting = self._waiting
        waiting.append(change)
        if self._serving and not self._under_way:
            if 1 < len(waiting) < self.batch:
                return  # when the next batch begins was said as the oldest came
            self._begin(now_s)
            if self.due_s <= now_s:
                self.advance(now_s)

    def advance(self, now_s: float) -> None:
        """Apply what is due by ``now_s``, which never falls."""
        while self.due_s <= now_s:
            at_s = self.due_s
            if self._under_way:
                self._apply(self._under_way, at_s)
                self._under_way = []
            self._begin(at_s)

    def _begin(self, now_s: float) -> None:
        """Begin the next batch if there is one to begin, else say when there will be."""
        waiting = self._waiting
        if not waiting:
            self.due_s = inf
            return
        if len(waiting) < self.batch:
            latest_s = inf if self.period_s is None else waiting[0][0] + self.period_s
            if now_s < latest_s:
                self.due_s = latest_s
                return
        if len(waiting) <= self.batch:
            self._under_way = list(waiting)
            waiting.clear()
        else:
            self._under_way = [waiting.popleft() for _ in range(self.batch)]
        takes_s = len(self._under_way) * self.per_10k_s / 10_000
        self.due_s = self.outage.done_s(now_s, takes_s) if self.outages else now_s + takes_s

    def _index(self, shape: Shape) -> Index:
        index = self._indexes.get(shape)
        if index is None:
            index = self._indexes[shape] = self._make()
        return index

    def _apply(self, changes: Sequence[Change], now_s: float) -> None:
        for _, shape, entry, row, insert in changes:
            if insert:
                self._index(shape).add(entry, row)
            else:
                self._index(shape).remove(entry)
        if self._watcher is not None:
            self._watcher.applied(changes, now_s)
