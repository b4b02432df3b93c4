"""NIRVANA's analytic model of approximate caching (section 4.1), where nothing waits and nothing is evicted.

Symbols as there: N steps of a full run, K of them skipped, C seconds of a full run (``full_s``), l_s seconds of a
search (``search_s``), l_r seconds of a fetch (``fetch_s``), h(K) the share of all requests that may skip K steps or
more, h_opt(K) the share for which K is the most that may be skipped.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Shares = Mapping[int, float]
"""A share of all requests by K."""


def best_shares(similarity: NDArray[np.float64], above: Mapping[int, float]) -> dict[int, float]:
    """h_opt(K) = h(K) - h(K'), K' the next larger K (eq. 7), with h(K) the share that is more similar than ``above``.

    ``similarity`` is that of each request to its best match, (n,), NaN where there is none.
    """
    hit_rate = [(k, float((similarity > limit).mean())) for k, limit in sorted(above.items())]
    return {k: share - beyond for (k, share), (_, beyond) in pairwise([*hit_rate, (0, 0.0)])}


def saving(best: Shares, steps: int) -> float:
    """The share of GPU time saved when every request skips the most that it may: the sum of h_opt(K) K / N."""
    return math.fsum(share * k / steps for k, share in best.items())


def best_single(hit_rate: Callable[[float], float]) -> float:
    """What the best single K in 0..1 saves, in units of K_T / N, found numerically (footnote 1)."""
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
        """Latency of a hit that skips K steps: l_s + C (N - K) / N + l_r (eq. 5)."""
        return self.search_s + self.full_s * (self.steps - k) / self.steps + self.fetch_s

    def miss_s(self) -> float:
        """Latency of a miss: l_s + C; nothing is fetched. Of one that the match predictor foresaw: C."""
        return self.search_s + self.full_s

    def mean_s(self, best: Shares, foreseen: float) -> float:
        """Mean latency over all requests, of which the share ``foreseen`` was predicted to miss.

        Eq. 9 as it must be meant: it adds l_s once for each K and leaves the misses out.
        """
        missed = 1 - math.fsum(best.values()) - foreseen
        hits_s = math.fsum(share * self.hit_s(k) for k, share in best.items())
        return hits_s + missed * self.miss_s() + foreseen * self.full_s


def usd_per_image(usd_per_h: float, throughput_rpm: float) -> float:
    """Cost of an image: what the deployment costs per hour (GPUs and services) over its images per hour (7.3)."""
    return usd_per_h / (60 * throughput_rpm)


def cost_reduction(gpu_usd_h: float, services_usd_h: float, speedup: float) -> float:
    """Share of the cost per image saved over the same GPUs without the services: 1 - (G + S) / (G x speedup) (7.3)."""
    return 1 - (gpu_usd_h + services_usd_h) / (gpu_usd_h * speedup)
