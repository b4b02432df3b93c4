"""NIRVANA's analytic model of approximate caching (section 4.1) as pure functions.

Symbols as there: N steps of a full run, K of them skipped, C seconds of a full run (``full_s``), l_s seconds of a
search (``search_s``), l_r seconds of a fetch (``fetch_s``), h(K) the share of requests that may skip K steps or more,
h_opt(K) the share for which K is the most that may be skipped. Shares are of all requests. The event simulation
agrees with all of it where its premises hold: nothing waits, nothing is evicted, times are constant.
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


def hit_rates(similarity: NDArray[np.float64], at_least: Mapping[int, float], *, strict: bool) -> dict[int, float]:
    """h(K): the share of requests whose best match is similar enough for K steps to be skipped.

    Args:
        similarity: of each request to its best match, (n,), n > 0; NaN where there is none.
        at_least: the lowest similarity for each K, not falling as K grows.
        strict: a similarity must exceed its threshold, not just reach it.

    Raises:
        ValueError: no requests.
    """
    if not len(similarity):
        raise ValueError("expected the similarity of at least one request")
    reached = np.greater if strict else np.greater_equal
    return {k: float(reached(similarity, limit).mean()) for k, limit in sorted(at_least.items())}


def best_shares(hit_rate: Shares) -> dict[int, float]:
    """h_opt(K) = h(K) - h(K'), K' the next larger K, 0 after the largest (eq. 7).

    Raises ValueError where h grows with K.
    """
    ks = sorted(hit_rate)
    if any(hit_rate[low] < hit_rate[high] for low, high in pairwise(ks)):
        raise ValueError(f"a hit rate cannot grow with K, found {dict(hit_rate)}")
    after = [*(hit_rate[k] for k in ks[1:]), 0.0]
    return {k: hit_rate[k] - beyond for k, beyond in zip(ks, after, strict=True)}


def overall(best: Shares) -> float:
    """The hit rate, h(min K): the sum of h_opt over K (eq. 8)."""
    return math.fsum(best.values())


def saving_at(hit_rate: float, k: float, steps: int) -> float:
    """f_C = h(K) K / N: the share of GPU time saved if K is the only state that is stored (eq. 6)."""
    return hit_rate * k / steps


def saving(best: Shares, steps: int) -> float:
    """The share of GPU time saved when every request skips the most that it may: the sum of h_opt(K) K / N."""
    return math.fsum(share * k / steps for k, share in best.items())


def best_single(hit_rate: Callable[[float], float], k_limit: float, steps: int) -> tuple[float, float]:
    """The single K in 0..``k_limit`` that saves most, and what it saves, found numerically (footnote 1).

    ``hit_rate`` is h as a function of a real K; h(K) K must have one maximum.
    """
    found = minimize_scalar(
        lambda k: -saving_at(hit_rate(k), k, steps), bounds=(0, k_limit), method="bounded", options={"xatol": 1e-9}
    )
    return float(found.x), float(-found.fun)


def best_single_of_power(power: float, k_limit: float, steps: int) -> tuple[float, float]:
    """The same in closed form for h(K) = 1 - (K / K_T)^p, which falls to 0 at K_T = ``k_limit``.

    K = K_T (p + 1)^(-1/p) saves K p / ((p + 1) N). The linear fall (p = 1) saves K_T / 4N, the quadratic one
    2 K_T / (3 sqrt(3) N) = 0.3849 K_T / N (footnote 1): the slower h falls at first, the more is saved.

    Raises ValueError unless ``power`` is positive.
    """
    if not power > 0:
        raise ValueError(f"expected a positive power, found {power}")
    k = k_limit * (power + 1) ** (-1 / power)
    return k, k / steps * power / (power + 1)


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

    def retrieved_s(self) -> float:
        """Latency of an image returned as it is (K = N, 5.3.1): l_s + l_r."""
        return self.hit_s(self.steps)

    def miss_s(self) -> float:
        """Latency of a miss: l_s + C; nothing is fetched."""
        return self.search_s + self.full_s

    def predicted_miss_s(self) -> float:
        """Latency of a miss that the match predictor foresaw: C; nothing is searched."""
        return self.full_s

    def mean_s(self, best: Shares, foreseen: float = 0.0) -> float:
        """Mean latency over all requests, of which the share ``foreseen`` was predicted to miss.

        Eq. 9 as it must be meant: it adds l_s once for each K and leaves the misses out.

        Raises ValueError where hits and foreseen misses are more than all.
        """
        missed = 1 - overall(best) - foreseen
        if missed < -1e-9 or foreseen < 0:
            raise ValueError(f"a hit rate of {overall(best)} leaves no room for {foreseen} of foreseen misses")
        hits_s = math.fsum(share * self.hit_s(k) for k, share in best.items())
        return hits_s + missed * self.miss_s() + foreseen * self.predicted_miss_s()


def wasted_s(hit_rate: float, search_s: float) -> float:
    """Seconds of search per request that find nothing, without a predictor: (1 - h) l_s (4.1)."""
    return (1 - hit_rate) * search_s


def wasted_bound_s(hit_rate: float, precision: float, search_s: float) -> float:
    """The same with a match predictor of precision c_p: (1 - max(h, c_p)) l_s (5.2, where a parenthesis is missing)."""
    return (1 - max(hit_rate, precision)) * search_s


def wasted_by_false_alarms_s(hit_rate: float, precision: float, recall: float, search_s: float) -> float:
    """The same counted: h recall (1 / c_p - 1) l_s, never more than ``wasted_bound_s``.

    A predictor that foresees ``recall`` of the hits lets h recall / c_p of all requests search, and 1 - c_p of those
    find nothing.

    Raises ValueError where more would search in vain than there are misses.
    """
    in_vain = hit_rate * recall * (1 / precision - 1) if precision > 0 else math.inf
    if in_vain > 1 - hit_rate + 1e-12:
        raise ValueError(
            f"no predictor has a precision of {precision} at a hit rate of {hit_rate} and a recall of {recall}"
        )
    return in_vain * search_s


def predicted_hit_rate(hit_rate: float, recall: float) -> float:
    """The hit rate that is left with a match predictor: what it fails to foresee is generated in full."""
    return hit_rate * recall


def usd_per_image(usd_per_h: float, throughput_rpm: float) -> float:
    """Cost of an image: what the deployment costs per hour (GPUs and services) over its images per hour (7.3)."""
    return usd_per_h / (60 * throughput_rpm)


def cost_reduction(gpu_usd_h: float, services_usd_h: float, speedup: float) -> float:
    """Share of the cost per image saved over the same GPUs without the services (7.3, Fig. 13).

    ``speedup`` is the throughput over theirs: 1 - (G + S) / (G x speedup).
    """
    return 1 - (gpu_usd_h + services_usd_h) / (gpu_usd_h * speedup)
