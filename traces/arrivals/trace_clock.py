"""The trace's own clock, faster or slower."""

from dataclasses import dataclass

import numpy as np

from traces.arrivals.base import Schedule, Times
from traces.table.validation import check_number

MOST = 1e6
"""A faster clock puts arrivals of different seconds into one microsecond."""


@dataclass(frozen=True, slots=True)
class TraceClock:
    """The trace's own clock, faster or slower.

    The first request keeps its own arrival; every gap after it is divided by `speedup`.

    Args:
        speedup: 2 makes the requests arrive twice as fast, 0.5 half as fast.

    Raises:
        TraceError: `speedup` is not between 1 / `MOST` and `MOST`.
    """

    speedup: float = 1.0

    def __post_init__(self) -> None:
        check_number("arrivals", "speedup", self.speedup, least=1 / MOST, most=MOST)

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        own = np.asarray(own_clock_s, np.float64)
        if self.speedup == 1.0:  # exact: (a - b) + b need not be a
            return Schedule(own.copy())
        first = own[:1]
        return Schedule(first + (own - first) / self.speedup)
