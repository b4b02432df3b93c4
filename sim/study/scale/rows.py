"""The targets of role fit that a scale is fitted on, and what a pass through a cache gives for them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.errors import ConfigError
from sim.study.scorecard.nirvana import CAPACITIES
from sim.study.scorecard.targets import Target

KS = (5, 10, 15, 20, 25)
"""Steps that NIRVANA skips (5.2)."""

OF_STEPS = 50

PRELOAD = 10_000
"""Prompts in the cache at the start of NIRVANA's runs other than Table 3 (7.1)."""

SIZES = tuple(items // len(KS) for items in CAPACITIES)
"""Prompts in Table 3's caches."""

NAMES = ("1.5k", "15k", "150k", "1.5M")

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Aim:
    """One published number: what it is called, its value, and how far from it is still held."""

    name: str
    paper: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class Passes:
    """What the caches found at one floor.

    Attributes:
        floor: on the encoder's scale.
        similar: the similarities of the hits, sorted, for each of Table 3's caches and, last, for the preloaded one.
        served: the requests of each.
    """

    floor: float
    similar: tuple[Floats, ...]
    served: tuple[int, ...]

    def share_above(self, limits: Floats) -> Floats:
        """The share of the requests that start from something more similar, (caches, limits)."""
        return np.stack(
            [
                (len(similar) - np.searchsorted(similar, limits, side="right")) / served
                for similar, served in zip(self.similar, self.served, strict=True)
            ]
        )

    def numbers(self, limits: Sequence[float]) -> list[float]:
        """What the aims are met with, in their order, with these thresholds for the K beyond the first."""
        return numbers(self.share_above(np.array([self.floor, *limits]))[None])[0].tolist()  # type: ignore[no-any-return]


def numbers(above: Floats) -> Floats:
    """Hit rates and savings of Table 3's caches, the preloaded one's hit rate, and its share at the largest K.

    Args:
        above: (any, caches, K), the share of requests above each threshold; the last cache is the preloaded one.

    Returns:
        (any, aims), in the order of ``aims``.
    """
    steps = np.diff([0, *KS]) / OF_STEPS
    tables = above[:, :-1]
    return np.concatenate((tables[:, :, 0], tables @ steps, above[:, -1, :1], above[:, -1, -1:]), axis=1)


def aims(targets: Mapping[str, Sequence[Target]]) -> list[Aim]:
    """The published numbers. Raises ConfigError where one of them is not of role fit."""
    known = {target.id: target for target in targets["nirvana"]}
    return [aim for name in ("N07-fifo", "N08-fifo", "N04a", "N04b") for aim in _aims(known[name])]


def _aims(target: Target) -> Iterator[Aim]:
    if target.role != "fit":
        raise ConfigError(f"targets: {target.id} has role {target.role}, expected fit; a scale is fitted on no other")
    allowed = target.tolerance or {}
    for place, value in enumerate(target.values):
        tolerance = allowed["abs"] if "abs" in allowed else allowed["rel"] * value
        name = target.id if len(target.values) == 1 else f"{target.id}, {NAMES[place]}"
        yield Aim(name, value, tolerance)
