"""Approximate search, for caches so large that comparing with all of them takes too long.

The short coordinates of the artifacts (traces.bound) are held as product-quantised codes that are scanned in
registers (faiss' fast scan; Andre et al., 2015), and the best few by code are compared in full. Against the same
cache searched exactly, recall at 1 is reported by the benchmarks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from traces.bound import SLACK, Bound, fit
from traces.error import TraceError
from traces.search import Found, Index, Slots
from traces.similarity import Space

TRAINED_ON = 20_000
"""Rows that the codes are learnt from."""


@dataclass(slots=True)
class Approximate:
    """Compares coming queries with codes of the cache, and the best few in full.

    Args:
        candidates: artifacts compared in full for each query.
        axes: coordinates that are coded, two to a code; even.
        block: queries searched at a time.

    Raises:
        TraceError: a number that cannot be, or faiss is missing (the ``ann`` extra).
    """

    candidates: int = 64
    axes: int = 128
    block: int = 256

    def __post_init__(self) -> None:
        if min(self.candidates, self.axes, self.block) < 1 or self.axes % 2:
            raise TraceError(f"search: found {self}, expected numbers of 1 or more and an even number of axes")
        _faiss()

    def open(self, space: Space, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        """See traces.search.Search.open."""
        bound = fit(space, rows, self.axes)
        axes = bound.axes.shape[1] // 2 * 2
        sample = np.unique(np.linspace(0, rows - 1, min(rows, TRAINED_ON)).astype(np.int64))
        if axes == 0 or len(sample) < 16:
            raise TraceError(f"search: {rows} rows are too few to learn codes from; use search=exact")
        coordinates = np.ascontiguousarray(bound.short(space.artifacts(sample))[:, :axes])

        def made() -> Index:
            faiss = _faiss()
            codes = faiss.IndexPQFastScan(axes, axes // 2, 4, faiss.METRIC_INNER_PRODUCT)
            codes.pq.cp.min_points_per_centroid = 1  # a short trace is no reason to warn
            codes.train(coordinates)
            return ApproximateIndex(space, rows, floor, bound, codes, self)

        return made


class ApproximateIndex:
    """Codes of what was held when the block began, minus what left since, plus what came since."""

    def __init__(self, space: Space, rows: int, floor: float, bound: Bound, codes: Any, settings: Approximate) -> None:
        self._space = space
        self._rows = rows
        self._floor = floor
        self._bound = bound
        self._codes = codes
        self._settings = settings
        self._slots = Slots(space, rows, bound)
        self._coded_slot = np.empty(0, np.int64)
        self._coded_entry = np.empty(0, np.int64)
        self._came: dict[int, int] = {}
        self._gone = 0
        self._start = self._stop = 0
        self._queries = self._short = np.empty((0, 0), np.float32)
        self._found = np.empty((0, 0), np.int64)

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, entry: int, row: int) -> None:
        """See Index.add."""
        self._came[entry] = self._slots.add(entry, row)

    def remove(self, entry: int) -> None:
        """See Index.remove."""
        self._slots.remove(entry)
        if self._came.pop(entry, None) is None:
            self._gone += 1

    def best(self, row: int) -> Found | None:
        """See Index.best; an artifact that the codes rank low may be missed."""
        if not len(self._slots):
            return None
        if not self._start <= row < self._stop:
            self._compare_from(row)
        found = self._found[row - self._start]
        found = found[found >= 0]
        slots = self._coded_slot[found]
        slots = slots[self._slots.entry[slots] == self._coded_entry[found]]
        came = np.fromiter(self._came.values(), np.int64, len(self._came))
        slots = np.concatenate((slots, came))
        reach = self._slots.short[slots] @ self._short[row - self._start] >= np.float32(self._floor) - SLACK
        return self._slots.best(slots[reach], self._queries[row - self._start].astype(np.float64), self._floor)

    def _compare_from(self, row: int) -> None:
        if self._gone > len(self._slots) // 2:
            self._codes.reset()
            self._gone = 0
            self._coded_slot = self._coded_entry = np.empty(0, np.int64)
            fresh = np.flatnonzero(self._slots.entry[: self._slots.used] >= 0)
        else:
            fresh = np.fromiter(self._came.values(), np.int64, len(self._came))
        if len(fresh):
            self._codes.add(np.ascontiguousarray(self._slots.short[fresh][:, : self._codes.d]))
            self._coded_slot = np.concatenate((self._coded_slot, fresh))
            self._coded_entry = np.concatenate((self._coded_entry, self._slots.entry[fresh]))
        self._came = {}
        self._start, self._stop = row, min(row + self._settings.block, self._rows)
        self._queries = self._space.queries(self._start, self._stop)
        self._short = self._bound.short(self._queries)
        coordinates = np.ascontiguousarray(self._short[:, : self._codes.d])
        self._found = self._codes.search(coordinates, self._settings.candidates)[1]


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise TraceError("search=approximate needs faiss; install it with: pip install 'mezzotint[ann]'") from None
    return faiss
