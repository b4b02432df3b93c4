"""Neighbours drawn from a law instead of searched, for caches too large to search each time."""

import numpy as np

from mezzotint.traces.similarity.neighbours import UNIT, Neighbours


def neighbours(rows: int, floor: float, rng: np.random.Generator) -> Neighbours:
    """Draw lists of 0 to 64 earlier rows, complete, as traffic with recurring themes has them.

    Rows belong to families: a tenth are alone, and the sizes of the other families follow Zipf's law. A row resembles a
    heavy-tailed number of earlier rows of its family (Pareto, at least 2 if there are as many). Recent rows are
    likelier than old ones (log-uniform). Similarities fall evenly from 1 to ``floor``.
    """
    family = np.where(rng.random(rows) < 0.1, -1 - np.arange(rows), rng.zipf(1.2, rows) % (rows // 4 + 1))
    order = np.argsort(family, kind="stable")
    first = np.flatnonzero(np.diff(family[order], prepend=family[order][0] - 1))
    place = np.arange(rows) - np.repeat(first, np.diff(first, append=rows))  # in the family, oldest first
    wanted = np.minimum(np.minimum(2 + rng.pareto(0.8, rows), 64).astype(np.int64), place)
    at = np.repeat(np.arange(rows), wanted)
    back = np.floor(np.exp(rng.random(len(at)) * np.log(place[at] + 1))).astype(np.int64)
    pairs = np.unique(order[at] * rows + order[at - np.clip(back, 1, place[at])])
    row, earlier = np.divmod(pairs, rows)
    units = np.rint(UNIT * (1 - (1 - floor) * rng.random(len(row)))).astype(np.int64)
    best = np.lexsort((earlier, -units, row))
    ends = np.cumsum(np.bincount(row, minlength=rows))
    return Neighbours(ends, earlier[best].astype(np.int32), units[best].astype(np.int32), np.ones(rows, np.bool_))
