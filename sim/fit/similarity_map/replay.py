"""Replay of a trace through a FIFO cache of prompts, without a clock: the similarity of every hit.

The floor alone decides which requests hit and, since only misses are stored, what the cache holds. The number of steps
that a hit skips changes neither. One replay for each floor and cache size therefore serves all tables of thresholds.
"""

import numpy as np
from numpy.typing import NDArray

from mezzotint.traces.similarity.cached import CachedIndex
from mezzotint.traces.similarity.exact import Exact
from mezzotint.traces.similarity.neighbours import Neighbours
from mezzotint.traces.similarity.similarities import SimilaritySource

BLOCK = 64
"""Queries compared at a time with the cache, where their lists of neighbours were cut."""


def replay(
    known: Neighbours, source: SimilaritySource, floor: float, prompts: int, preload: int = 0
) -> NDArray[np.float64]:
    """Send the rows of a trace one by one through a cache of ``prompts``; a miss is stored at once.

    Args:
        known: neighbours of every row above a floor no higher than this one.
        source: bound to the trace.
        floor: a hit is more similar than this (NIRVANA, Fig. 10: cosine > threshold).
        prompts: capacity; the oldest prompt is evicted first.
        preload: first rows, which are stored and not served.

    Returns:
        Similarity of each request's hit, NaN for a miss, (rows - preload,) float64.
    """
    count = len(known.ends)
    similarities = np.full(count - preload, np.nan)
    index = CachedIndex(known, lambda: Exact(BLOCK).open(source, count, floor, None)())
    stored = 0
    for row in range(count):
        best = index.best(row) if row >= preload else None
        if best is not None and best[1] > floor:
            similarities[row - preload] = best[1]
            continue
        if stored >= prompts:
            index.remove(stored - prompts)
        index.add(stored, row)
        stored += 1
    return similarities
