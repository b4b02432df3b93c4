"""The targets of role fit that a scale is fitted on, and what a pass through a cache gives for them."""

from collections.abc import Mapping, Sequence
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
