"""Poisson arrivals at a rate that alternates between levels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le, Len

from mezzotint.traces.arrivals.base import LAST_S, MAX_RPM, Rpm, Schedule, Times
from mezzotint.traces.arrivals.profile import RateProfile
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import check_number


@dataclass(frozen=True, slots=True)
class Fluctuating:
    """Poisson process whose rate steps through levels of equal duration, again and again.

    Source: MoDM's experiment with a fluctuating rate (A.3, Fig. 17); the paper gives neither rates nor times.

    Args:
        rate_rpm: mean rate over all levels, requests per minute.
        levels: relative rates of the levels: [1, 3] is half and one and a half times the mean, and so is [5, 15].
        every_s: seconds of each level.

    Raises TraceError if no level is above 0, or the rate of the highest is above `MAX_RPM`.
    """

    rate_rpm: Rpm
    levels: Annotated[Sequence[Annotated[float, Ge(0), Le(MAX_RPM)]], Len(1, 100_000)]
    every_s: Annotated[float, Ge(1e-9), Le(LAST_S)]

    def __post_init__(self) -> None:
        if not any(self.levels):
            raise TraceError(f"arrivals: levels={list(self.levels)}, expected at least one above 0")
        check_number("arrivals", "rate_rpm at the highest of the levels", max(self.rates_rpm), max_value=MAX_RPM)

    @property
    def rates_rpm(self) -> list[float]:
        """Rate of each level, requests per minute."""
        mean = float(np.mean(np.asarray(self.levels, np.float64)))
        return [self.rate_rpm * (level / mean) for level in self.levels]

    @property
    def profile(self) -> RateProfile:
        """Rate over time."""
        return RateProfile(self.every_s * np.arange(len(self.levels) + 1.0), np.array(self.rates_rpm) / 60.0)

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        return Schedule(self.profile.times(len(own_clock_s), rng))
