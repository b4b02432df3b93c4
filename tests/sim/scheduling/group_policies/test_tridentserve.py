"""TridentServe: the knapsack and the division of GPUs against brute force, and what follows for requests."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import ComponentWeights
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import DENOISER, TEXT_ENCODER, VAE
from mezzotint.sim.scheduling.group_policies.pools import Pools
from mezzotint.sim.scheduling.group_policies.tridentserve import (
    TridentServe,
    best_placement,
    divide,
    knapsack,
    pool_load,
)
from tests.sim.lab import simulated
from tests.sim.scheduling.group_policies.stage_times import drawn, finish_s, served

REWARDS = st.lists(
    st.dictionaries(st.sampled_from([1, 2, 4]), st.integers(1, 1000).map(float), max_size=3), min_size=1, max_size=5
)


@settings(max_examples=100)
@given(rewards=REWARDS, gpus=st.integers(1, 6))
def test_knapsack_equals_brute_force(rewards: list[dict[int, float]], gpus: int) -> None:
    """The sum of rewards less the idle GPUs is the greatest there is, and no more GPUs are used than there are."""
    found = knapsack(rewards, gpus)

    def worth(degrees: tuple[int, ...]) -> float:
        return sum(each[degree] for each, degree in zip(rewards, degrees, strict=True) if degree) + sum(degrees)

    allowed = product(*([0, *each] for each in rewards))
    assert sum(found) <= gpus
    assert worth(tuple(found)) == max(worth(each) for each in allowed if sum(each) <= gpus)


@given(loads=st.lists(st.integers(1, 100), min_size=1, max_size=3), gpus=st.integers(3, 9))
def test_division_has_the_least_greatest_load(loads: list[int], gpus: int) -> None:
    counts = divide(loads, gpus)
    every = (each for each in product(range(1, gpus + 1), repeat=len(loads)) if sum(each) == gpus)
    greatest = max(load / count for load, count in zip(loads, counts, strict=True))
    assert sum(counts) == gpus
    assert greatest == min(max(load / n for load, n in zip(loads, each, strict=True)) for each in every)


def test_components_that_fit_are_placed_together_and_others_where_they_load_least() -> None:
    """Replicas balance themselves; disaggregated, the best whole numbers of GPUs leave some idle."""
    work_s, runs = {TEXT_ENCODER: 4.0, DENOISER: 60.0, VAE: 1.0}, dict.fromkeys((TEXT_ENCODER, DENOISER, VAE), 10.0)
    weights = {
        TEXT_ENCODER: ComponentWeights(6, 3.0), DENOISER: ComponentWeights(8, 5.0), VAE: ComponentWeights(1, 0.5)
    }  # fmt: skip

    def loads_within(memory_bytes: int | None) -> Callable[[Sequence[str]], float]:
        return lambda pool: pool_load(pool, work_s, runs, weights, memory_bytes)

    fits = best_placement(loads_within(15), 8)
    assert fits.pools == ((TEXT_ENCODER, DENOISER, VAE),)
    assert fits.load == 65.0 / 8
    short = best_placement(loads_within(10), 8)
    assert (short.pools, short.gpus) == (((TEXT_ENCODER, VAE), (DENOISER,)), (1, 7))
    assert short.load == 60.0 / 7
    assert best_placement(loads_within(None), 8) == fits


@pytest.mark.parametrize("seed", range(3))
def test_tridentserve_without_deadlines_or_degrees_equals_stages_together(seed: int) -> None:
    arrivals, times = drawn(seed, 60)
    trident = served(arrivals, times, TridentServe(), 3)
    assert finish_s(trident).tolist() == finish_s(served(arrivals, times, Pools(), 3)).tolist()


def test_degree_follows_idle_gpus_and_efficiency() -> None:
    """Alone, a request takes the widest degree that is efficient; of several at once each gets fewer GPUs."""
    times = [(1.0, 8.0, 1.0)]
    alone = served([0.0], times, TridentServe(), 4, degrees=(2, 4))
    assert finish_s(alone).tolist() == [1.0 + 2.0 + 1.0]
    four = served([0.0] * 4, times * 4, TridentServe(), 4, degrees=(2, 4))
    assert finish_s(four).tolist() == [1.0 + 8.0 + 1.0] * 4
    flux = ("models=flux-dev", "cluster=l20", "system=tridentserve", "trace.requests=1", "arrivals.rate_rpm=1")
    assert set(simulated(*flux).attempts.to_pandas()["degree"]) == {1}  # two GPUs are 1.56 times as fast: not efficient
    wide = simulated(*flux, "group_policy.min_efficiency=0.7").attempts.to_pandas()
    assert wide["degree"].max() == 2


def test_request_in_time_goes_before_one_that_is_late_already() -> None:
    times = [(0.25, 8.0, 0.25)] * 3 + [(0.25, 1.0, 0.25)]
    run = served([0.0, 0.0, 0.0, 4.0], times, TridentServe(), 1, deadline_s=16.0)
    finished = finish_s(run)
    assert finished[3] < finished[1]
    assert (finished - [0.0, 0.0, 0.0, 4.0] <= 16.0).sum() == 2


def test_gpus_follow_the_load_from_stage_to_stage() -> None:
    """First the denoiser is the long stage, then the text encoder. Of fixed pools each suits one half of the day."""
    weights = {TEXT_ENCODER: (6, 2.0), DENOISER: (8, 2.0), VAE: (1, 0.25)}
    times = [(1.0, 6.0, 0.25)] * 300 + [(6.0, 1.0, 0.25)] * 300
    arrivals = [each * 1.5 for each in range(600)]
    common = {"memory_bytes": 10, "weights": weights}
    trident = served(arrivals, times, TridentServe(period_s=30.0), 6, **common)
    divided = [pools["pools"] for _, what, pools in trident.record.decisions if what == "divide"]
    of_encoder = [next(gpus for names, gpus in each.items() if TEXT_ENCODER in names) for each in divided]
    assert of_encoder[0] < 3 < of_encoder[-1]
    latency_s = (finish_s(trident) - arrivals).mean()
    for encoders in (1, 2, 3, 4, 5):
        pools = Pools({TEXT_ENCODER: encoders, DENOISER: 6 - encoders, VAE: DENOISER})
        fixed = served(arrivals, times, pools, 6, **common)
        assert latency_s < np.mean(finish_s(fixed) - arrivals)


def test_whole_requests_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"group_policy=tridentserve: found a stage of whole.*stages=disaggregated"):
        simulated("system=tridentserve", "executor.stages=whole", "trace.requests=5")


def test_request_that_ends_at_its_deadline_is_in_time() -> None:
    """The GPU is free at 4 s. The second request then ends at its deadline at the earliest, the third before it.

    Both count as in time, so the one that came first runs first.
    """
    run = served(
        [0.0, 1.0, 2.0], [(0.0, 4.0, 0.0), (0.0, 4.0, 0.0), (0.0, 2.0, 0.0)], TridentServe(), 1, deadline_s=7.0
    )
    assert finish_s(run).tolist() == [4.0, 8.0, 10.0]
