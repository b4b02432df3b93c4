"""From measured qualities to thresholds: NIRVANA's Algorithm 2 and MoDM's equation 5."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rule = Literal["all", "mean"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """The lowest similarity ``at_least`` at which ``k`` steps may be skipped; None where none of the pairs suffices.

    ``alone`` is that of this K before it is raised to that of a smaller K. ``pairs`` reach ``at_least``, and ``worst``
    and ``mean`` are their qualities, NaN where there are none.
    """

    k: int
    at_least: float | None
    alone: float | None
    pairs: int
    worst: float
    mean: float


def lowest(similarity: Floats, quality: Floats, alpha: float, *, rule: Rule, strict: bool) -> float | None:
    """The lowest of the similarities s such that the pairs of similarity s or more are good enough; None for none.

    Args:
        similarity, quality: (n,) each. A NaN quality is never good enough.
        alpha: the quality that is.
        rule: ``all``: every one of those pairs is (NIRVANA, Algorithm 2: ``for all I in [I_K], quality(I) > alpha``);
            ``mean``: their mean is.
        strict: quality must exceed alpha (Algorithm 2), not just reach it (MoDM, equation 5).
    """
    found = None
    for level in np.unique(similarity)[::-1]:
        above = quality[similarity >= level]
        reached = float(above.min() if rule == "all" else above.mean())
        if reached > alpha or (reached == alpha and not strict):
            found = float(level)
        elif rule == "all":
            break
    return found


def thresholds(
    similarity: Floats, quality: Floats, ks: Sequence[int], alpha: float, *, rule: Rule, strict: bool
) -> list[Threshold]:
    """A threshold for each K of ``ks``, which rise, as ``lowest`` has it, raised to that of a smaller K.

    So a K that no similarity suffices for takes all larger ones with it. ``similarity`` is (n,), ``quality``
    (n, len(ks)), 1 the full run's.
    """
    found: list[Threshold] = []
    highest = -np.inf
    for column, k in enumerate(ks):
        alone = lowest(similarity, quality[:, column], alpha, rule=rule, strict=strict)
        highest = max(highest, np.inf if alone is None else alone)
        above = quality[similarity >= highest, column]
        worst, mean = (float(above.min()), float(above.mean())) if len(above) else (np.nan, np.nan)
        at_least = float(highest) if np.isfinite(highest) else None
        found.append(Threshold(k, at_least, alone, len(above), worst, mean))
    return found
