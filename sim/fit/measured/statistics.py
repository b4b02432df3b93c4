"""Statistics of latencies, the spread that a repetition of a run would have, and the requests that met no other."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHARES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""Percentile -> its share, interpolated linearly as NumPy and the benchmarks' clients do."""

MIN_LOOP = 10
"""Fewest requests that can show a closed loop."""

RESAMPLES, MANY = 1000, 20_000
"""Resamples of the bootstrap, and requests above which a fifth of them is enough."""

BAND = (0.025, 0.975)
"""Quantiles of the resampled statistics that bound the spread."""


def statistics(arrival_s: Floats, latency_s: Floats) -> dict[str, float]:
    """Return mean and percentiles in seconds, and throughput per minute: requests over first arrival to last answer."""
    found = {"mean": float(latency_s.mean())}
    quantiles = np.quantile(latency_s, list(SHARES.values())).tolist()
    found |= dict(zip(SHARES, quantiles, strict=True))
    span_s = float((arrival_s + latency_s).max() - arrival_s.min())
    return found | ({"throughput": 60 * len(latency_s) / span_s} if span_s > 0 else {})


def spread(latency_s: Floats, seed: int = 0) -> dict[str, list[float]]:
    """Return the 95 % interval of mean and percentiles over resamples of blocks of consecutive requests.

    Neighbours share a queue, so single requests are not independent. The blocks have the square root of the number of
    requests and wrap around at the end (circular block bootstrap). That blocks are alike is an assumption: a real
    repetition also differs by the state of the machine.

    Source: Politis and Romano, A circular block-resampling procedure for stationary data, 1992.
    """
    count = len(latency_s)
    length = math.ceil(math.sqrt(count))
    rng = np.random.default_rng(seed)
    resamples = RESAMPLES if count <= MANY else RESAMPLES // 5
    drawn = np.empty((resamples, 1 + len(SHARES)))
    for values in drawn:
        starts = rng.integers(count, size=math.ceil(count / length))
        rows = (starts[:, None] + np.arange(length)).ravel()[:count] % count
        values[:] = latency_s[rows].mean(), *np.quantile(latency_s[rows], list(SHARES.values()))
    low, high = np.quantile(drawn, BAND, axis=0).tolist()
    return {name: bounds for name, *bounds in zip(("mean", *SHARES), low, high, strict=True)}


def closed_loop(arrival_s: Floats, latency_s: Floats) -> int | None:
    """Return the number of clients of a closed loop, whose next request follows an answer; None for an open loop.

    A request follows an answer if it arrives within 2 % of the median latency after it. In a closed loop at least nine
    in ten do, of those after the first in flight together.

    Args:
        arrival_s, latency_s: (n,), in order of arrival, without NaN.
    """
    ends_s = np.sort(arrival_s + latency_s)
    in_flight = np.arange(1, len(arrival_s) + 1) - np.searchsorted(ends_s, arrival_s, side="right")
    clients = int(in_flight.max())
    later_s = arrival_s[clients:]
    before = np.searchsorted(ends_s, later_s, side="right") - 1
    if len(later_s) < MIN_LOOP or (before < 0).any():
        return None
    follows = later_s - ends_s[before] <= 0.02 * np.median(latency_s)
    return clients if follows.mean() >= 0.9 else None


def quiet(arrival_s: Floats, latency_s: Floats) -> NDArray[np.bool_]:
    """Return True for requests that began when no other was in flight, (n,).

    Args:
        arrival_s: in ascending order.
        latency_s: NaN for a request whose answer is not known, after which none is taken to be quiet: it might still
            be in flight.
    """
    ends_s = np.where(np.isnan(latency_s), np.inf, arrival_s + latency_s)
    in_flight_until_s = np.concatenate(([-np.inf], np.maximum.accumulate(ends_s)[:-1]))
    return ~np.isnan(latency_s) & (arrival_s >= in_flight_until_s)
