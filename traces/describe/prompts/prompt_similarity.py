"""Similarity of prompts within a session, between a user's sessions, between users (NIRVANA, Figure 7)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mezzotint.traces.describe.arrays import HOUR_S, Flags, Floats, Indices, Vectors, quantiles

PAIRS = 20_000
OTHER_USERS = 100
"""Random other users whose sessions are compared with, as in NIRVANA."""

GROUPS = ("same session", "same user, another session", "another user")


@dataclass(frozen=True, slots=True)
class PromptSimilarity:
    """Cosines of pairs of prompts.

    Attributes:
        pairs: by group of `GROUPS`, (p,) cosines of random pairs; empty where there are none.
        intra, inter: (u,) mean cosine within and between the sessions of each user with pairs of both kinds.
    """

    pairs: dict[str, Floats]
    intra: Floats
    inter: Floats

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics, JSON-able."""
        found: dict[str, Any] = {"session": "one hour of a user", **dict.fromkeys(self.pairs)}
        for group, values in self.pairs.items():
            if levels := quantiles(values, (25, 50, 75, 99)):
                found[group] = {"pairs": len(values), "mean": values.mean(), "std": values.std(), **levels}
        return {**found, "users_compared": len(self.intra)}


def prompt_similarity(vectors: Vectors, user: Indices, arrival_s: Floats | None) -> PromptSimilarity | None:
    """Compare random pairs of n prompts; None if no user is known. A session is an hour of a user (NIRVANA, section 3).

    Args:
        vectors: (n, dim) unit embeddings.
        user: (n,) number of the user, -1 for unknown.
        arrival_s: (n,) seconds; None if only the order is known, and so no session.
    """
    known = np.flatnonzero(user >= 0)
    if len(known) < 2:
        return None
    rng = np.random.default_rng(0)
    order = known[np.argsort(user[known], kind="stable")]
    _, begins, place, size = np.unique(user[order], return_index=True, return_inverse=True, return_counts=True)
    one = rng.integers(0, len(order), 4 * PAIRS)
    other = begins[place[one]] + rng.integers(0, size[place[one]])
    one, other = one[one != other], other[one != other]
    if arrival_s is None:
        one = other = np.empty(0, np.int64)
    hour = (np.zeros(len(user)) if arrival_s is None else arrival_s)[order] // HOUR_S
    same_session = hour[one] == hour[other]

    def cosine(left: Indices, right: Indices) -> Floats:
        product: Floats = np.einsum("ij,ij->i", vectors[order[left]], vectors[order[right]]).astype(np.float64)
        return product

    own = cosine(one, other)
    chosen = rng.choice(len(begins), min(OTHER_USERS, len(begins)), replace=False)
    pool = np.flatnonzero(np.isin(place, chosen))
    left, right = rng.integers(0, len(order), PAIRS), rng.choice(pool, PAIRS)
    differ = place[left] != place[right]
    groups = (own[same_session][:PAIRS], own[~same_session][:PAIRS], cosine(left[differ], right[differ]))
    intra, inter = _by_user(place[one], own, same_session, len(begins))
    return PromptSimilarity(pairs=dict(zip(GROUPS, groups, strict=True)), intra=intra, inter=inter)


def _by_user(place: Indices, own: Floats, same_session: Flags, users: int) -> tuple[Floats, Floats]:
    means = []
    for chosen in (same_session, ~same_session):
        many = np.bincount(place[chosen], minlength=users)
        total = np.bincount(place[chosen], own[chosen], minlength=users)
        means.append(np.where(many >= 3, total / np.maximum(many, 1), np.nan))
    both = ~np.isnan(means[0]) & ~np.isnan(means[1])
    return means[0][both], means[1][both]
