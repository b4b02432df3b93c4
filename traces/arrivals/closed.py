"""A closed loop: a request arrives when another ends."""

import math
from dataclasses import dataclass

import numpy as np

from traces.arrivals.base import LAST_S, Schedule, Times, check_last
from traces.table.validation import check_count, check_number


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed loop: `outstanding` requests at first, and a new one whenever one ends.

    Source: NIRVANA's evaluation sends each prompt when the one before it completes (section 7.1).

    Args:
        outstanding: requests in flight.
        think_s: seconds from the end of a request to the arrival that replaces it.

    Raises:
        TraceError: `outstanding` is not a whole number of 1 or more, or `think_s` is negative or
            above `LAST_S`.
    """

    outstanding: int = 1
    think_s: float = 0.0

    def __post_init__(self) -> None:
        check_count("arrivals", "outstanding", self.outstanding)
        check_number("arrivals", "think_s", self.think_s, least=0.0, most=LAST_S)

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        rounds = math.ceil(len(own_clock_s) / self.outstanding) - 1
        check_last("arrivals: the last request arrives", self.think_s * max(rounds, 0))
        return Schedule(np.zeros(min(self.outstanding, len(own_clock_s))), self.think_s)
