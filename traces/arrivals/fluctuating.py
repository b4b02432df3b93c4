"""A rate that goes up and down between levels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from traces.arrivals.base import LAST_S, MOST_RPM, Schedule, Times
from traces.arrivals.profile import Profile
from traces.error import TraceError
from traces.table.validation import check_number

MOST_LEVELS = 100_000


@dataclass(frozen=True, slots=True)
class Fluctuating:
    """A Poisson process whose rate goes from level to level, each held as long, and then from the first again.

    Source: MoDM's experiment with a fluctuating rate (A.3, Fig. 17), of which the paper gives neither rates nor times.

    Args:
        rate_rpm: the mean over all levels, requests per minute.
        levels: the rate of each span in proportion to the others: [1, 3] is half and one and a half times the mean,
            and so is [5, 15].
        every_s: seconds for which each level is held.

    Raises:
        TraceError: `rate_rpm` is not above 0 and at most `MOST_RPM`, or the highest level is above it; `levels` are
            not 1 to `MOST_LEVELS` numbers of 0 and more, one of them above 0; `every_s` is not above 0 and at most
            `LAST_S`.
    """

    rate_rpm: float
    levels: Sequence[float]
    every_s: float

    def __post_init__(self) -> None:
        check_number("arrivals", "rate_rpm", self.rate_rpm, above=0.0, most=MOST_RPM)
        check_number("arrivals", "every_s", self.every_s, above=0.0, most=LAST_S)
        if isinstance(self.levels, str) or not 1 <= len(self.levels) <= MOST_LEVELS:
            raise TraceError(f"arrivals: levels={self.levels!r}, expected 1 to {MOST_LEVELS:,} numbers")
        for place, level in enumerate(self.levels):
            check_number("arrivals", f"levels[{place}]", level, least=0.0, most=MOST_RPM)
        if not any(self.levels):
            raise TraceError(f"arrivals: levels={list(self.levels)}, expected one above 0")
        check_number("arrivals", "rate_rpm at the highest of the levels", max(self.rates_rpm), most=MOST_RPM)

    @property
    def rates_rpm(self) -> list[float]:
        """The rate of each span, requests per minute."""
        mean = float(np.mean(np.asarray(self.levels, np.float64)))
        return [self.rate_rpm * (level / mean) for level in self.levels]

    @property
    def profile(self) -> Profile:
        """The rate over time."""
        return Profile(self.every_s * np.arange(len(self.levels) + 1.0), np.array(self.rates_rpm) / 60.0)

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        return Schedule(self.profile.times(len(own_clock_s), rng))
