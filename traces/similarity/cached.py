"""Cached search: every row's neighbours are found once per trace, cached on disk, and looked up in later runs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated

import numpy as np
from annotated_types import Ge

from mezzotint.settings.ranges import Count
from mezzotint.traces.similarity.exact import Exact
from mezzotint.traces.similarity.neighbours import UNIT, Neighbours, asked_for_neighbours, cached_neighbours
from mezzotint.traces.similarity.search import Found, Index
from mezzotint.traces.similarity.similarities import SimilaritySource

FEW_ROWS = 20_000
"""Rows of a trace whose neighbours are found in the first run: that takes three seconds at most."""

FEW = 16
"""Queries compared at a time by the fallback index, which few queries need."""


@dataclass(slots=True)
class CachedSearch:
    """Cached search: looks up every row's earlier neighbours above the floor, found once and kept on disk.

    Args:
        max_rows: a trace of more rows is searched by ``Exact``, since the time to find all neighbours grows with the
            square of the rows.
        max_neighbours: neighbours kept of a row, the most similar ones. If a row had more and none of these is in the
            cache, the cache itself is searched.
        exact_runs: first runs of a trace that search by ``Exact`` if it has more than `FEW_ROWS` rows, since to find
            all neighbours takes up to twice as long; 0 finds them in the first.
    """

    max_rows: Annotated[int, Ge(0)] = 200_000
    max_neighbours: Count = 1024
    exact_runs: Annotated[int, Ge(0)] = 1

    def open(self, source: SimilaritySource, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        if rows > self.max_rows or floor == -np.inf:
            return Exact().open(source, rows, floor, content)
        wanted = source, rows, floor, self.max_neighbours, content
        if rows > FEW_ROWS and asked_for_neighbours(*wanted) < self.exact_runs:
            return Exact().open(source, rows, floor, content)
        known = cached_neighbours(*wanted)

        @cache
        def exact() -> Callable[[], Index]:
            return Exact(FEW).open(source, rows, floor, content)

        return lambda: CachedIndex(known, lambda: exact()())


class CachedIndex:
    """Index that goes through a row's neighbours, best first, until one is in the cache.

    If a list was cut and may lack the best neighbour, an exact index searches. That fallback is made on first use, and
    updated only when it is used again, because it seldom is.
    """

    def __init__(self, known: Neighbours, exact: Callable[[], Index]) -> None:
        self._known = known
        self._exact = exact
        self._entry_of: dict[int, int] = {}
        self._row_of: dict[int, int] = {}
        self._fallback: Index | None = None
        self._pending: list[int] = []
        self.fallbacks = 0

    def __len__(self) -> int:
        return len(self._row_of)

    def add(self, entry: int, row: int) -> None:
        self._entry_of[row] = entry
        self._row_of[entry] = row
        if self._fallback is not None:
            self._pending.append(entry)

    def remove(self, entry: int) -> None:
        del self._entry_of[self._row_of.pop(entry)]
        if self._fallback is not None:
            self._pending.append(~entry)

    def best(self, row: int) -> Found | None:
        start, stop, ends, rows, units, complete = self._known.heads
        if not start <= row < stop:
            start, stop, ends, rows, units, complete = self._known.load_heads(row)
        at = row - start
        own, is_complete = range(ends[at], ends[at + 1]), complete[at]
        entry_of = self._entry_of
        while True:
            for at in own:
                if rows[at] in entry_of:
                    entry, unit = entry_of[rows[at]], units[at]
                    for tied in range(at + 1, own.stop):
                        if units[tied] != unit:
                            return entry, unit / UNIT
                        entry = min(entry, entry_of.get(rows[tied], entry))
                    # The oldest of ties is wanted, and a list that was cut may end within a tie.
                    if is_complete:
                        return entry, unit / UNIT
                    break
            if is_complete:
                return None
            # Few reach far: half of the searches beyond the head end within 48 neighbours.
            rows, units, is_complete = self._known.first(row, 4 * len(own))
            if len(rows) == len(own):
                return self._search(row)
            own = range(len(rows))

    def _search(self, row: int) -> Found | None:
        self.fallbacks += 1
        if self._fallback is None:
            self._fallback = self._exact()
            self._pending = sorted(self._row_of)
        added = dict.fromkeys(entry for entry in self._pending if entry >= 0)
        for removed in (~entry for entry in self._pending if entry < 0):
            if removed in added:
                del added[removed]
            else:
                self._fallback.remove(removed)
        for entry in added:
            self._fallback.add(entry, self._row_of[entry])
        self._pending = []
        return self._fallback.best(row)
