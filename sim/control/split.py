"""How many GPUs hold the large model: MoDM's two allocation rules (MoDM, 5.3, equations 6 to 12, reconstructed from the
paper's prose and its artifact). Loads are in full generations per minute: a request that runs a share q of the steps
is q of one."""

import math
from typing import NamedTuple


class Demand(NamedTuple):
    """What arrives in a minute, in full generations: misses (eq. 7) and what hits have left to run (eq. 8)."""

    miss_rpm: float
    hit_rpm: float


def demand(rate_rpm: float, hit_rate: float, left: float) -> Demand:
    """W_miss = (1 - h) R and W_hit = h R q (equations 7 and 8): ``rate_rpm`` is R, ``hit_rate`` h, and ``left`` q, the
    share of the steps that a hit runs."""
    return Demand((1 - hit_rate) * rate_rpm, hit_rate * rate_rpm * left)


def capacity_left(gpus: int, large: int, asked: Demand, large_rpm: float, small_rpm: float) -> float:
    """Full generations per minute that ``large`` of ``gpus`` GPUs leave for hits once they serve all misses: the left
    side of eq. 9, (N_l P_l - W_miss) + N_s P_s. Negative where they cannot serve the misses."""
    return (large * large_rpm - asked.miss_rpm) + (gpus - large) * small_rpm


def quality_split(gpus: int, asked: Demand, large_rpm: float, small_rpm: float, safety: float = 1.0) -> int | None:
    """Quality mode: the most large GPUs with which misses and hits are served (eq. 10 under 6, 7 and 9).

    Args:
        gpus: N.
        large_rpm, small_rpm: P_l and P_s, full generations per minute of a GPU with the large and the small model.
        safety: share of the capacity left for hits that may be planned with; MoDM's artifact takes 0.9, the paper 1.

    Returns N_l from 1 to N, or None where no split serves the load.
    """
    fewest = max(1, math.ceil(asked.miss_rpm / large_rpm - 1e-9))  # that serve all misses (eq. 7)
    left = ((n, capacity_left(gpus, n, asked, large_rpm, small_rpm)) for n in range(gpus, fewest - 1, -1))
    return next((n for n, rpm in left if safety * rpm >= asked.hit_rpm), None)


def throughput_split(gpus: int, asked: Demand, large_rpm: float, small_rpm: float, most: int | None = None) -> int:
    """Throughput mode: GPUs in proportion to what misses and hits take (equations 11 and 12).

    N_l = round(N W_miss / (W_miss + W_hit P_l / P_s)), half to even as the artifact rounds.

    N_l is from 1 to ``most``, and ``most`` where nothing is asked for: N by default, N - 1 where a small one must be
    left (the artifact's multi-node variant).
    """
    most = gpus if most is None else most
    hits = asked.hit_rpm * large_rpm / small_rpm
    if asked.miss_rpm + hits == 0:
        return most
    return min(max(round(asked.miss_rpm / (asked.miss_rpm + hits) * gpus), 1), most)
