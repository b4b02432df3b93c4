"""The nearest earlier prompt of each request: its similarity, its age, and whether it is by the same user."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from mezzotint.traces.describe.arrays import Flags, Floats, Indices, Vectors, mean, quantiles
from mezzotint.traces.encoders.embeddings import Encoder, embed
from mezzotint.traces.table.trace import Trace

EXACT = 20_000
"""Rows of a trace up to which every request is looked up."""

SAMPLE = 2_000
STRETCH = 100_000
"""Of a longer trace, `SAMPLE` random requests of the last `EXACT` are looked up in `STRETCH` + `EXACT` rows."""

CACHE = 10_000
"""Entries of the cache whose hit ages are measured: MoDM's (5.1)."""

THRESHOLDS = (0.65, 0.75, 0.85, 0.90, 0.95)
"""NIRVANA's thresholds from K=5 to K=25 (Figure 10), applied to the encoder's own similarity."""

LEVELS, AGES = (5, 10, 25, 40, 50, 60, 75, 90), (25, 50, 75, 90)
WARM = 0.1
"""Share of the requests at the start that is not looked up, having few requests before it."""

YOUNG_S = 4 * 3600.0
"""Age of a young hit: over 90 % of MoDM's hits are on images at most this old (Figure 15)."""

BLOCK = 256


@dataclass(frozen=True, slots=True)
class Nearest:
    """The most similar earlier prompt of m requests of a trace of n; among equals, the latest.

    Attributes:
        encoder: name of the encoder.
        vectors: (s, dim) embeddings of the rows `first` .. n - 1.
        first: the first row searched.
        query: (m,) the rows looked up.
        row, similarity, age_s: (m,) the nearest row, its similarity, its age (seconds; None without times).
        same_user: (m,) True if the same user sent it, False if either user is unknown.
        cached_similarity, cached_age_s: (m,) the same of the nearest among the last `CACHE` rows.
        sampled: True if the requests looked up are a sample.
    """

    encoder: str
    vectors: Vectors
    first: int
    query: Indices
    row: Indices
    similarity: Floats
    age_s: Floats | None
    same_user: Flags
    cached_similarity: Floats
    cached_age_s: Floats | None
    sampled: bool

    @property
    def hits(self) -> Flags:
        """True for each request whose nearest earlier prompt is above the lowest of `THRESHOLDS`, (m,)."""
        return self.similarity > THRESHOLDS[0]

    @property
    def lags(self) -> Indices:
        """Requests between each hit and its nearest earlier prompt, (hits,)."""
        return (self.query - self.row)[self.hits]

    @property
    def hit_ages_s(self) -> Floats | None:
        """Age of the nearest earlier prompt of each hit, (hits,); None without times."""
        return None if self.age_s is None else self.age_s[self.hits]

    @property
    def cached_hit_ages_s(self) -> Floats | None:
        """Age of each hit among the last `CACHE` rows, (hits,); None without times."""
        return None if self.cached_age_s is None else self.cached_age_s[self.cached_similarity > THRESHOLDS[0]]

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics, JSON-able; ages and lags are of hits above the lowest of `THRESHOLDS`."""
        ages_s, cached_s = self.hit_ages_s, self.cached_hit_ages_s
        return {
            "encoder": self.encoder,
            "looked_up": len(self.query),
            "sampled": self.sampled,
            "among_rows_from": self.first,
            "quantiles": quantiles(self.similarity, LEVELS),
            "share_above": {f"{limit:g}": float((self.similarity > limit).mean()) for limit in THRESHOLDS},
            "same_user_share": float(self.same_user.mean()),
            "hits_same_user_share": mean(self.same_user[self.hits]),
            "lag_quantiles": quantiles(self.lags, AGES),
            "age_quantiles_s": None if ages_s is None else quantiles(ages_s, AGES),
            "cache": CACHE,
            "cache_hit_rate": float((self.cached_similarity > THRESHOLDS[0]).mean()),
            "cache_hits_young_share": None if cached_s is None else mean(cached_s <= YOUNG_S),
        }


def nearest(trace: Trace, user: Indices, encoder: Encoder, *, timed: bool, progress: bool) -> Nearest | None:
    """Look up the nearest earlier prompts by exact search; None for a trace of few rows.

    `EXACT` and `SAMPLE` decide which requests are looked up.

    Args:
        trace: n requests.
        user: (n,) number of the user, -1 for unknown.
        encoder: encodes the prompts; the vectors of a trace of at most `EXACT` rows are cached on disk.
        timed: True if the arrivals are times.
    """
    count = len(trace)
    if count < 20:
        return None
    sampled = count > EXACT
    if sampled:
        first = max(0, count - EXACT - STRETCH)
        vectors = encoder.encode(trace.prompts().slice(first).fill_null("").to_pylist(), progress)
        drawn = np.random.default_rng(0).choice(EXACT, SAMPLE, replace=False)
        query = np.sort(drawn) + count - EXACT
    else:
        first, vectors = 0, embed(trace, encoder, progress=progress)
        query = np.arange(int(count * WARM), count)
    (row, cached), (similarity, cached_similarity) = _search(vectors, query - first, progress)
    row, arrival_s = row + first, trace.arrival_s
    return Nearest(
        encoder=encoder.name,
        vectors=vectors,
        first=first,
        query=query,
        row=row,
        similarity=similarity,
        age_s=arrival_s[query] - arrival_s[row] if timed else None,
        same_user=(user[query] == user[row]) & (user[query] >= 0),
        cached_similarity=cached_similarity,
        cached_age_s=arrival_s[query] - arrival_s[cached + first] if timed else None,
        sampled=sampled,
    )


def _search(vectors: Vectors, query: Indices, progress: bool) -> tuple[Indices, Floats]:
    """Return rows and similarities of the nearest, (2, m) each: among all earlier rows, and among the last `CACHE`."""
    row, similarity = np.empty((2, len(query)), np.int64), np.empty((2, len(query)))
    for start in tqdm(range(0, len(query), BLOCK), "compare", disable=not progress, unit="block"):
        block = query[start : start + BLOCK]
        products = vectors[block] @ vectors[: block[-1]].T
        rows = np.arange(block[-1])
        products[rows >= block[:, None]] = -np.inf
        for part, last in enumerate((len(vectors), CACHE)):
            products[rows < block[:, None] - last] = -np.inf
            # rounded, so that equals are equal; from behind, so that the latest of them is found
            best = products.shape[1] - 1 - np.round(products, 6)[:, ::-1].argmax(1)
            row[part, start : start + BLOCK] = best
            similarity[part, start : start + BLOCK] = products[np.arange(len(block)), best]
    return row, similarity
