"""Homogeneous Poisson arrivals."""

from dataclasses import dataclass

import numpy as np

from mezzotint.traces.arrivals.base import Rpm, Schedule, Times


@dataclass(frozen=True, slots=True)
class Poisson:
    """Homogeneous Poisson process: independent exponential gaps of mean 60 / `rate_rpm` seconds.

    Source: MoDM's latency and SLO experiments (section 6), of every system compared (its artifact's
    multi-node script).

    Args:
        rate_rpm: requests per minute.
    """

    rate_rpm: Rpm

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        gaps_s = rng.exponential(60.0 / self.rate_rpm, len(own_clock_s))
        return Schedule(np.cumsum(gaps_s, out=gaps_s))
