"""Thresholds from measured qualities: NIRVANA's Algorithm 2 and MoDM's equation 5."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rule = Literal["all", "mean"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """The lowest similarity at which ``k`` steps may be skipped.

    Attributes:
        min_similarity: None if no similarity suffices.
        unraised: this K's own threshold, before it is raised to that of a smaller K.
        pairs: number of pairs that reach ``min_similarity``.
        worst, mean: qualities of those pairs; NaN if there are none.
    """

    k: int
    min_similarity: float | None
    unraised: float | None
    pairs: int
    worst: float
    mean: float


def lowest_similarity(similarity: Floats, quality: Floats, alpha: float, *, rule: Rule, strict: bool) -> float | None:
    """Return the lowest similarity such that the pairs at or above it are good enough; None if there is none.

    Args:
        similarity, quality: (n,) each. A NaN quality is never good enough.
        alpha: the quality that is good enough.
        rule: ``all``: every pair's quality counts (NIRVANA, Algorithm 2: ``for all I in [I_K], quality(I) > alpha``);
            ``mean``: their mean counts.
        strict: quality must exceed alpha (Algorithm 2), not just reach it (MoDM, equation 5).
    """
    lowest = None
    for level in np.unique(similarity)[::-1]:
        above = quality[similarity >= level]
        reached = float(above.min() if rule == "all" else above.mean())
        if reached > alpha or (reached == alpha and not strict):
            lowest = float(level)
        elif rule == "all":
            break
    return lowest


def thresholds(
    similarity: Floats, quality: Floats, ks: Sequence[int], alpha: float, *, rule: Rule, strict: bool
) -> list[Threshold]:
    """Return a threshold for each K of ``ks`` (ascending), raised to that of the smaller K if it is lower.

    If no similarity suffices for a K, none does for the larger ones.

    Args:
        similarity: (n,).
        quality: share of the full run's score, (n, len(ks)).
    """
    rising: list[Threshold] = []
    highest = -np.inf
    for column, k in enumerate(ks):
        unraised = lowest_similarity(similarity, quality[:, column], alpha, rule=rule, strict=strict)
        highest = max(highest, np.inf if unraised is None else unraised)
        above = quality[similarity >= highest, column]
        worst, mean = (float(above.min()), float(above.mean())) if len(above) else (np.nan, np.nan)
        min_similarity = float(highest) if np.isfinite(highest) else None
        rising.append(Threshold(k, min_similarity, unraised, len(above), worst, mean))
    return rising
