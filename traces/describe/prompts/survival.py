"""Survival of popular prompts: clusters day by day (NIRVANA, Figure 5)."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from tqdm import tqdm

from mezzotint.traces.describe.arrays import Floats, Indices, Vectors
from mezzotint.traces.encoders.embeddings import Encoder
from mezzotint.traces.table.trace import Trace

DAY_S = 86_400.0
DAYS = 18
"""Days followed, as in NIRVANA."""

EPS = (0.01, 0.1, 0.2, 0.5)
TOP = (1, 2, 5, 10)
"""NIRVANA's distances and percentages of clusters."""

PER_DAY = 1500
"""Random prompts clustered of each day; their number decides how large clusters get."""

MIN_PROMPTS = 100
MIN_MEMBERS = 3
"""Prompts of a cluster, at least; DBSCAN's usual 5 leaves hardly any cluster in a sample of this size."""


@dataclass(frozen=True, slots=True)
class Survival:
    """Survival of the clusters that were popular on the first day.

    Attributes:
        days: the days compared with the first, from 2 on.
        left: by (eps, percent), (days,) share of the first day's top percent of clusters still among the top percent.
        per_day: prompts clustered of each day.
    """

    days: tuple[int, ...]
    left: dict[tuple[float, int], Floats]
    per_day: int

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics, JSON-able."""
        return {
            "prompts_per_day": self.per_day,
            "days": list(self.days),
            "left": {f"eps {eps:g}, top {top}%": [float(x) for x in left] for (eps, top), left in self.left.items()},
        }


def survival(trace: Trace, encoder: Encoder, *, progress: bool = False) -> Survival | None:
    """Cluster the prompts of each day with DBSCAN on cosine distance, and follow the first day's largest clusters.

    The most frequent prompt represents a cluster. The cluster survives to a day if that prompt lies within eps of a
    member of one of that day's top clusters. The top percent is at least one cluster, with ties. `progress` shows a
    bar. Returns None if fewer than two whole days have `MIN_PROMPTS` prompts.
    """
    from sklearn.cluster import DBSCAN  # a slow import, not always needed

    since_s = trace.arrival_s - trace.arrival_s[0]
    day = (since_s // DAY_S).astype(np.int64)
    rng = np.random.default_rng(0)
    chosen = []
    for number in range(min(DAYS, int(since_s[-1] // DAY_S))):
        rows = np.arange(*np.searchsorted(day, (number, number + 1)))
        if len(rows) < MIN_PROMPTS:
            break
        chosen.append(np.sort(rng.choice(rows, min(PER_DAY, len(rows)), replace=False)))
    if len(chosen) < 2:
        return None
    prompts = trace.prompts()
    texts = [prompts.take(rows).fill_null("").to_pylist() for rows in chosen]
    vectors = [encoder.encode(one, False) for one in texts]
    left: dict[tuple[float, int], list[float]] = {(eps, top): [] for eps in EPS for top in TOP}
    centres: dict[tuple[float, int], Vectors] = {}
    for here in tqdm(vectors, "cluster", disable=not progress, unit="day"):
        distance = np.clip(1.0 - here @ here.T, 0.0, 2.0)
        for eps in EPS:
            label = DBSCAN(eps=eps, min_samples=MIN_MEMBERS, metric="precomputed").fit_predict(distance)
            for top in TOP:
                popular = _popular(label, top)
                if (eps, top) not in centres:  # the first day
                    first = [_most_frequent(np.flatnonzero(label == one), texts[0]) for one in popular]
                    centres[eps, top] = here[first]
                elif len(centres[eps, top]):
                    distances = 1.0 - centres[eps, top] @ here[np.isin(label, popular)].T
                    left[eps, top].append(float((distances.min(1, initial=2.0) <= eps).mean()))
    shares = {key: np.array(values) for key, values in left.items() if values}
    return Survival(days=tuple(range(2, len(chosen) + 1)), left=shares, per_day=max(map(len, chosen)))


def _popular(label: Indices, percent: int) -> Indices:
    """Return the largest `percent` of the clusters."""
    sizes = np.bincount(label[label >= 0])
    if not len(sizes):
        return np.empty(0, np.int64)
    count = max(1, round(len(sizes) * percent / 100))
    return np.flatnonzero(sizes >= np.sort(sizes)[-count])


def _most_frequent(rows: Indices, texts: list[str]) -> int:
    """Return the row of the most frequent prompt among `rows`, the earliest of ties."""
    counts = Counter(texts[row] for row in rows)
    return int(max(rows, key=lambda row: (counts[texts[row]], -row)))
