"""Closed loop: a request arrives when another ends."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mezzotint.settings.ranges import Count
from mezzotint.traces.arrivals.base import Schedule, Span, Times, check_last


@dataclass(frozen=True, slots=True)
class Closed:
    """Closed loop: `outstanding` requests at first, and a new one whenever one ends.

    Source: NIRVANA's evaluation sends each prompt when the one before it completes (section 7.1).

    Args:
        outstanding: requests in flight.
        think_s: seconds from the end of a request to the arrival that replaces it.
        think: ``constant``, or ``exponential`` with the mean ``think_s``.
    """

    outstanding: Count = 1
    think_s: Span = 0.0
    think: Literal["constant", "exponential"] = "constant"

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        # Service times are not known yet: without thinking alone no arrival comes later than this.
        rounds = math.ceil(len(own_clock_s) / self.outstanding) - 1
        check_last(self.think_s * max(rounds, 0))
        drawn = self.think == "exponential" and self.think_s > 0
        think_s = rng.exponential(self.think_s, len(own_clock_s)) if drawn else self.think_s
        return Schedule(np.zeros(min(self.outstanding, len(own_clock_s))), think_s)
