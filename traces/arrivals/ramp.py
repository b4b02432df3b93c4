"""Deterministic arrivals at a rising or falling rate."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from mezzotint.traces.arrivals.base import Rpm, Schedule, Times


@dataclass(frozen=True, slots=True)
class Ramp:
    """Deterministic gaps of 60 / r_i seconds at a rate r_i that rises or falls over the n requests.

    Request 0 arrives at 0, request i + 1 a gap of 60 / r_i after request i. "linear": r_i goes from
    `start_rpm` to `end_rpm` in equal steps. "sigmoid": r_i = start + (end - start) * sigmoid(1.5 x_i)
    with x_i in equal steps from -2 to 6, so it starts a twentieth of the way up and levels off.

    Source: MoDM's increasing-rate experiment (Fig. 10), as its artifact computes it.

    Args:
        start_rpm, end_rpm: requests per minute.
        shape: "sigmoid" or "linear".
    """

    start_rpm: Rpm
    end_rpm: Rpm
    shape: Literal["linear", "sigmoid"] = "sigmoid"

    def rates_rpm(self, count: int) -> Times:
        """Return the rate after each of `count` requests, (count,) requests per minute."""
        if self.shape == "linear":
            progress = np.linspace(0.0, 1.0, count)
        else:
            progress = 1.0 / (1.0 + np.exp(-1.5 * np.linspace(-2.0, 6.0, count)))
        return self.start_rpm + (self.end_rpm - self.start_rpm) * progress

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        count = len(own_clock_s)
        gaps_s = 60.0 / self.rates_rpm(count)
        # The gap after the last request separates nothing, but its rate is the end of the ramp.
        return Schedule(np.cumsum(np.concatenate([np.zeros(min(count, 1)), gaps_s[:-1]])))
