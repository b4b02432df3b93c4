"""Approximate search, for caches too large to compare with every artifact.

Short vectors of the artifacts (bound.py) are held as product-quantised codes, scanned in registers
(faiss' fast scan; Andre et al., 2015). The best candidates by code are compared in full.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mezzotint.extras import remedy
from mezzotint.settings.ranges import Count
from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.bound import Bound, fit
from mezzotint.traces.similarity.search import Found, Index
from mezzotint.traces.similarity.similarities import SimilaritySource
from mezzotint.traces.similarity.slots import Blocks, Slots

TRAINED_ON = 20_000
"""Rows that the codes are trained on."""

UNCODED = 4096
"""Artifacts without codes, at most; queries compare with all of these."""

NOWHERE = -2
"""The entry of a missing candidate: never that of a slot."""

QUERIES_AT_ONCE = 0x44
"""faiss scans the codes for eight queries at a time, as two groups of four: the fastest setting measured."""


@dataclass(slots=True)
class Approximate:
    """Approximate search: compares coming queries with codes of the artifacts, and the best candidates in full.

    Args:
        candidates: artifacts compared in full for each query.
        axes: coordinates coded; a multiple of ``axes_per_code``.
        axes_per_code: coordinates that share a code of 4 bits.
        block: queries searched at a time.

    Raises TraceError if faiss is missing (the ``ann`` extra).
    """

    candidates: Count = 128
    axes: Count = 216
    axes_per_code: Count = 3
    block: Count = 256

    def __post_init__(self) -> None:
        if self.axes % self.axes_per_code:
            raise TraceError(f"search: axes={self.axes}, expected a multiple of axes_per_code={self.axes_per_code}")
        _faiss()

    def open(self, source: SimilaritySource, rows: int, floor: float, content: str | None) -> Callable[[], Index]:
        axes = fit(source, rows, self.axes).axes
        count = axes.shape[1] // self.axes_per_code * self.axes_per_code
        sample = np.unique(np.linspace(0, rows - 1, min(rows, TRAINED_ON)).astype(np.int64))
        if count == 0 or len(sample) < 16:
            raise TraceError(
                f"search: {rows} rows of {axes.shape[0]} dimensions are too few to learn codes from; use search=exact"
            )
        # A random rotation keeps all products and spreads the variance evenly over the codes.
        rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(count, count)))[0]
        bound = Bound(np.ascontiguousarray(axes[:, :count] @ rotation.astype(np.float32)))
        coordinates = np.ascontiguousarray(bound.short(source.artifacts(sample))[:, :count])

        blocks = Blocks(source, rows, bound)

        @cache
        def trained() -> Any:
            faiss = _faiss()
            codes = faiss.IndexPQFastScan(count, count // self.axes_per_code, 4, faiss.METRIC_INNER_PRODUCT)
            codes.pq.cp.min_points_per_centroid = 1  # no warning for short traces
            codes.train(coordinates)
            return codes

        def make_index() -> Index:
            # A copy for each partition, since training takes seconds.
            codes = _faiss().clone_index(trained())
            codes.qbs = QUERIES_AT_ONCE
            return ApproximateIndex(source, rows, floor, blocks, codes, self)

        return make_index


class ApproximateIndex:
    """Index of the artifacts coded when the block began, minus those removed, plus those added since."""

    def __init__(
        self, source: SimilaritySource, rows: int, floor: float, blocks: Blocks, codes: Any, settings: Approximate
    ) -> None:
        self._source = source
        self._rows = rows
        self._floor = floor
        self._bound = bound = blocks.bound
        self._codes = codes
        self._settings = settings
        self._slots = Slots(blocks)
        self._coded_slot = self._coded_entry = np.empty(0, np.int64)
        self._added_slot = np.empty(UNCODED, np.int64)
        self._added_short = np.empty((UNCODED, bound.axes.shape[1] + 1), np.float32)
        self._uncoded = 0
        self._first_uncoded = 0
        self._removed = 0
        self._start = self._stop = 0
        self._queries = self._short = np.empty((0, 0), np.float32)
        self._found_slot = self._found_entry = np.empty((0, 0), np.int64)

    def __len__(self) -> int:
        return len(self._slots)

    def add(self, entry: int, row: int) -> None:
        if self._uncoded == UNCODED:
            self._code()
            self._stop = self._start
        if self._uncoded == 0:
            self._first_uncoded = entry
        self._added_slot[self._uncoded] = slot = self._slots.add(entry, row)
        self._added_short[self._uncoded] = self._slots.short[slot]
        self._uncoded += 1

    def remove(self, entry: int) -> None:
        self._slots.remove(entry)
        if self._uncoded == 0 or entry < self._first_uncoded:
            self._removed += 1

    def best(self, row: int) -> Found | None:
        """Return the best of the candidates; an artifact that the codes rank low may be missed."""
        if not len(self._slots):
            return None
        if not self._start <= row < self._stop:
            self._compare_from(row)
        at = row - self._start
        held, query = self._slots, self._short[at]
        slots = self._found_slot[at]
        slots = slots[held.entry[slots] == self._found_entry[at]]
        added = self._added_slot[: self._uncoded]  # a slot used twice is here twice, once with its old bound
        bounds = self._added_short[: self._uncoded].dot(query)
        bounds[held.entry[added] < self._first_uncoded] = -np.inf
        slots, bounds = np.concatenate((slots, added)), np.concatenate((held.short[slots].dot(query), bounds))
        return held.best(bounds, self._queries[at], self._floor, slots)

    def _code(self) -> None:
        """Code the added artifacts; if most codes are of removed artifacts, code all held ones anew."""
        if self._removed > len(self._slots) // 2:
            self._codes.reset()
            self._removed = 0
            self._coded_slot = self._coded_entry = np.empty(0, np.int64)
            fresh = np.flatnonzero(self._slots.entry[: self._slots.used] >= 0)
        else:
            fresh = np.unique(self._added_slot[: self._uncoded])  # a slot may have been freed and used again
            fresh = fresh[self._slots.entry[fresh] >= self._first_uncoded]
        if len(fresh):
            self._codes.add(np.ascontiguousarray(self._slots.short[fresh, : self._codes.d]))
            self._coded_slot = np.concatenate((self._coded_slot, fresh))
            self._coded_entry = np.concatenate((self._coded_entry, self._slots.entry[fresh]))
        self._uncoded = 0

    def _compare_from(self, row: int) -> None:
        self._code()
        self._start, self._stop = row, min(row + self._settings.block, self._rows)
        self._queries = self._source.queries(self._start, self._stop)
        self._short = self._bound.short(self._queries)
        coordinates = np.ascontiguousarray(self._short[:, : self._codes.d])
        found = self._codes.search(coordinates, self._settings.candidates)[1]
        self._found_slot = self._coded_slot[found]
        self._found_entry = np.where(found >= 0, self._coded_entry[found], NOWHERE)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise TraceError(f"search=approximate needs faiss; {remedy('ann')}") from None
    return faiss
