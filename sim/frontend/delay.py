"""Delays of a service for one request. The papers publish single numbers (NIRVANA, 4.1: l_s is of the order of 100 ms);
a measured service has a distribution."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, log, sqrt
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from mezzotint.settings.ranges import Seconds, SomeSeconds
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.protocols import Delay

BLOCK = 1024
"""Delays drawn at a time."""

Z99 = 2.3263478740408408
"""The standard normal's 99th percentile."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Constant delay of ``seconds``."""

    seconds: float

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        return np.full(count, self.seconds)


@dataclass(slots=True)
class LogNormal:
    """Log-normal delay, given by the median and the 99th percentile, or by the mean and cv.

    Args:
        median_s, p99_s: seconds; p99_s is at least the median.
        mean_s, cv: seconds; cv is the standard deviation over the mean.
    """

    median_s: SomeSeconds | None = None
    p99_s: SomeSeconds | None = None
    mean_s: SomeSeconds | None = None
    cv: Annotated[float, Ge(0), Le(1000)] | None = None
    _mu: float = field(init=False, repr=False)
    _sigma: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        match self.median_s, self.p99_s, self.mean_s, self.cv:
            case float(median_s), float(p99_s), None, None if 0 < median_s <= p99_s < inf:
                self._mu, self._sigma = log(median_s), log(p99_s / median_s) / Z99
            case None, None, float(mean_s), float(cv) if 0 < mean_s < inf and 0 <= cv < inf:
                variance = log(1 + cv**2)
                self._mu, self._sigma = log(mean_s) - variance / 2, sqrt(variance)
            case _:
                raise ConfigError(
                    f"delay: found {self}; expected either median_s and p99_s with 0 < median_s <= p99_s, or mean_s "
                    "and cv with mean_s > 0 and cv >= 0"
                )

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        return rng.lognormal(self._mu, self._sigma, count)


@dataclass(frozen=True, slots=True)
class Empirical:
    """Measured delay: values between neighbouring quantiles are equally likely.

    Args:
        quantiles_s: seconds at evenly spaced probabilities from 0 (minimum) to 1 (maximum); two or more, not falling.
    """

    quantiles_s: Sequence[Seconds]

    def __post_init__(self) -> None:
        q = list(self.quantiles_s)
        if len(q) < 2 or not all(0 <= low <= high < inf for low, high in pairwise(q)):
            raise ConfigError(f"delay: quantiles_s: found {q}, expected two or more seconds that do not fall")

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        probabilities = np.linspace(0.0, 1.0, len(self.quantiles_s))
        return np.interp(rng.random(count), probabilities, np.asarray(self.quantiles_s, np.float64))


class RowDelays:
    """Delay of each row from ``first`` on, from a random stream of its own. It does not depend on other rows, so
    systems with the same seed see the same delays."""

    def __init__(self, delay: Delay, rng: np.random.Generator, first: int = 0) -> None:
        self._delay = delay
        self._rng = rng
        self._stop = first
        self._constant = delay.seconds if isinstance(delay, Constant) else None
        self._block: list[float] = []

    def for_row(self, row: int) -> float:
        """Return the seconds for ``row``. Rows never fall."""
        if self._constant is not None:
            return self._constant
        while row >= self._stop:
            drawn = np.asarray(self._delay.draw(self._rng, BLOCK), np.float64)
            if drawn.shape != (BLOCK,) or not ((drawn >= 0) & (drawn < inf)).all():
                raise SimulationError(
                    f"{class_name(self._delay)} drew {drawn}; expected {BLOCK} times of 0 or more seconds, and finite"
                )
            self._block = drawn.tolist()
            self._stop += BLOCK
        return self._block[row - self._stop]


def as_delay(setting: float | Delay) -> Delay:
    """Return ``setting`` as a distribution; a number is a constant."""
    return setting if isinstance(setting, Delay) else Constant(setting)
