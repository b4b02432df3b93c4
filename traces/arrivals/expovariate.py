"""Poisson arrivals drawn by Python's own generator, as an engine's benchmark client sends them."""

import random
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from mezzotint.settings.ranges import Seed
from mezzotint.traces.arrivals.base import Rpm, Schedule, Times


@dataclass(frozen=True, slots=True, kw_only=True)
class Expovariate:
    """Poisson arrivals with the gaps of `random.expovariate(rate)` after `random.seed(seed)`, the first request at 0.

    Source: the client of vLLM-Omni's diffusion benchmark, as llm-d's routing benchmark ran it.

    Args:
        seed: seed of Python's `random`.
        rate_rpm: requests per minute; 60 times the client's rate.
    """

    seed: Seed
    rate_rpm: Rpm

    def schedule(self, own_clock_s: Times, rng: np.random.Generator) -> Schedule:
        draw, rate = random.Random(self.seed), self.rate_rpm / 60.0
        gaps = (draw.expovariate(rate) for _ in own_clock_s[1:])
        times = np.fromiter(accumulate(gaps, initial=0.0), np.float64)
        return Schedule(times[: len(own_clock_s)])
