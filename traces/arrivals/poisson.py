"""A homogeneous Poisson process."""

from dataclasses import dataclass

import numpy as np

from traces.arrivals.base import MOST_RPM, Schedule, Times
from traces.table.validation import check_number


@dataclass(frozen=True, slots=True)
class Poisson:
    """A homogeneous Poisson process: independent exponential gaps of mean 60 / `rate_rpm` seconds.

    Source: MoDM's latency and SLO experiments (section 6), of every system compared (its artifact's
    multi-node script).

    Args:
        rate_rpm: requests per minute.

    Raises:
        TraceError: `rate_rpm` is not above 0 and at most `MOST_RPM`.
    """

    rate_rpm: float

    def __post_init__(self) -> None:
        check_number("arrivals", "rate_rpm", self.rate_rpm, above=0.0, most=MOST_RPM)

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        return Schedule(np.cumsum(rng.exponential(60.0 / self.rate_rpm, len(own_clock_s))))
