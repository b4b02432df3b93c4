"""The trace's own clock, faster or slower."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Le

from mezzotint.traces.arrivals.base import Rpm, Schedule, Times
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import check_number

MAX_SPEEDUP = 1e6
"""Highest speedup; a higher one puts arrivals of different seconds into one microsecond."""


@dataclass(frozen=True, slots=True)
class TraceClock:
    """The trace's own clock, faster or slower.

    The first request keeps its own arrival; every gap after it is divided by `speedup`.

    Args:
        speedup: 2 makes the requests arrive twice as fast, 0.5 half as fast.
        rate_rpm: mean rate, requests per minute, that decides the speedup; None uses `speedup`.

    Raises TraceError if both are set.
    """

    speedup: Annotated[float, Ge(1 / MAX_SPEEDUP), Le(MAX_SPEEDUP)] = 1.0
    rate_rpm: Rpm | None = None

    def __post_init__(self) -> None:
        if self.rate_rpm is not None and self.speedup != 1.0:
            raise TraceError(
                f"arrivals: found speedup={self.speedup:g} and rate_rpm={self.rate_rpm:g}, expected one of the two,"
                " since the rate decides the speedup; leave one out"
            )

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        own = np.asarray(own_clock_s, np.float64)
        speedup = self.speedup
        if self.rate_rpm is not None:
            speedup = self.rate_rpm / own_rpm(own)
            check_number(
                "arrivals",
                f"rate_rpm={self.rate_rpm:g}: speedup",
                speedup,
                min_value=1 / MAX_SPEEDUP,
                max_value=MAX_SPEEDUP,
            )
        if speedup == 1.0:  # exact: (a - b) + b need not be a
            return Schedule(own.copy())
        first = own[:1]
        return Schedule(first + (own - first) / speedup)


def own_rpm(own_clock_s: Times) -> float:
    """Return the mean rate of a trace's own arrivals, (n,) seconds, in requests per minute.

    Raises TraceError if there are fewer than two requests, or all arrive at once.
    """
    span_s = float(own_clock_s[-1] - own_clock_s[0]) if len(own_clock_s) else 0.0
    if not span_s > 0.0:
        raise TraceError(
            f"arrivals: found {len(own_clock_s):,} requests within {span_s:g} s, expected two or more at different"
            " times, since the trace's own rate is to be scaled; choose arrivals=poisson"
        )
    return (len(own_clock_s) - 1) / span_s * 60.0
