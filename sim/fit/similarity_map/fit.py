"""The points of a scale: least squares over all thresholds, on targets of role fit, each by its tolerance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sim.core.errors import ConfigError
from sim.papers.scorecard.nirvana import CAPACITIES
from sim.papers.scorecard.targets import Target

KS = (5, 10, 15, 20, 25)
"""Steps that NIRVANA skips (5.2)."""

OF_STEPS = 50

PRELOAD = 10_000
"""Prompts in the cache at the start of NIRVANA's runs other than Table 3 (7.1)."""

SIZES = tuple(items // len(KS) for items in CAPACITIES)
"""Prompts in Table 3's caches."""

NAMES = ("1.5k", "15k", "150k", "1.5M")

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
class Aim:
    """One published number and its tolerance."""

    name: str
    paper: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class Passes:
    """The caches at one ``floor`` of the encoder's scale: Table 3's and, last, the preloaded one.

    ``similar`` has the similarities of each cache's hits, sorted, ``served`` the requests of each.
    """

    floor: float
    similar: tuple[Floats, ...]
    served: tuple[int, ...]

    def share_above(self, limits: Floats) -> Floats:
        """The share of the requests that start from something more similar, (caches, limits)."""
        caches = zip(self.similar, self.served, strict=True)
        return np.stack([(len(hits) - np.searchsorted(hits, limits, side="right")) / served for hits, served in caches])

    def numbers(self, limits: Sequence[float]) -> list[float]:
        """What the aims are met with, in their order, with these thresholds for the K beyond the first."""
        return numbers(self.share_above(np.array([self.floor, *limits]))[None])[0].tolist()  # type: ignore[no-any-return]


def numbers(above: Floats) -> Floats:
    """Hit rates and savings of Table 3's caches, the preloaded one's hit rate, and its share at the largest K.

    ``above`` (any, caches, K) is the share of requests above each threshold. Returns (any, aims).
    """
    steps = np.diff([0, *KS]) / OF_STEPS
    tables = above[:, :-1]
    return np.concatenate((tables[:, :, 0], tables @ steps, above[:, -1, :1], above[:, -1, -1:]), axis=1)


def aims(targets: Mapping[str, Sequence[Target]]) -> list[Aim]:
    """The published numbers. Raises ConfigError where one of them is not of role fit."""
    known = {target.id: target for target in targets["nirvana"]}
    found = []
    for target in (known[name] for name in ("N07-fifo", "N08-fifo", "N04a", "N04b")):
        if target.role != "fit":
            raise ConfigError(
                f"targets: {target.id} has role {target.role}, expected fit; a scale is fitted on no other"
            )
        allowed = target.tolerance or {}
        for place, value in enumerate(target.values):
            name = target.id if len(target.values) == 1 else f"{target.id}, {NAMES[place]}"
            found.append(Aim(name, value, allowed["abs"] if "abs" in allowed else allowed["rel"] * value))
    return found


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
