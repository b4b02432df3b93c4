"""NIRVANA's analytic model of approximate caching (section 4.1), without queueing or eviction.

Symbols as in the paper: N steps of a full run, K of them skipped, C seconds of a full run (``full_s``), l_s seconds of
a search (``search_s``), l_r seconds of a fetch (``fetch_s``), h(K) the share of all requests that may skip K steps or
more, h_opt(K) the share whose largest allowed K is K.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Shares = Mapping[int, float]
"""K -> share of all requests."""


def best_shares(similarity: NDArray[np.float64], above: Mapping[int, float]) -> dict[int, float]:
    """Return h_opt(K) = h(K) - h(K'), K' the next larger K (eq. 7), with h(K) the share above its threshold.

    ``similarity`` is that of each request to its best match, (n,), NaN without one.
    """
    hit_rate = [(k, float((similarity > limit).mean())) for k, limit in sorted(above.items())]
    return {k: share - beyond for (k, share), (_, beyond) in pairwise([*hit_rate, (0, 0.0)])}


def saving(best: Shares, steps: int) -> float:
    """Return the share of GPU time saved if every request skips its largest allowed K: the sum of h_opt(K) K / N."""
    return math.fsum(share * k / steps for k, share in best.items())


def best_single(hit_rate: Callable[[float], float]) -> float:
    """Return the largest saving of a single K in 0..1, in units of K_T / N, found numerically (footnote 1)."""
    found = minimize_scalar(lambda k: -k * hit_rate(k), bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
    return float(-found.fun)


@dataclass(frozen=True, slots=True)
class Times:
    """The constants of the latency model: C, l_s and l_r in seconds, and N."""

    full_s: float
    search_s: float
    fetch_s: float
    steps: int

    def hit_s(self, k: int) -> float:
        """Return the latency of a hit that skips K steps: l_s + C (N - K) / N + l_r (eq. 5)."""
        return self.search_s + self.full_s * (self.steps - k) / self.steps + self.fetch_s

    def miss_s(self) -> float:
        """Return the latency of a miss: l_s + C, or C if the match predictor foresaw it."""
        return self.search_s + self.full_s

    def mean_s(self, best: Shares, foreseen: float) -> float:
        """Return the mean latency over all requests, of which the share ``foreseen`` was predicted to miss.

        Eq. 9 of the paper adds l_s once for each K and omits the misses; this is the mean that it must mean.
        """
        missed = 1 - math.fsum(best.values()) - foreseen
        hits_s = math.fsum(share * self.hit_s(k) for k, share in best.items())
        return hits_s + missed * self.miss_s() + foreseen * self.full_s


def usd_per_image(usd_per_h: float, throughput_rpm: float) -> float:
    """Return the cost of an image: the hourly cost of GPUs and services over the images per hour (7.3)."""
    return usd_per_h / (60 * throughput_rpm)


def cost_reduction(gpu_usd_h: float, services_usd_h: float, speedup: float) -> float:
    """Return the share of the cost per image saved over the same GPUs without services: 1 - (G + S) / (G x speedup)
    (7.3)."""
    return 1 - (gpu_usd_h + services_usd_h) / (gpu_usd_h * speedup)
