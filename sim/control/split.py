"""Number of GPUs with the large model: MoDM's two allocation rules (MoDM, 5.3, equations 6 to 12).

Reconstructed from the paper's prose and its artifact. Loads are in full generations per minute: a request that runs a
share q of the steps is q of one.
"""

import math
from typing import NamedTuple


class Demand(NamedTuple):
    """Load in full generations per minute: misses (eq. 7) and the remaining steps of hits (eq. 8)."""

    miss_rpm: float
    hit_rpm: float


def demand(rate_rpm: float, hit_rate: float, left: float) -> Demand:
    """Return W_miss = (1 - h) R and W_hit = h R q (equations 7 and 8). ``rate_rpm`` is R, ``hit_rate`` h, and ``left``
    q: the share of the steps that a hit runs."""
    return Demand((1 - hit_rate) * rate_rpm, hit_rate * rate_rpm * left)


def capacity_left(gpus: int, large: int, load: Demand, large_rpm: float, small_rpm: float) -> float:
    """Return the full generations per minute left for hits once all misses are served: the left side of eq. 9,
    (N_l P_l - W_miss) + N_s P_s. It may be negative if the misses cannot be served."""
    return (large * large_rpm - load.miss_rpm) + (gpus - large) * small_rpm


def quality_split(gpus: int, load: Demand, large_rpm: float, small_rpm: float, safety: float = 1.0) -> int | None:
    """Return the largest N_l that serves misses and hits: quality mode (eq. 10 under 6, 7 and 9).

    Args:
        gpus: N.
        large_rpm, small_rpm: P_l and P_s, full generations per minute of a GPU with the large and the small model.
        safety: usable share of the capacity left for hits; MoDM's artifact takes 0.9, the paper 1.

    Returns N_l from 1 to N, or None if no split serves the load.
    """
    min_large = max(1, math.ceil(load.miss_rpm / large_rpm - 1e-9))  # eq. 7: all misses are served
    left = ((n, capacity_left(gpus, n, load, large_rpm, small_rpm)) for n in range(gpus, min_large - 1, -1))
    return next((n for n, rpm in left if safety * rpm >= load.hit_rpm), None)


def throughput_split(gpus: int, load: Demand, large_rpm: float, small_rpm: float, max_large: int | None = None) -> int:
    """Return N_l in proportion to the GPU time of misses and hits: throughput mode (equations 11 and 12).

    N_l = round(N W_miss / (W_miss + W_hit P_l / P_s)), half to even as the artifact rounds.

    N_l is from 1 to ``max_large``, and ``max_large`` without a load. The default is N; N - 1 keeps a small model (the
    artifact's multi-node variant).
    """
    max_large = gpus if max_large is None else max_large
    hits = load.hit_rpm * large_rpm / small_rpm
    if load.miss_rpm + hits == 0:
        return max_large
    return min(max(round(load.miss_rpm / (load.miss_rpm + hits) * gpus), 1), max_large)
