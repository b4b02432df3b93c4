"""Fit of a profile to a log: seconds affine in the steps for each size, and their scatter."""

from collections import Counter
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mezzotint.backends.profile import Point, Profile
from mezzotint.backends.scatter import Around, Scatter
from mezzotint.sim.fit.profile.observed import Observed

MIN_CELL, MIN_SIZE, MIN_SCATTER = 20, 40, 1000
"""Fewest requests for the median of a size and number of steps, the step time of a size, and a scatter."""

RATIO = 1.2
"""Largest ratio of the typical seconds of requests whose scatter is measured together."""

PROBABILITIES = (
    0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9, 0.925,
    0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.998, 1.0,
)  # fmt: skip
"""Dense where seconds rise fast: the slow tenth."""

Floats = NDArray[np.float64]


def fit(seen: Observed, *, gpu: str, model: str, source: str, notes: str | None = None) -> Profile:
    """Return a profile of typical (median) seconds by size and steps, with the scatter about them.

    The seconds are a size's step time times the steps, plus a part that does not depend on the steps. That part is
    affine in the pixels, is fitted on sizes with several numbers of steps, and becomes ``vae_decode``.
    """
    pixels = seen.pixels
    fixed = _fixed(seen)
    sizes, step_s = _steps(seen, fixed)
    typical_s = np.polyval(fixed, pixels) + seen.steps * np.interp(pixels, sizes, step_s)

    def point(size: int, seconds: float, *, confirmed: bool = False) -> Point:
        at = pixels == size
        shapes = Counter(zip(*(column[at].tolist() for column in (seen.width, seen.height, seen.frames)), strict=True))
        width, height, frames = min(shapes, key=lambda shape: (-shapes[shape], shape))  # the most common
        return Point(width=width, height=height, frames=frames, seconds=_short(seconds), confirmed=confirmed)

    return Profile(
        schema=1,
        model=model,
        gpu=gpu,
        source=source,
        basis="measured",
        notes=notes,
        step=list(map(point, sizes.tolist(), step_s.tolist())),
        vae_decode=[
            point(size, max(float(np.polyval(fixed, size)), 1e-6), confirmed=True)  # what is left may be nothing
            for size in dict.fromkeys(sizes[[0, -1]].tolist())
        ],
        scatter=_scatter(seen.seconds / typical_s, typical_s),
    )


def _fixed(seen: Observed) -> Floats:
    """Return the seconds that do not depend on the steps, as a polynomial of the pixels, highest power first."""
    sizes, found, weights = [], [], []
    for size in np.unique(seen.pixels):
        at = seen.pixels == size
        steps, counts = np.unique(seen.steps[at], return_counts=True)
        enough = counts >= MIN_CELL
        if enough.sum() >= 3 and steps[enough][-1] >= 2 * steps[enough][0]:
            medians = [np.median(seen.seconds[at & (seen.steps == each)]) for each in steps[enough]]
            sizes.append(size)
            found.append(np.polyfit(steps[enough], medians, 1, w=np.sqrt(counts[enough]))[1])
            weights.append(np.sqrt(counts[enough].sum()))
    if not found:
        return np.zeros(1)
    return np.polyfit(sizes, found, 1 if len(found) > 2 else 0, w=weights)


def _steps(seen: Observed, fixed: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the frequent sizes with the smallest and largest, in pixels, and the median seconds of a step of each."""
    each_s = (seen.seconds - np.polyval(fixed, seen.pixels)) / seen.steps
    sizes, counts = np.unique(seen.pixels, return_counts=True)
    kept = counts >= MIN_SIZE
    kept[[0, -1]] = True
    step_s = np.array([np.median(each_s[seen.pixels == size]) for size in sizes[kept]])
    return sizes[kept], np.maximum(step_s, 1e-6)


def _scatter(factors: Floats, typical_s: Floats) -> Scatter:
    order = np.argsort(typical_s, kind="stable")
    factors, typical_s = factors[order], typical_s[order]
    bounds = [0]
    while bounds[-1] < len(factors):
        upper = int(np.searchsorted(typical_s, typical_s[bounds[-1]] * RATIO, side="right"))
        bounds.append(min(max(upper, bounds[-1] + MIN_SCATTER), len(factors)))
    if len(bounds) > 2 and bounds[-1] - bounds[-2] < MIN_SCATTER:
        del bounds[-2]
    around: list[Around] = []
    for low, high in pairwise(bounds):
        middle_s = _short(float(typical_s[low:high].mean()))
        if around and middle_s <= around[-1].seconds:
            continue
        around.append(Around(seconds=middle_s, factors=_quantiles(factors[low:high])))
    return Scatter(probabilities=list(PROBABILITIES), around=around)


def _quantiles(factors: Floats) -> list[float]:
    """Return quantiles whose top value keeps the mean of the tail, so that no outlier is ever drawn."""
    found = np.quantile(factors, PROBABILITIES)
    beyond = factors[factors >= found[-2]]
    found[-1] = max(found[-2], 2 * beyond.mean() - found[-2])
    return [round(float(each), 4) for each in np.maximum.accumulate(found)]


def _short(seconds: float) -> float:
    return float(f"{seconds:.5g}")
