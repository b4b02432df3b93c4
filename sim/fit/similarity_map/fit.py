"""Least-squares fit of a similarity map's points to the published rows of role fit, in units of their tolerances."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.scorecard.measures.nirvana import CAPACITIES
from mezzotint.sim.papers.scorecard.targets import Target

KS = (5, 10, 15, 20, 25)
"""Numbers of steps that NIRVANA may skip (5.2)."""

OF_STEPS = 50

PRELOAD = 10_000
"""Prompts cached at the start of NIRVANA's runs other than Table 3 (7.1)."""

SIZES = tuple(items // len(KS) for items in CAPACITIES)
"""Prompts in Table 3's caches."""

NAMES = ("1.5k", "15k", "150k", "1.5M")

GRID_STEP = 0.01
"""Distance between two candidate thresholds; finer in the last hundredth, where the near copies are."""

FINE_GRID = (0.9925, 0.995, 0.9975)

EQUAL = 0.01
"""Relative difference below which two misfits count as equal.

The savings determine only the sum of the shares above the thresholds of K = 10, 15 and 20.
"""

CLIP = (0.65, 0.75, 0.85, 0.90, 0.95, 1.0)
"""NIRVANA's thresholds (Fig. 10), and 1 for an equal prompt."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One published number and its tolerance."""

    name: str
    paper: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class CacheReplays:
    """Replays of a trace through all caches at one floor: Table 3's caches and, last, the preloaded one.

    Attributes:
        floor: the encoder's similarity that a hit exceeds.
        similar: sorted similarities of each cache's hits.
        served: number of requests of each cache.
    """

    floor: float
    similar: tuple[Floats, ...]
    served: tuple[int, ...]

    def share_above(self, limits: Floats) -> Floats:
        """Return the share of requests with a hit above each limit, (caches, limits)."""
        caches = zip(self.similar, self.served, strict=True)
        return np.stack([(len(hits) - np.searchsorted(hits, limits, side="right")) / served for hits, served in caches])

    def predicted(self, limits: Sequence[float]) -> list[float]:
        """Return our values in the order of ``published_values``, with these thresholds for all K but the first."""
        return predictions(self.share_above(np.array([self.floor, *limits]))[None])[0].tolist()  # type: ignore[no-any-return]


def predictions(above: Floats) -> Floats:
    """Return hit rates and savings of Table 3's caches, the preloaded one's hit rate, and its share at the largest K.

    Args:
        above: share of requests above each threshold, (n, caches, K).

    Returns:
        (n, published values).
    """
    steps = np.diff([0, *KS]) / OF_STEPS
    tables = above[:, :-1]
    return np.concatenate((tables[:, :, 0], tables @ steps, above[:, -1, :1], above[:, -1, -1:]), axis=1)


def published_values(targets: Mapping[str, Sequence[Target]]) -> list[PublishedValue]:
    """Return the numbers to fit. Raises ConfigError if one of them is not of role fit."""
    known = {target.id: target for target in targets["nirvana"]}
    rows = []
    for target in (known[name] for name in ("N07-fifo", "N08-fifo", "N04a", "N04b")):
        if target.role != "fit":
            raise ConfigError(f"targets: {target.id} has role {target.role}, expected fit; the map may use no other")
        allowed = target.tolerance or {}
        for index, value in enumerate(target.values):
            name = target.id if len(target.values) == 1 else f"{target.id}, {NAMES[index]}"
            rows.append(PublishedValue(name, value, allowed["abs"] if "abs" in allowed else allowed["rel"] * value))
    return rows


@dataclass(frozen=True, slots=True)
class Fit:
    """The best thresholds at one floor, in the encoder's similarities.

    Attributes:
        floor: threshold of the first K; ``limits`` are those of the others.
        misfit: sum of the squared residuals, in tolerances.
        ours: values with these thresholds, in the order of the published ones.
    """

    floor: float
    limits: tuple[float, ...]
    misfit: float
    ours: list[float]


def fit(replays: CacheReplays, published: Sequence[PublishedValue]) -> Fit:
    """Try every combination of thresholds on a grid; among equal misfits take the map with the least curvature."""
    first = np.floor(replays.floor / GRID_STEP + 1 + 1e-9)
    grid = np.array([*np.arange(first, 1 / GRID_STEP - 0.5) * GRID_STEP, *FINE_GRID])
    above = replays.share_above(np.concatenate(([replays.floor], grid)))
    choices = np.array(list(combinations(range(1, len(grid) + 1), len(KS) - 1)))
    choices = np.column_stack((np.zeros(len(choices), int), choices))
    paper, tolerance = (np.array([getattr(row, name) for row in published]) for name in ("paper", "tolerance"))
    misfits = np.concatenate(
        [
            np.square((predictions(above[:, part].swapaxes(0, 1)) - paper) / tolerance).sum(axis=1)
            for part in np.array_split(choices, max(1, len(choices) // 50_000))
        ]
    )
    near = choices[misfits <= misfits.min() * (1 + EQUAL)]
    points = np.column_stack((np.full(len(near), replays.floor), grid[near[:, 1:] - 1], np.ones(len(near))))
    slopes = np.diff(points, axis=1) / np.diff(CLIP)
    limits = points[np.square(np.diff(slopes, axis=1)).sum(axis=1).argmin(), 1:-1].round(6).tolist()
    ours = replays.predicted(limits)
    return Fit(replays.floor, tuple(limits), misfit(ours, published), ours)


def misfit(ours: Sequence[float], published: Sequence[PublishedValue]) -> float:
    """Return the sum of the squared residuals, each in the tolerance of its published value."""
    return sum(((value - row.paper) / row.tolerance) ** 2 for value, row in zip(ours, published, strict=True))
