"""Exact search: a block of coming queries is compared with all artifacts in the cache."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mezzotint.settings.ranges import Count
from mezzotint.traces.similarity.bound import cheapest
from mezzotint.traces.similarity.search import Found, Index
from mezzotint.traces.similarity.similarities import SimilaritySource
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
    whole set in one matrix product. An artifact that is added or removed later changes its column for the queries of
    the block. Only artifacts whose bound reaches the floor are compared in full (mezzotint.traces.similarity.bound).
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

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, entry: int, row: int) -> None:
        slot = self._slots.add(entry, row)
        if slot < self._bounds.shape[1]:
            self._bounds[: len(self._queries), slot] = self._queries_short.dot(self._slots.short[slot])
        else:
            self._stop = self._start  # no column is left: the next query begins a block

    def remove(self, entry: int) -> None:
        slot = self._slots.remove(entry)
        if slot < self._bounds.shape[1]:
            self._bounds[:, slot] = -np.inf

    def best(self, row: int) -> Found | None:
        if not len(self._slots):
            return None
        if not self._start <= row < self._stop:
            self._compare_from(row)
        at = row - self._start
        return self._slots.best(self._bounds[at, : self._slots.used], self._queries[at], self._floor)

    def _compare_from(self, row: int) -> None:
        held = self._slots
        self._start, self._stop = row, min(row + self._block, self._rows)
        self._queries = self._source.queries(self._start, self._stop)
        self._queries_short = self._bound.short(self._queries)
        if held.used + self._block > self._bounds.shape[1]:
            self._bounds = np.empty((self._block, held.used + max(held.used // 4, 2 * self._block)), np.float32)
        bounds = self._bounds[: len(self._queries), : held.used]
        np.matmul(self._queries_short, held.short[: held.used].T, out=bounds)
        # A free slot still holds the vector of the artifact that left it.
        bounds[:, held.entry[: held.used] < 0] = -np.inf
