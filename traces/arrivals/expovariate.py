"""Poisson arrivals as Python's own generator draws them: what an engine's benchmark client sent."""

import random
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from conf.ranges import Seed
from traces.arrivals.base import Rpm, Schedule, Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Expovariate:
    """The gaps that `random.seed(seed)` and then `random.expovariate(rate)` give, the first request at 0.

    Source: the client of vLLM-Omni's diffusion benchmark, as llm-d's routing benchmark ran it.

    Args:
        seed: of Python's `random`.
        rate_rpm: requests per minute; 60 times the client's rate.
    """

    seed: Seed
    rate_rpm: Rpm

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        draw, rate = random.Random(self.seed), self.rate_rpm / 60.0
        gaps = (draw.expovariate(rate) for _ in own_clock_s[1:])
        times = np.fromiter(accumulate(gaps, initial=0.0), np.float64)
        return Schedule(times[: len(own_clock_s)])
