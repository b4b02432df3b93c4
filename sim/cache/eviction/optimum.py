"""Offline optimum: eviction that knows every request to come."""

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from mezzotint.settings.ranges import Count
from mezzotint.sim.cache.eviction.base import K_MASK, items_of
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.protocols import Eviction, Item, Run, Selector
from mezzotint.traces.similarity.neighbours import UNIT, Neighbours, cached_neighbours
from mezzotint.traces.similarity.similarities import SimilaritySource


@dataclass(slots=True)
class Optimum(Eviction):
    """Evict the item whose next possible use lies furthest in the future (Belady's MIN, for similarity caches).

    A possible use of (prompt, K) is a later request of the same cache key that is similar enough to the prompt to skip
    K steps or more, and arrives before the artifact expires.

    Among policies that store every miss it has the most hits if requests do not overlap, each matches at most one
    artifact, and one K (or final images) is stored. Otherwise the optimum is NP-hard, and this is a greedy rule. It
    assumes that a request could use every artifact that is similar enough, and that no larger K of the same prompt
    serves it instead. So it prefers small K: it is a yardstick for hit rate, not for compute saving, and no bound.

    Among equals the oldest entry goes first, of an entry the smallest K. The policy needs every row's neighbours, as
    ``search=cached`` finds and keeps them.

    Args:
        max_neighbours: known neighbours of a row, the most similar ones (mezzotint.traces.similarity.search).

    Raises:
        ConfigError: the selector has no lowest similarity, or artifacts expire in a closed loop, whose arrival times
            nobody knows beforehand.
    """

    max_neighbours: Count = 256
    _run: Run = field(init=False, repr=False)
    _codes: NDArray[np.int64] = field(init=False, repr=False)
    _uses: "PossibleUses" = field(init=False, repr=False)
    _lifetime_s: float = field(init=False, default=np.inf, repr=False)
    _row_of: dict[Item, int] = field(init=False, default_factory=dict, repr=False)
    _expires_s: dict[Item, float] = field(init=False, default_factory=dict, repr=False)
    _next: dict[Item, int] = field(init=False, default_factory=dict, repr=False)
    _due: dict[int, list[Item]] = field(init=False, default_factory=dict, repr=False)
    _heap: list[tuple[int, Item]] = field(init=False, default_factory=list, repr=False)
    _planned_until: int = field(init=False, default=0)

    def restrict(self, codes: NDArray[np.int64], lifetime_s: float | None = None) -> None:
        self._codes, self._lifetime_s = codes, np.inf if lifetime_s is None else lifetime_s

    def bind(self, run: Run, similarity: SimilaritySource, selector: Selector) -> None:
        if selector.floor == -np.inf:
            raise ConfigError(
                "eviction: the offline optimum needs the lowest similarity at which a request can use an artifact, and "
                "this selector has none (floor = -inf); choose another eviction"
            )
        if self._lifetime_s < np.inf and len(run.workload.schedule.times) < run.workload.rows:
            raise ConfigError(
                f"eviction: found the offline optimum beside cache.lifetime_s={self._lifetime_s:g} in a closed loop, "
                "and which requests come before an artifact expires is not known beforehand; add "
                "cache.lifetime_s=null, or choose another eviction or an open arrivals="
            )
        self._run = run
        rows = run.workload.preload + run.workload.rows
        neighbours = cached_neighbours(
            similarity, rows, similarity.product(selector.floor), self.max_neighbours, run.similarity.content
        )
        self._uses = possible_uses(neighbours, similarity, selector, self._codes)
        run.assume("eviction", "offline optimum", "a yardstick: it knows every request to come")
        incomplete = int((~neighbours.complete).sum())
        if incomplete:
            run.assume(
                "offline optimum: rows of which only the most similar neighbours are known",
                f"{incomplete} of {rows}",
                f"more than {self.max_neighbours} artifacts are similar enough to them",
            )

    def added(self, entry: int, ks: tuple[int, ...], row: int) -> None:
        for item in items_of(entry, ks):
            self._row_of[item] = row
            self._expires_s[item] = self._run.clock._now + self._lifetime_s
            self._plan(item, self._run.workload.preload + self._run.arrived)

    def victims(self, count: int) -> list[Item]:
        return [self._victim() for _ in range(count)]

    def _victim(self) -> Item:
        # A next use that is past is no next use: its item would never leave
        # (test_artifact_cache_matches_a_linear_search_of_a_list).
        self._replan_past()
        while True:
            next_use, item = heappop(self._heap)
            # Else it was planned again since: one entry of the heap for each plan, and only the last counts.
            if self._next.get(item) == -next_use:
                del self._next[item], self._row_of[item], self._expires_s[item]
                return item

    def _replan_past(self) -> None:
        """Plan the items again whose next possible use is past."""
        now = self._run.workload.preload + self._run.arrived
        for row in range(self._planned_until, now):
            for item in self._due.pop(row, ()):
                if self._next.get(item) == row:
                    self._plan(item, now)
        self._planned_until = now
        # Outdated entries pile up with replans; each rebuild is paid by as many of them.
        if len(self._heap) > 2 * len(self._next) + 64:
            self._heap = [(-next_use, item) for item, next_use in self._next.items()]
            heapify(self._heap)

    def _plan(self, item: Item, now: int) -> None:
        next_use = self._uses.next(self._row_of[item], item & K_MASK, now)
        # Uses come in the order of arrival: if the artifact has expired by the next, it has by all.
        if next_use < self._uses.n and self._arrival_s(next_use) >= self._expires_s[item]:
            next_use = self._uses.n
        self._next[item] = next_use
        if next_use < self._uses.n:
            self._due.setdefault(next_use, []).append(item)
        # The furthest next use first; of equal ones the smallest item, which is the oldest entry and its smallest K.
        heappush(self._heap, (-next_use, item))

    def _arrival_s(self, row: int) -> float:
        """Return when ``row`` arrives; before all time if artifacts do not expire, and it may be unknown."""
        if self._lifetime_s == np.inf:
            return -np.inf
        workload = self._run.workload
        return float(workload.schedule.times[row - workload.preload])


@dataclass(frozen=True, slots=True)
class PossibleUses:
    """Later rows that could start from the artifact of each row: ``rows[ends[j - 1]:ends[j]]`` for row j, ascending.

    ``ends`` is (n,) int64. For each of the (m,) ``rows``, ``skips`` is the K that the similarity allows, and
    ``same_key`` is True if both rows have the same code of the cache key.
    """

    ends: NDArray[np.int64]
    rows: NDArray[np.int64]
    skips: NDArray[np.int64]
    same_key: NDArray[np.bool_]

    @property
    def n(self) -> int:
        return len(self.ends)

    def next(self, row: int, k: int, now: int) -> int:
        """Return the first row from ``now`` on that could start from the state of ``row`` at ``k``; n if none can."""
        start, stop = self.ends[row - 1] if row else 0, self.ends[row]
        # Left: row ``now`` is the next to arrive, and may use it.
        start += np.searchsorted(self.rows[start:stop], now)
        # A final image (K = 0) serves any K, and no request that may skip none.
        usable = (self.skips[start:stop] >= max(k, 1)) & self.same_key[start:stop]
        return int(self.rows[start + usable.argmax()]) if usable.any() else self.n


def possible_uses(
    neighbours: Neighbours, similarity: SimilaritySource, selector: Selector, codes: NDArray[np.int64]
) -> PossibleUses:
    """Invert ``neighbours``, every row's earlier neighbours; rows of one cache key have one code in ``codes`` (n,)."""
    rows = len(neighbours.ends)
    uses = np.repeat(np.arange(rows), np.diff(neighbours.ends, prepend=0))
    # Stable, so that the uses of a row stay ascending: ``next`` searches them.
    order = np.argsort(neighbours.rows, kind="stable")
    units, unit_of = np.unique(neighbours.units, return_inverse=True)
    # Once for each different similarity: the selector is a function of Python.
    skips = np.array([selector.skip(similarity.similar(unit / UNIT)) for unit in units.tolist()], np.int64)[unit_of]
    same_key = codes[uses] == codes[neighbours.rows]
    ends = np.cumsum(np.bincount(neighbours.rows, minlength=rows))
    return PossibleUses(ends, uses[order], skips[order], same_key[order])
