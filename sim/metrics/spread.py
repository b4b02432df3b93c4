"""Statistics that several sections of a summary have: mean, percentiles and ratios."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

NAMES = ("mean", "p50", "p90", "p95", "p99", "max")


def spread(seconds: Reals, names: Sequence[str] = NAMES) -> dict[str, float | None]:
    """Return mean, percentiles (linear interpolation) and maximum by name, those of ``names``; null if there is none of
    ``seconds``, which are in another order after it."""
    if not len(seconds):
        return dict.fromkeys(names)
    mean, longest = seconds.mean(), seconds.max()  # before the order changes, which a sum goes by
    found = (mean, *np.percentile(seconds, (50, 90, 95, 99), overwrite_input=True), longest)
    by_name = dict(zip(NAMES, map(float, found), strict=True))
    return {name: by_name[name] for name in names}


def median_and_p90(seconds: Reals) -> dict[str, float | None]:
    """Return median and p90 of ``seconds`` without NaN; null if none are left."""
    return spread(seconds[~np.isnan(seconds)], ("p50", "p90"))


def ratio(part: float, total: float) -> float | None:
    """Return ``part / total``; None if ``total`` is zero or infinite."""
    return part / total if total and math.isfinite(total) else None
