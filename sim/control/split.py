"""Number of GPUs with the large model: MoDM's two allocation rules (MoDM, 5.3, equations 6 to 12).

Reconstructed from the paper's prose and its artifact. Loads are in full generations per minute: a request that runs a
share q of the steps is q of one.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Demand(NamedTuple):
    """Load in full generations per minute: misses (eq. 7) and the remaining steps of hits (eq. 8)."""

    miss_rpm: float
    hit_rpm: float


def demand(rate_rpm: float, hit_rate: float, left: float) -> Demand:
    """Return W_miss = (1 - h) R and W_hit = h R q (equations 7 and 8). ``rate_rpm`` is R, ``hit_rate`` h, and ``left``
    q: the share of the steps that a hit runs."""
    return Demand((1 - hit_rate) * rate_rpm, hit_rate * rate_rpm * left)


class KindCapacity(NamedTuple):
    """GPUs of one kind, and their P_l and P_s: full generations per minute with the large and with the small model.

    Of several kinds, the first ones take the large model first.
    """

    gpus: int
    large_rpm: float
    small_rpm: float


def large_by_kind(kinds: Sequence[KindCapacity], large: int) -> list[int]:
    """Return how many GPUs of each kind have the large model if ``large`` of all do."""
    counts = []
    for kind in kinds:
        counts.append(min(large, kind.gpus))
        large -= counts[-1]
    return counts


def capacity_left(kinds: Sequence[KindCapacity], large: int, load: Demand) -> float:
    """Return the full generations per minute left for hits once all misses are served: the left side of eq. 9,
    (N_l P_l - W_miss) + N_s P_s. It may be negative if the misses cannot be served."""
    counts = large_by_kind(kinds, large)
    large_rpm = sum(count * kind.large_rpm for count, kind in zip(counts, kinds, strict=True))
    small_rpm = sum((kind.gpus - count) * kind.small_rpm for count, kind in zip(counts, kinds, strict=True))
    return (large_rpm - load.miss_rpm) + small_rpm


def quality_split(kinds: Sequence[KindCapacity], load: Demand, safety: float = 1.0) -> int | None:
    """Return the largest N_l that serves misses and hits: quality mode (eq. 10 under 6, 7 and 9).

    Args:
        kinds: the GPUs; the paper's are of one kind.
        safety: usable share of the capacity left for hits; MoDM's artifact takes 0.9, the paper 1.

    Returns N_l from 1 to N, or None if no split serves the load.
    """
    gpus = sum(kind.gpus for kind in kinds)
    left = ((n, capacity_left(kinds, n, load)) for n in range(gpus, _min_large(kinds, load) - 1, -1))
    return next((n for n, rpm in left if safety * rpm >= load.hit_rpm), None)


def _min_large(kinds: Sequence[KindCapacity], load: Demand) -> int:
    """Return the smallest N_l that serves all misses (eq. 7), at least 1; more than N if none does."""
    taken, left_rpm = 0, load.miss_rpm
    for kind in kinds:
        needed = math.ceil(left_rpm / kind.large_rpm - 1e-9)
        if needed <= kind.gpus:
            return max(1, taken + needed)
        taken += kind.gpus
        left_rpm -= kind.gpus * kind.large_rpm
    return taken + 1


def throughput_split(kinds: Sequence[KindCapacity], load: Demand) -> int:
    """Return N_l in proportion to the GPU time of misses and hits: throughput mode (equations 11 and 12).

    N_l = round(N W_miss / (W_miss + W_hit P_l / P_s)), half to even as the artifact rounds. With several kinds it is
    the rounded N_l at which the capacities for misses and for hits are in the proportion of the loads, as here.

    N_l is from 1 to N, and N without a load.
    """
    max_large = sum(kind.gpus for kind in kinds)
    taken, before_rpm, large = 0, 0.0, 0.0
    for index, (gpus, large_rpm, small_rpm) in enumerate(kinds):
        hits = load.hit_rpm * large_rpm / small_rpm
        if load.miss_rpm + hits == 0:
            return max_large
        after_rpm = sum(kind.gpus * kind.small_rpm for kind in kinds[index + 1 :])
        # (before_rpm + n P_l) W_hit = ((gpus - n) P_s + after_rpm) W_miss, solved for n
        needed = load.miss_rpm / (load.miss_rpm + hits) * (gpus + after_rpm / small_rpm)
        needed -= before_rpm * load.hit_rpm / small_rpm / (load.miss_rpm + hits)
        large = taken + needed
        if needed <= gpus:
            break
        taken, before_rpm = taken + gpus, before_rpm + gpus * large_rpm
    return min(max(round(large), 1), max_large)
