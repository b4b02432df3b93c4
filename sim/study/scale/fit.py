"""From what caches found to the points of a scale: least squares over all thresholds, each target by its tolerance."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sim.study.scale.rows import KS, Aim, Passes, numbers

STEP = 0.01
"""Between two thresholds that are tried; finer in the last hundredth, where the near copies are."""

FINE = (0.9925, 0.995, 0.9975)

EQUAL = 0.01
"""Misfits that differ by less than this share are equal: the savings fix only the sum of the shares above the
thresholds of K = 10, 15 and 20."""

CLIP = (0.65, 0.75, 0.85, 0.90, 0.95, 1.0)
"""NIRVANA's thresholds (Fig. 10), and what is equal."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """The thresholds (``floor`` of the first K, ``limits`` of the others) that fit best at one floor, on the encoder's
    scale; the sum of their squared residuals in tolerances, and the values that they give."""

    floor: float
    limits: tuple[float, ...]
    misfit: float
    ours: list[float]


def fit(found: Passes, aims: Sequence[Aim]) -> Fit:
    """The best thresholds, every combination on a grid tried; among equals those that bend the scale least."""
    grid = np.array([*np.arange(np.floor(found.floor / STEP + 1 + 1e-9), 1 / STEP - 0.5) * STEP, *FINE])
    above = found.share_above(np.concatenate(([found.floor], grid)))
    choices = np.array(list(combinations(range(1, len(grid) + 1), len(KS) - 1)))
    choices = np.column_stack((np.zeros(len(choices), int), choices))
    paper, tolerance = (np.array([getattr(aim, what) for aim in aims]) for what in ("paper", "tolerance"))
    misfits = np.concatenate(
        [
            np.square((numbers(above[:, some].swapaxes(0, 1)) - paper) / tolerance).sum(axis=1)
            for some in np.array_split(choices, max(1, len(choices) // 50_000))
        ]
    )
    near = choices[misfits <= misfits.min() * (1 + EQUAL)]
    own = np.column_stack((np.full(len(near), found.floor), grid[near[:, 1:] - 1], np.ones(len(near))))
    slopes = np.diff(own, axis=1) / np.diff(CLIP)
    limits = own[np.square(np.diff(slopes, axis=1)).sum(axis=1).argmin(), 1:-1].round(6).tolist()
    ours = found.numbers(limits)
    return Fit(found.floor, tuple(limits), misfit(ours, aims), ours)


def misfit(ours: Sequence[float], aims: Sequence[Aim]) -> float:
    """Sum of the squared residuals, each in the tolerance of its target."""
    return sum(((value - aim.paper) / aim.tolerance) ** 2 for value, aim in zip(ours, aims, strict=True))
