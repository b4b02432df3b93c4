"""Replay of a trace through a FIFO cache of prompts, without a clock: the similarity of every hit.

The floor alone decides which requests hit and, since only misses are stored, what the cache holds. The number of steps
that a hit skips changes neither. One replay for each floor and cache size therefore serves all tables of thresholds.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mezzotint.traces.similarity.neighbours import UNIT, Neighbours
from mezzotint.traces.similarity.similarities import SimilaritySource, similarity

ROWS_AT_A_TIME = 64
"""Rows with truncated lists that are compared at once."""

CANDIDATES = 8
"""Best single-precision products that are compared in double precision."""

Floats = NDArray[np.float64]


def replay(known: Neighbours, source: SimilaritySource, floor: float, prompts: int, preload: int = 0) -> Floats:
    """Send the rows of a trace one by one through a cache of ``prompts``; a miss is stored at once.

    Args:
        known: neighbours of every row above a floor no higher than this one. If a list was truncated and the cache
            holds none of it, the cache is searched.
        source: bound to the trace.
        floor: a hit is more similar than this (NIRVANA, Fig. 10: cosine > threshold).
        prompts: capacity; the oldest prompt is evicted first.
        preload: first rows, which are stored and not served.

    Returns:
        Similarity of each request's hit, NaN for a miss, (rows - preload,) float64.
    """
    count = len(known.ends)
    found = np.full(count - preload, np.nan)
    stored = np.empty(count, np.int64)  # rows in the order of their insertion
    held = np.zeros(count, np.bool_)
    truncated = _TruncatedRows(source, np.flatnonzero(~known.complete), stored)
    newest, start, floor_units = 0, 0, round(floor * UNIT)
    for row, end in enumerate(known.ends.tolist()):
        if row >= preload:
            is_held = held[known.rows[start:end]]
            at = int(is_held.argmax()) if end > start else 0
            if end > start and is_held[at]:
                best = int(known.units[start + at])
            elif known.complete[row] or known.units[end - 1] <= floor_units:
                best = floor_units
            else:
                best = truncated.best_units(row, max(newest - prompts, 0), newest)
            if best > floor_units:
                found[row - preload] = best / UNIT
                start = end
                continue
        start = end
        if newest >= prompts:
            held[stored[newest - prompts]] = False
        stored[newest] = row
        held[row] = True
        newest += 1
    return found


@dataclass(slots=True)
class _TruncatedRows:
    """Search of the cache for the rows whose neighbour lists were truncated, many rows at once."""

    source: SimilaritySource
    rows: NDArray[np.int64]
    stored: NDArray[np.int64]
    _products: NDArray[np.float32] = field(init=False, default_factory=lambda: np.empty((0, 0), np.float32))
    _compared: tuple[int, int, int] = field(init=False, default=(0, 0, 0))

    def best_units(self, row: int, oldest: int, newest: int) -> int:
        """Return the best similarity, in millionths, to the insertions from ``oldest`` to before ``newest``."""
        at = int(np.searchsorted(self.rows, row))
        first, since, until = self._compared
        if at >= first + len(self._products):
            rows = self.rows[at : at + ROWS_AT_A_TIME]
            queries = np.concatenate([self.source.queries(each, each + 1) for each in rows.tolist()])
            self._products = queries @ self.source.artifacts(self.stored[oldest:newest]).T
            first, since, until = self._compared = at, oldest, newest
        query = self.source.queries(row, row + 1)
        known = self._products[at - first, oldest - since :]
        later = self.source.artifacts(self.stored[max(until, oldest) : newest]) @ query[0]
        products = np.concatenate((known, later))
        near = np.argpartition(products, -min(CANDIDATES, len(products)))[-CANDIDATES:]
        artifacts = self.source.artifacts(self.stored[oldest + near])
        exact = similarity(np.repeat(query, len(near), axis=0), artifacts)
        units: int = round(float(exact.max()) * UNIT)
        return units
