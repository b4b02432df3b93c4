"""Poisson process whose rate follows a periodic profile."""

from dataclasses import dataclass

import numpy as np

from mezzotint.traces.arrivals.base import Times


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Piecewise constant, periodic rate.

    Attributes:
        edges_s: (m + 1,) seconds at which the pieces begin, from 0; the last is the period.
        rate_hz: (m,) requests per second in each piece, not negative and not all zero.
    """

    edges_s: Times
    rate_hz: Times

    def times(self, count: int, rng: np.random.Generator) -> Times:
        """Return the first `count` arrivals of a Poisson process of this rate, (count,) seconds.

        Arrivals of a Poisson process of rate 1 are mapped through the inverse of the expected count (time change:
        Cinlar, Introduction to Stochastic Processes, 4.7). So the same stream gives the same draws at every rate.
        """
        unit = np.cumsum(rng.exponential(1.0, count))
        so_far = np.concatenate([[0.0], np.cumsum(self.rate_hz * np.diff(self.edges_s))])
        # Whole periods apart: the rate repeats, and interpolation sees one period
        # (test_arrival_times_invert_the_integrated_rate).
        rounds, rest = np.divmod(unit, so_far[-1])
        times_s = rounds * self.edges_s[-1] + np.interp(rest, so_far, self.edges_s)
        return np.maximum.accumulate(times_s)  # a sum of periods may round to just below the end of the last one
