"""Remembered search: every row's neighbours are found once for a trace, kept on disk, and looked up from then on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge

from conf.ranges import Count
from traces.similarity.exact import Exact
from traces.similarity.neighbours import UNIT, Neighbours, cached_neighbours
from traces.similarity.search import Found, Index
from traces.similarity.similarities import SimilaritySource

FEW = 16
"""Queries compared at a time where the one after the next seldom needs it."""


@dataclass(slots=True)
class CachedSearch:
    """Finds every row's earlier neighbours above the floor once, on disk, and looks them up from then on.

    Args:
        max_rows: traces of more rows are searched as ``Exact`` does, since finding all neighbours takes time that
            grows with the square of the rows.
        max_neighbours: neighbours kept of a row, the most similar ones. Where none of them is in the cache and there were
            more, the cache itself is searched.
    """

    max_rows: Annotated[int, Ge(0)] = 200_000
    max_neighbours: Count = 1024

    def open(self, source: SimilaritySource, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        if rows > self.max_rows or floor == -np.inf:
            return Exact().open(source, rows, floor, content)
        known = cached_neighbours(source, rows, floor, self.max_neighbours, content)
        return lambda: CachedIndex(known, lambda: Exact(FEW).open(source, rows, floor, content)())


class CachedIndex:
    """Looks a row's neighbours up, best first, until one is in the cache.

    Where a list was cut, and may lack the best, an exact index is asked. It is made when that first happens, and
    learns what came and left since only when it is asked again: it seldom is.
    """

    def __init__(self, known: Neighbours, exact: Callable[[], Index]) -> None:
        self._known = known
        self._exact = exact
        self._entry_of: dict[int, int] = {}
        self._row_of: dict[int, int] = {}
        self._fallback: Index | None = None
        self._late: list[int] = []
        self.fallbacks = 0

    def __len__(self) -> int:
        return len(self._row_of)

    def add(self, entry: int, row: int) -> None:
        self._entry_of[row] = entry
        self._row_of[entry] = row
        if self._fallback is not None:
            self._late.append(entry)

    def remove(self, entry: int) -> None:
        del self._entry_of[self._row_of.pop(entry)]
        if self._fallback is not None:
            self._late.append(~entry)

    def best(self, row: int) -> Found | None:
        rows, units, its, alone = self._known.head(row)
        found = self._among(rows, units, its)
        # Among equals the oldest is found; those at the end of what is known may not be all equals.
        if not alone and (found is None or found[1] == units[its[-1]]):
            rows, units, complete = self._known.all_of(row)
            found = self._among(rows, units, range(len(rows)))
            if not complete and (found is None or found[1] == units[-1]):
                return self._search(row)
        return None if found is None else (found[0], found[1] / UNIT)

    def _among(self, rows: list[int], units: list[int], its: range) -> tuple[int, int] | None:
        """The best entry of those neighbours, the oldest of equals, and its similarity in millionths."""
        entry_of = self._entry_of
        for at in its:
            if rows[at] in entry_of:
                entry, unit = entry_of[rows[at]], units[at]
                for other in range(at + 1, its.stop):
                    if units[other] != unit:
                        break
                    entry = min(entry, entry_of.get(rows[other], entry))
                return entry, unit
        return None

    def _search(self, row: int) -> Found | None:
        self.fallbacks += 1
        if self._fallback is None:
            self._fallback = self._exact()
            self._late = sorted(self._row_of)
        came = dict.fromkeys(entry for entry in self._late if entry >= 0)
        for gone in (~entry for entry in self._late if entry < 0):
            if gone in came:
                del came[gone]
            else:
                self._fallback.remove(gone)
        for entry in came:
            self._fallback.add(entry, self._row_of[entry])
        self._late = []
        return self._fallback.best(row)
