"""How many requests find a like one: among so many of other people's, and among the last so many of anybody's."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]
Shares = dict[int, dict[float, float]]

POOLS = (30, 100, 300, 1_000, 3_000, 10_000, 30_000)
RECENT = (300, 3_000, 30_000)
LIMITS = (0.35, 0.45, 0.6, 0.8)
"""Above this cosine two prompts are alike; the encoder's own."""

QUERIES = 1_500
LATE = 20_000
"""Requests are looked up among the last so many, or the last half of a shorter trace."""

BLOCK = 64


@dataclass(frozen=True, slots=True)
class Coverage:
    """What share of requests finds a like one, by the number of prompts and the cosine that it has to be above.

    Attributes:
        others: among so many earlier prompts of other users, drawn at random. It tells how prompts are shared: it
            grows with the pool as long as there is something left to be copied.
        recent: among so many requests just before, anybody's: what a cache of them could serve.
        queries: requests that were looked up.
    """

    others: Shares
    recent: Shares
    queries: int

    def facts(self) -> dict[str, Any]:
        """The shares, JSON-able."""
        told = {name: _told(shares) for name, shares in (("others", self.others), ("recent", self.recent))}
        return {"looked_up": self.queries, **told}


def coverage(vectors: Vectors, user: Indices) -> Coverage | None:
    """Look up a sample of the requests, each in the earlier ones; None for a trace of few rows.

    Sizes of which a request looked up has too few before it are left out, and so is everything about others where
    no user is known.

    Args:
        vectors: (n, dim) of length 1, in the order of arrival.
        user: (n,) number of the user, -1 for unknown: neither looked up nor anybody's other.
    """
    count = len(vectors)
    rows = np.arange(max(count // 2, count - LATE), count)
    known = rows[user[rows] >= 0] if (user >= 0).any() else rows
    if len(known) < 10 or count < 2 * min(POOLS):
        return None
    rng = np.random.default_rng(0)
    query = np.sort(rng.choice(known, min(QUERIES, len(known)), replace=False))
    pool = rng.permutation(count)[: 2 * max(POOLS)]
    others = np.full((len(query), len(POOLS)), np.nan)
    recent = np.full((len(query), len(RECENT)), np.nan)
    for start in range(0, len(query), BLOCK):
        block = query[start : start + BLOCK]
        part = slice(start, start + len(block))
        others[part] = _others(vectors, user, block, pool)
        recent[part] = _recent(vectors, block)
    return Coverage(_shares(POOLS, others), _shares(RECENT, recent), len(query))


def _others(vectors: Vectors, user: Indices, block: Indices, pool: Indices) -> npt.NDArray[np.float64]:
    """The best of the first 30, 100... of the pool that came before and are another's, (b, pools); nan: too few."""
    best = np.full((len(block), len(POOLS)), np.nan)
    theirs = user[pool]
    other = (pool < block[:, None]) & (theirs >= 0) & (theirs != user[block][:, None]) & (user[block] >= 0)[:, None]
    before = np.cumsum(other, 1)
    products = np.where(other, vectors[block] @ vectors[pool].T, -np.inf)
    np.maximum.accumulate(products, axis=1, out=products)
    for column, size in enumerate(POOLS):
        row = np.flatnonzero(before[:, -1] >= size)
        best[row, column] = products[row, (before[row] < size).sum(1)]
    return best


def _recent(vectors: Vectors, block: Indices) -> npt.NDArray[np.float64]:
    """The best of the last 300, 3,000... rows before each, (b, sizes); nan where there are fewer."""
    best = np.full((len(block), len(RECENT)), np.nan)
    first = max(0, int(block[0]) - max(RECENT))
    rows = np.arange(first, block[-1])
    products = vectors[block] @ vectors[first : block[-1]].T
    for column, size in enumerate(RECENT):
        inside = (rows < block[:, None]) & (rows >= block[:, None] - size)
        enough = block >= size
        best[enough, column] = np.where(inside[enough], products[enough], -np.inf).max(1, initial=-np.inf)
    return best


def _shares(sizes: tuple[int, ...], best: npt.NDArray[np.float64]) -> Shares:
    """By size and limit; a size that some request has not before it would compare other requests and is left out."""
    known = np.asarray(~np.isnan(best), np.bool_)
    return {
        size: {limit: float((best[:, column] > limit).mean()) for limit in LIMITS}
        for column, size in enumerate(sizes)
        if known[:, column].all()
    }


def _told(shares: Shares) -> dict[str, dict[str, float]]:
    return {str(size): {f"{limit:g}": share for limit, share in by.items()} for size, by in shares.items()}
