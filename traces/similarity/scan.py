"""Scan of few artifacts, for caches whose key divides them into many small partitions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mezzotint.traces.similarity.search import Found, Index
from mezzotint.traces.similarity.similarities import SimilaritySource, similarity

MAX_SCANNED = 64
"""Artifacts above which an index pays."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Compare each query with every artifact in the cache. It needs no vector before its artifact is in the cache."""

    def open(self, source: SimilaritySource, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        return lambda: ScanFirst(source, floor, None)


class ScanFirst:
    """Index that compares a query with each artifact, until there are more than `MAX_SCANNED`: then ``make`` makes the
    index that goes on, None for none. The result is the same, and a partition of few artifacts takes little memory."""

    def __init__(self, source: SimilaritySource, floor: float, make: Callable[[], Index] | None) -> None:
        self._source = source
        self._floor = floor
        self._make = make
        self._row_of: dict[int, int] = {}
        self._index: Index | None = None

    def __len__(self) -> int:
        return len(self._row_of) if self._index is None else len(self._index)

    def add(self, entry: int, row: int) -> None:
        if self._index is not None:
            self._index.add(entry, row)
            return
        self._row_of[entry] = row
        if self._make is not None and len(self._row_of) > MAX_SCANNED:
            self._index = self._make()
            for held, its_row in self._row_of.items():
                self._index.add(held, its_row)
            self._row_of.clear()

    def remove(self, entry: int) -> None:
        if self._index is None:
            del self._row_of[entry]
        else:
            self._index.remove(entry)

    def best(self, row: int) -> Found | None:
        if self._index is not None:
            return self._index.best(row)
        if not self._row_of:
            return None
        rows = np.fromiter(self._row_of.values(), np.int64, len(self._row_of))
        query = self._source.queries(row, row + 1)
        products = similarity(np.broadcast_to(query, (len(rows), query.shape[1])), self._source.artifacts(rows))
        best = int(products.argmax())  # the first of ties, and entries are in order of age
        if not products[best] >= self._floor:
            return None
        return list(self._row_of)[best], float(products[best])
