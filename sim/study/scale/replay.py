"""A trace through a FIFO cache of prompts, without a clock: how similar what it finds is.

Which requests hit follows from the floor alone, and so does what is in the cache, since only misses are stored. How
many steps a hit skips changes nothing of it. So one pass for each floor and size serves all tables of thresholds.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from traces.similarity.search import Index

Floats = NDArray[np.float64]


def replay(index: Index, rows: int, floor: float, prompts: int, preload: int = 0) -> Floats:
    """Send the rows of a trace one by one through a cache of ``prompts``; what does not hit is stored at once.

    Args:
        index: empty; finds at least what is above ``floor``.
        rows: of the trace.
        floor: a hit is more similar than this (NIRVANA, Fig. 10: cosine > threshold).
        prompts: that the cache holds; the oldest leaves for a new one.
        preload: rows at the head that are stored and not served.

    Returns:
        (rows - preload,) float64: the similarity of each request's hit, NaN for a miss.
    """
    found = np.full(rows - preload, np.nan)
    stored = 0
    for row in range(rows):
        if row >= preload:
            best = index.best(row)
            if best is not None and best[1] > floor:
                found[row - preload] = best[1]
                continue
        if stored >= prompts:
            index.remove(stored - prompts)
        index.add(stored, row)
        stored += 1
    return found


Replays = Callable[[float, int, int], Floats]
"""Floor, prompts in the cache, rows to preload -> the similarities of ``replay``."""
