"""An offline yardstick: eviction that knows every request to come."""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from conf.ranges import Count
from sim.cache.eviction.base import FINAL, K_MASK, items_of
from sim.core.errors import ConfigError
from sim.protocols import Eviction, Item, Run, Selector
from traces.similarity.neighbours import UNIT, Neighbours, cached_neighbours
from traces.similarity.similarities import SimilaritySource


@dataclass(slots=True)
class Optimum(Eviction):
    """The item whose next possible use lies furthest in the future goes first (Belady's MIN, for similarity caches).

    A possible use of (prompt, K) is a later request that is similar enough to the prompt to skip K steps or more.

    It has the most hits of all policies that store every miss where a request matches one artifact at most, one K (or
    final images) is stored, and a request is done before the next one comes. Elsewhere it is a greedy rule, as the
    optimum is NP-hard: it assumes that a request could use every artifact that is similar enough, and that no larger K
    of the same prompt serves it instead. So it prefers small K: a yardstick for hit rate, not for compute saving, no
    bound.

    Among equals the oldest entry goes first, of an entry the smallest K. It needs every row's neighbours, as
    ``search=cached`` finds and keeps them.

    Args:
        max_neighbours: neighbours of a row that are known; of a row with more, the most similar ones (traces.similarity.search).

    Raises:
        ConfigError: a selector without a lowest similarity.
    """

    max_neighbours: Count = 256
    _run: Run = field(init=False, repr=False)
    _later: "Later" = field(init=False, repr=False)
    _row_of: dict[Item, int] = field(init=False, default_factory=dict, repr=False)
    _next: dict[Item, int] = field(init=False, default_factory=dict, repr=False)
    _due: dict[int, list[Item]] = field(init=False, default_factory=dict, repr=False)
    _heap: list[tuple[int, Item]] = field(init=False, default_factory=list, repr=False)
    _seen: int = field(init=False, default=0)

    def bind(self, run: Run, space: SimilaritySource, selector: Selector) -> None:
        if selector.floor == -np.inf:
            raise ConfigError(
                "eviction: the offline optimum must know from which similarity on a request can use an artifact, and "
                "this selector names none (floor = -inf); choose another eviction"
            )
        self._run = run
        rows = run.workload.preload + run.workload.rows
        known = cached_neighbours(
            space, rows, space.product(selector.floor), self.max_neighbours, run.similarity.content
        )
        self._later = later(known, space, selector, self._shapes(rows))
        run.assume("eviction", "offline optimum", "a yardstick: it knows every request to come")
        cut = int((~known.complete).sum())
        if cut:
            run.assume(
                "offline optimum: rows of which only the most similar neighbours are known",
                f"{cut} of {rows}",
                f"more than {self.max_neighbours} artifacts are similar enough to them",
            )

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        for item in items_of(entry, ks):
            self._row_of[item] = row
            self._plan(item, self._run.workload.preload + self._run.arrived)

    def victims(self, count: int) -> list[Item]:
        return [self._victim() for _ in range(count)]

    def _victim(self) -> Item:
        self._catch_up()
        while True:
            next_use, item = heappop(self._heap)
            if self._next.get(item) == -next_use:
                del self._next[item], self._row_of[item]
                return item

    def _catch_up(self) -> None:
        """Plan anew the items whose next possible use has come and gone."""
        now = self._run.workload.preload + self._run.arrived
        for row in range(self._seen, now):
            for item in self._due.pop(row, ()):
                if self._next.get(item) == row:
                    self._plan(item, now)
        self._seen = now
        if len(self._heap) > 2 * len(self._next) + 64:
            self._heap = [(-next_use, item) for item, next_use in self._next.items()]
            heapify(self._heap)

    def _plan(self, item: Item, now: int) -> None:
        next_use = self._later.next(self._row_of[item], item & K_MASK, now)
        self._next[item] = next_use
        if next_use < self._later.n:
            self._due.setdefault(next_use, []).append(item)
        heappush(self._heap, (-next_use, item))

    def _shapes(self, rows: int) -> NDArray[np.int64]:
        """A number for the shape and steps of every row: latents serve their own shape only."""
        work = self._run.workload
        if work.use_model_shape:
            return np.zeros(rows, np.int64)
        columns = [np.frombuffer(column, np.int32) for column in (work.width, work.height, work.steps)]
        return np.unique(np.stack(columns), axis=1, return_inverse=True)[1].ravel()


@dataclass(frozen=True, slots=True)
class Later:
    """Which later rows could start from the artifact of a row: those of row j are ``rows[ends[j - 1]:ends[j]]``,
    ascending.

    ``ends`` is (n,) int64; of each of the (m,) ``rows``, ``skips`` is the K that the similarity allows, and ``alike``
    whether both have the same shape and steps.
    """

    ends: NDArray[np.int64]
    rows: NDArray[np.int64]
    skips: NDArray[np.int64]
    alike: NDArray[np.bool_]

    @property
    def n(self) -> int:
        return len(self.ends)

    def next(self, row: int, k: int, now: int) -> int:
        """The first row from ``now`` on that could start from the state of ``row`` at ``k``; n where none can."""
        start, stop = self.ends[row - 1] if row else 0, self.ends[row]
        start += np.searchsorted(self.rows[start:stop], now)
        can = self.skips[start:stop] > 0 if k == FINAL else (self.skips[start:stop] >= k) & self.alike[start:stop]
        return int(self.rows[start + can.argmax()]) if can.any() else self.n


def later(known: Neighbours, space: SimilaritySource, selector: Selector, shapes: NDArray[np.int64]) -> Later:
    """``known``, every row's earlier neighbours, turned round; ``shapes`` (n,) tells rows of one shape."""
    rows = len(known.ends)
    of = np.repeat(np.arange(rows), np.diff(known.ends, prepend=0))
    order = np.argsort(known.rows, kind="stable")
    units, which = np.unique(known.units, return_inverse=True)
    skips = np.array([selector.skip(space.similar(unit / UNIT)) for unit in units.tolist()], np.int64)[which]
    alike = shapes[of] == shapes[known.rows]
    ends = np.cumsum(np.bincount(known.rows, minlength=rows))
    return Later(ends, of[order], skips[order], alike[order])
