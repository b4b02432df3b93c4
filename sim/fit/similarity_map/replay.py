"""A trace through a FIFO cache of prompts, without a clock: how similar what it finds is.

Which requests hit follows from the floor alone, and so does what is in the cache, since only misses are stored. How
many steps a hit skips changes nothing of it. So one pass for each floor and size serves all tables of thresholds.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from traces.similarity.neighbours import UNIT, Neighbours
from traces.similarity.similarities import SimilaritySource, similarity

AHEAD, NEAR = 64, 8
"""Rows that are compared at a time where lists were cut; products in single precision that are compared in full."""

Floats = NDArray[np.float64]


def replay(known: Neighbours, space: SimilaritySource, floor: float, prompts: int, preload: int = 0) -> Floats:
    """Send the rows of a trace one by one through a cache of ``prompts``; what does not hit is stored at once.

    Args:
        known: the neighbours of every row, of a floor no higher than this one; where a list was cut and none of it is
            in the cache, the cache is searched.
        space: bound to the trace.
        floor: a hit is more similar than this (NIRVANA, Fig. 10: cosine > threshold).
        prompts: held at most; the oldest leaves first.
        preload: rows at the head that are stored and not served.

    Returns (rows - preload,) float64: the similarity of each request's hit, NaN for a miss.
    """
    count = len(known.ends)
    found = np.full(count - preload, np.nan)
    stored = np.empty(count, np.int64)  # rows in the order of their insertion
    held = np.zeros(count, np.bool_)
    cut = _Cut(space, np.flatnonzero(~known.complete), stored)
    newest, start, least = 0, 0, round(floor * UNIT)
    for row, end in enumerate(known.ends.tolist()):
        if row >= preload:
            there = held[known.rows[start:end]]
            at = int(there.argmax()) if end > start else 0
            if end > start and there[at]:
                best = int(known.units[start + at])
            elif known.complete[row] or known.units[end - 1] <= least:
                best = least
            else:
                best = cut.best(row, max(newest - prompts, 0), newest)
            if best > least:
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
class _Cut:
    """Searches for the ``rows`` whose lists were cut, many at a time, in what was ``stored`` when the first came."""

    space: SimilaritySource
    rows: NDArray[np.int64]
    stored: NDArray[np.int64]
    _products: NDArray[np.float32] = field(init=False, default_factory=lambda: np.empty((0, 0), np.float32))
    _held: tuple[int, int, int] = field(init=False, default=(0, 0, 0))

    def best(self, row: int, oldest: int, newest: int) -> int:
        """The similarity in millionths of the best of what was stored ``oldest``-th to before ``newest``-th."""
        at = int(np.searchsorted(self.rows, row))
        first, since, until = self._held
        if at >= first + len(self._products):
            asked = self.rows[at : at + AHEAD]
            queries = np.concatenate([self.space.queries(each, each + 1) for each in asked.tolist()])
            self._products = queries @ self.space.artifacts(self.stored[oldest:newest]).T
            first, since, until = self._held = at, oldest, newest
        query = self.space.queries(row, row + 1)
        known = self._products[at - first, oldest - since :]
        late = self.space.artifacts(self.stored[max(until, oldest) : newest]) @ query[0]
        products = np.concatenate((known, late))
        near = np.argpartition(products, -min(NEAR, len(products)))[-NEAR:]
        artifacts = self.space.artifacts(self.stored[oldest + near])
        exact = similarity(np.repeat(query, len(near), axis=0), artifacts)
        units: int = round(float(exact.max()) * UNIT)
        return units
