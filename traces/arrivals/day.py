"""Poisson arrivals with a day cycle."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from mezzotint.traces.arrivals.base import MAX_RPM, Rpm, Schedule, Times
from mezzotint.traces.arrivals.profile import RateProfile
from mezzotint.traces.synthetic.session_rate import DAY_S, day_cycle
from mezzotint.traces.table.validation import check_number

STEP_S = 60.0
"""Step of the rate; at a `day_ratio` of 60 it changes by less than a percent per step."""


@dataclass(frozen=True, slots=True)
class Day:
    """Poisson process whose rate follows the hour of the day: highest at `peak_hour`, lowest twelve hours from it.

    The rate at time t is proportional to exp(k cos(2 pi (t - peak) / 24 h)), as in the synthetic traces.

    Args:
        rate_rpm: mean rate over a day, requests per minute.
        day_ratio: rate of the busiest over that of the quietest minute; 1 is no day cycle.
        peak_hour: hours from the first second of the run to the busiest moment, the same every day.

    Raises TraceError if the rate of the busiest minute is above `MAX_RPM`.
    """

    rate_rpm: Rpm
    day_ratio: Annotated[float, Ge(1), Le(1e6)]
    peak_hour: Annotated[float, Ge(0), Le(24)]

    def __post_init__(self) -> None:
        busiest_rpm = float(self.profile.rate_hz.max()) * 60.0
        check_number("arrivals", "rate_rpm at the busiest minute", busiest_rpm, max_value=MAX_RPM)

    @property
    def profile(self) -> RateProfile:
        """Rate over time, minute by minute."""
        edges_s: Times = np.linspace(0.0, DAY_S, round(DAY_S / STEP_S) + 1, dtype=np.float64)
        # The rate of a minute is that of its middle, or the peak would come half a minute late.
        shape = day_cycle(edges_s[:-1] + STEP_S / 2, self.day_ratio, self.peak_hour)
        return RateProfile(edges_s, self.rate_rpm / 60.0 * shape)

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        return Schedule(self.profile.times(len(own_clock_s), rng))
