"""Coverage: the share of requests with a similar earlier one, among other users' and among the latest requests."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from mezzotint.traces.describe.arrays import Floats, Indices, Vectors

Shares = dict[int, dict[float, float]]

POOLS = (30, 100, 300, 1_000, 3_000, 10_000, 30_000)
RECENT = (300, 3_000, 30_000)
LIMITS = (0.35, 0.45, 0.6, 0.8)
"""Cosines (the encoder's own) above which two prompts count as similar."""

QUERIES = 1_500
LATE = 20_000
"""Requests looked up are a sample of the last `LATE`, or of the last half of a shorter trace."""

BLOCK = 64

POOLED = 200_000
"""Requests of a longer trace that pools are drawn from, at most."""

CONFIDENCE = 1.96
"""Standard errors on either side of a share: 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Shares of requests with a similar earlier prompt, by the number of prompts searched and the cosine required.

    Attributes:
        others: among earlier prompts of other users, the mean over all random pools of that size. It grows with the
            pool as long as users share prompts.
        recent: among the requests just before, of any user: the share that a cache of them could serve.
        others_half, recent_half: half the 95 % interval of each share, over a new sample of users.
        queries: number of requests looked up.
    """

    others: Shares
    recent: Shares
    others_half: Shares
    recent_half: Shares
    queries: int

    def to_dict(self) -> dict[str, Any]:
        """Return the shares and their intervals, JSON-able."""
        tables = {name: getattr(self, name) for name in ("others", "recent", "others_half", "recent_half")}
        return {"looked_up": self.queries} | {
            name: {str(size): {f"{limit:g}": share for limit, share in row.items()} for size, row in shares.items()}
            for name, shares in tables.items()
        }


def coverage(vectors: Vectors, user: Indices) -> Coverage | None:
    """Look up a sample of the requests among the earlier ones; None for a trace of few rows.

    A size is left out if a request looked up has fewer rows before it. The shares among others are left out if no user
    is known.

    Args:
        vectors: (n, dim) of length 1, in the order of arrival.
        user: (n,) number of the user, -1 for unknown: such rows are neither looked up nor another user's.
    """
    count = len(vectors)
    rows = np.arange(max(count // 2, count - LATE), count)
    known = rows[user[rows] >= 0] if (user >= 0).any() else rows
    if len(known) < 10 or count < 2 * min(POOLS):
        return None
    rng = np.random.default_rng(0)
    query = np.sort(rng.choice(known, min(QUERIES, len(known)), replace=False))
    pool = np.sort(rng.permutation(count)[:POOLED])
    blocks = [query[start : start + BLOCK] for start in range(0, len(query), BLOCK)]
    others = np.concatenate([_others(vectors, user, block, pool) for block in blocks])
    recent = np.concatenate([_recent(vectors, block) for block in blocks])
    cluster = np.where(user[query] >= 0, user[query], user.max() + 1 + query)
    shares, half = clustered_shares(POOLS, others, cluster)
    late, late_half = clustered_shares(RECENT, recent, cluster)
    return Coverage(shares, late, half, late_half, len(query))


def _others(vectors: Vectors, user: Indices, block: Indices, pool: Indices) -> Floats:
    """Return the chance of a similar prompt in a random pool of earlier prompts of other users.

    If k of n eligible prompts are similar, a pool of s has none with the chance C(n - k, s) / C(n, s).

    Returns:
        (b, pools, limits); NaN where fewer than a pool's size are eligible.
    """
    pool = pool[: np.searchsorted(pool, block[-1])]
    theirs = user[pool]
    other = (pool < block[:, None]) & (theirs >= 0) & (theirs != user[block][:, None]) & (user[block] >= 0)[:, None]
    products = np.where(other, vectors[block] @ vectors[pool].T, -np.inf)
    alike = np.stack([(products > limit).sum(1) for limit in LIMITS], axis=1)[:, None, :]
    count = other.sum(1)[:, None, None]
    size = np.array(POOLS)[None, :, None]
    without = count - alike
    with np.errstate(invalid="ignore"):
        log = gammaln(without + 1) + gammaln(count - size + 1) - gammaln(without - size + 1) - gammaln(count + 1)
        none = np.where(without >= size, np.exp(log), 0.0)
    return np.where(count >= size, 1.0 - none, np.nan)


def _recent(vectors: Vectors, block: Indices) -> Floats:
    """Return 1 where the last 300, 3,000... rows have a similar prompt, (b, sizes, limits); NaN for fewer rows."""
    hits = np.full((len(block), len(RECENT), len(LIMITS)), np.nan)
    first = max(0, int(block[0]) - max(RECENT))
    rows = np.arange(first, block[-1])
    products = vectors[block] @ vectors[first : block[-1]].T
    for column, size in enumerate(RECENT):
        inside = (rows < block[:, None]) & (rows >= block[:, None] - size)
        enough = block >= size
        best = np.where(inside[enough], products[enough], -np.inf).max(1, initial=-np.inf)
        hits[enough, column] = best[:, None] > np.array(LIMITS)
    return hits


def clustered_shares(sizes: tuple[int, ...], hits: Floats, cluster: Indices) -> tuple[Shares, Shares]:
    """Return means over the requests and half their intervals, by size and limit.

    A size is left out if a request has fewer rows before it, so that all sizes compare the same requests. Requests of
    one user are correlated, so the standard error is that of the sums by user.
    """
    which = np.unique(cluster, return_inverse=True)[1]
    users = int(which.max()) + 1
    shares: Shares = {}
    half: Shares = {}
    for column, size in enumerate(sizes):
        if np.isnan(hits[:, column]).any():
            continue
        mean = hits[:, column].mean(0)
        sums = np.zeros((users, len(LIMITS)))
        np.add.at(sums, which, hits[:, column] - mean)
        error = np.sqrt((sums**2).sum(0) * users / max(users - 1, 1)) / len(hits)
        shares[size] = dict(zip(LIMITS, mean.tolist(), strict=True))
        half[size] = dict(zip(LIMITS, (CONFIDENCE * error).tolist(), strict=True))
    return shares, half
