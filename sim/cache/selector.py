"""Step selectors: turn a similarity into the number of steps to skip."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from mezzotint.settings.ranges import Number, SomeShare, Steps
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.metrics.quality import AlphaFor


@dataclass(slots=True)
class Thresholds:
    """Select K from a table of the lowest similarity for each K (NIRVANA, Fig. 10; MoDM, 5.2).

    Args:
        thresholds: K, from 1 to ``of_steps`` -> similarity. A larger K needs a larger similarity.
        of_steps: the N that the table was made for; with another number of steps K keeps its share of them.
        strict: True if a similarity must exceed its threshold (NIRVANA's ``>``), not just reach it (MoDM's ``>=``).
        alpha: share of the full run's quality that the table was made to keep. The summary counts the images below it,
            if quality is measured.
        stored: artifacts that the table was made for and the cache must store, latents or images; None fits both.
        alpha_for: models, ``similarity`` and table that ``alpha`` was chosen for. It is a bound only there, or with
            higher thresholds (mezzotint.sim.metrics.quality).
    """

    thresholds: dict[Steps, Number]
    of_steps: Steps = 50
    strict: bool = False
    alpha: SomeShare | None = None
    alpha_for: AlphaFor | None = None
    stored: Literal["latents", "images"] | None = None
    _limits: list[float] = field(init=False, repr=False)
    _ks: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ks = sorted(self.thresholds)
        if not ks or ks[0] < 1 or ks[-1] > self.of_steps:
            raise ConfigError(
                f"selector.thresholds: found K = {ks}; expected one or more, each from 1 to of_steps = {self.of_steps}"
            )
        limits = [self.thresholds[k] for k in ks]
        if any(not low <= high for low, high in pairwise([*limits[:1], *limits])):
            raise ConfigError(
                f"selector.thresholds: found {self.thresholds}, expected numbers that do not fall as K grows"
            )
        self._limits, self._ks = limits, [0, *ks]

    @property
    def floor(self) -> float:
        return self._limits[0]

    def skip(self, similarity: float) -> int:
        # bisect_right counts a limit that is met, bisect_left does not: NIRVANA prints >, MoDM >=.
        reached = bisect_left if self.strict else bisect_right
        return self._ks[reached(self._limits, similarity)]
