"""Exact search: a block of coming queries is compared with all artifacts in the cache."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mezzotint.settings.ranges import Count
from mezzotint.traces.similarity.bound import cheapest
from mezzotint.traces.similarity.search import Found, Index
from mezzotint.traces.similarity.similarities import Floats, SimilaritySource
from mezzotint.traces.similarity.slots import Blocks, Slots


@dataclass(slots=True)
class Exact:
    """Exact search: compares coming queries with all artifacts in the cache, ``block`` queries at a time."""

    block: Count = 256

    def open(self, source: SimilaritySource, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        blocks = Blocks(source, rows, cheapest(source, rows, floor, nearest=True))
        return lambda: ExactIndex(source, rows, floor, blocks, self.block)


class ExactIndex:
    """Exact index over a changing set of artifacts, in blocks of coming queries.

    The rows to look up are known in advance and come in increasing order. So ``block`` of them are compared with the
    whole set in one matrix product. Artifacts added or removed before a query's turn are accounted for then. Only
    artifacts whose bound reaches the floor are compared in full (mezzotint.traces.similarity.bound).
    """

    def __init__(self, source: SimilaritySource, rows: int, floor: float, blocks: Blocks, block: int = 256) -> None:
        self._source = source
        self._rows = rows
        self._floor = floor
        self._bound = blocks.bound
        self._block = block
        self._slots = Slots(blocks)
        self._start = self._stop = 0
        self._queries = self._queries_short = self._bounds = np.empty((0, 0), np.float32)
        self._changed: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, entry: int, row: int) -> None:
        self._changed[self._slots.add(entry, row)] = None

    def remove(self, entry: int) -> None:
        self._changed[self._slots.remove(entry)] = None

    def best(self, row: int) -> Found | None:
        if not len(self._slots):
            return None
        if not self._start <= row < self._stop:
            self._compare_from(row)
        bounds = self._bounds[row - self._start]
        if self._changed:
            bounds = self._amend(bounds, self._queries_short[row - self._start])
        return self._slots.best(bounds, self._queries[row - self._start], self._floor)

    def _amend(self, bounds: Floats, query: Floats) -> Floats:
        """Return the bounds of one query, corrected in the slots that changed since its block was compared."""
        held = self._slots
        slots = np.fromiter(self._changed, np.int64, len(self._changed))
        if len(bounds) < held.used:
            # The set grew since the block was compared: what is new is among the changed slots.
            bounds = np.concatenate((bounds, np.full(held.used - len(bounds), -np.inf, np.float32)))
        # A slot may be free again, and keep its old vector until it is reused (test_every_search_matches_brute_force).
        bounds[slots] = np.where(held.entry[slots] >= 0, held.short[slots].dot(query), -np.inf)
        return bounds

    def _compare_from(self, row: int) -> None:
        held = self._slots
        self._start, self._stop = row, min(row + self._block, self._rows)
        self._queries = self._source.queries(self._start, self._stop)
        self._queries_short = self._bound.short(self._queries)
        self._bounds = self._queries_short @ held.short[: held.used].T
        # A free slot still holds the vector of the artifact that left it.
        self._bounds[:, held.entry[: held.used] < 0] = -np.inf
        self._changed = {}
