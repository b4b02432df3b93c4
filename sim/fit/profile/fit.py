"""Fit of a profile to a log: seconds affine in the steps for each size, and their scatter."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mezzotint.backends.profile import Point, Profile
from mezzotint.backends.scatter import Around, Scatter
from mezzotint.sim.fit.profile.cells import TOLERANCE

MIN_CELL, MIN_SIZE, MIN_SCATTER = 20, 40, 1000
"""Fewest requests for the median of a size and number of steps, the step time of a size, and a scatter."""

RATIO = 1.2
"""Largest ratio of the typical seconds of requests whose scatter is measured together."""

MEDIAN_ERROR = math.sqrt(math.pi / 2)
"""Standard error of a normal sample's median over that of its mean."""

PROBABILITIES = (
    0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.825, 0.85, 0.875, 0.9, 0.925,
    0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.998, 1.0,
)  # fmt: skip
"""Dense where seconds rise fast: the slow tenth."""

NO_FIXED_PART = (
    "the seconds outside the steps are not told apart, since no size has numbers of steps that differ enough: all are "
    "in the steps, and count as saved where a cache skips steps"
)
"""Note of a profile without ``vae_decode``."""

FIXED_PART = "vae_decode is all that does not depend on the steps"
"""Note of a profile with it."""

Floats = NDArray[np.float64]


def fit(
    seen: pd.DataFrame,
    *,
    gpu: str,
    model: str,
    source: str,
    notes: str | None = None,
    min_cell: int = MIN_CELL,
    min_size: int = MIN_SIZE,
) -> Profile:
    """Return a profile of typical (median) seconds by size and steps, with the scatter about them.

    The seconds are a size's step time times the steps, plus a part that does not depend on the steps. That part is
    affine in the pixels, is fitted on sizes with several numbers of steps, and becomes ``vae_decode``. Where no size
    has them, the profile has no such stage, and a note says so.

    Args:
        min_cell, min_size: fewest requests for the median of a size and number of steps, and for the step time of a
            size.
    """
    pixels = seen["pixels"].to_numpy()
    fitted = _fit_fixed(seen, min_cell)
    fixed = np.zeros(1) if fitted is None else fitted
    sizes, step_s = _fit_steps(seen, fixed, min_size)
    typical_s = np.polyval(fixed, pixels) + seen["steps"].to_numpy() * np.interp(pixels, sizes, step_s)
    shape_of: dict[int, tuple[int, int, int]] = {}  # the most common one of so many pixels, the smallest of ties
    counts = seen.groupby(["pixels", "width", "height", "frames"]).size().sort_values(ascending=False, kind="stable")
    for size, *shape in counts.index:
        shape_of.setdefault(size, tuple(shape))

    def point(size: int, seconds: float, *, confirmed: bool = False) -> Point:
        width, height, frames = shape_of[size]
        return Point(width=width, height=height, frames=frames, seconds=_short(seconds), confirmed=confirmed)

    return Profile(
        schema=1,
        model=model,
        gpu=gpu,
        source=source,
        basis="measured",
        notes="; ".join(filter(None, [notes, NO_FIXED_PART if fitted is None else FIXED_PART])),
        step=list(map(point, sizes.tolist(), step_s.tolist())),
        vae_decode=[
            point(size, max(float(np.polyval(fixed, size)), 1e-6), confirmed=True)  # what is left may be nothing
            for size in (() if fitted is None else dict.fromkeys(sizes[[0, -1]].tolist()))
        ],
        scatter=_scatter(seen["seconds"].to_numpy() / typical_s, typical_s),
    )


def _fit_fixed(seen: pd.DataFrame, min_cell: int) -> Floats | None:
    """Return the seconds that do not depend on the steps, as a polynomial of the pixels, highest power first.

    Sizes with three numbers of steps, the largest twice the smallest, show that seconds are affine in the steps. If
    there are none, sizes with two are taken whose scatter leaves the intercept known to `TOLERANCE` of the seconds.
    None if no size tells the fixed part apart.
    """
    wide: list[tuple[Any, float, float]] = []  # pixels, seconds, weight
    narrow: list[tuple[Any, float, float]] = []
    for size, requests in seen.groupby("pixels"):
        cells = requests.groupby("steps")["seconds"].agg(["median", "std", "size"])
        cells = cells[cells["size"] >= min_cell]
        steps, weight = cells.index.to_numpy(), float(np.sqrt(cells["size"].sum()))
        if len(cells) >= 3 and steps[-1] >= 2 * steps[0]:
            wide.append((size, np.polyfit(steps, cells["median"], 1, w=np.sqrt(cells["size"]))[1], weight))
        elif len(cells) >= 2:
            errors = MEDIAN_ERROR * cells["std"] / np.sqrt(cells["size"])
            errors = np.maximum(errors, 1e-6 * cells["median"])  # all may be equal
            (_, fixed_s), covariance = np.polyfit(steps, cells["median"], 1, w=1 / errors, cov="unscaled")
            if np.sqrt(covariance[1, 1]) <= TOLERANCE * cells["median"].mean():
                narrow.append((size, fixed_s, weight))
    if not (taken := wide or narrow):
        return None
    sizes, fixed, weights = zip(*taken, strict=True)
    return np.polyfit(sizes, fixed, 1 if len(sizes) > 2 else 0, w=weights)


def _fit_steps(seen: pd.DataFrame, fixed: Floats, min_size: int) -> tuple[NDArray[np.int64], Floats]:
    """Return the frequent sizes with the smallest and largest, in pixels, and the median seconds of a step of each."""
    step_s = (seen["seconds"] - np.polyval(fixed, seen["pixels"].to_numpy())) / seen["steps"]
    sizes = step_s.groupby(seen["pixels"]).agg(["median", "size"])
    kept = (sizes["size"] >= min_size).to_numpy(copy=True)
    kept[[0, -1]] = True
    return sizes.index.to_numpy()[kept], np.maximum(sizes["median"].to_numpy()[kept], 1e-6)


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
    levels = np.quantile(factors, PROBABILITIES)
    beyond = factors[factors >= levels[-2]]
    levels[-1] = max(levels[-2], 2 * beyond.mean() - levels[-2])
    return [round(float(level), 4) for level in np.maximum.accumulate(levels)]


def _short(seconds: float) -> float:
    return float(f"{seconds:.5g}")
