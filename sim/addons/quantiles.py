"""Draws from a measured distribution."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mezzotint.sim.core.errors import ConfigError


@dataclass(slots=True)
class QuantileSampler:
    """Draw from a distribution given by quantiles at equal steps of probability from 0 to 1, linear in between.

    Args:
        key: of the configuration or profile, for errors.
        quantiles: two or more, in ascending order, none negative.
        rng: the random stream of the draws.

    Raises ConfigError for quantiles that are fewer, negative or not in ascending order.
    """

    key: str
    quantiles: Sequence[float]
    rng: np.random.Generator | None = None
    _grid: Sequence[float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        values = list(self.quantiles)
        if len(values) < 2 or values != sorted(values) or values[0] < 0:
            raise ConfigError(f"{self.key}: found {values}, expected two or more numbers from 0 in ascending order")
        self._grid = np.linspace(0.0, 1.0, len(values)).tolist()

    @property
    def ends(self) -> list[float]:
        return [self.quantiles[0], self.quantiles[-1]]

    def __call__(self) -> float:
        assert self.rng is not None
        return float(np.interp(self.rng.random(), self._grid, self.quantiles))
