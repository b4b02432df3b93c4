"""The search for the smallest cluster, against exhaustive search, for any outcomes of its trials; and bisection."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.plan.search import (
    ClusterSearch,
    Outcome,
    Replications,
    Trial,
    bisect,
    interval,
    paired_difference,
    run_searches,
)


def searched(
    ratio: Callable[[int, int], float],
    max_gpus: int,
    seeds: int = 6,
    needed: Callable[[int], float] = lambda _: 0.0,
    waits: float = 1.0,
) -> ClusterSearch:
    """Run the search with ``ratio(gpus, replication)`` as the outcome of a trial."""
    search, made = ClusterSearch(max_gpus, seeds), set[Trial]()

    def outcome(trial: Trial) -> Outcome:
        assert trial not in made, "a run is asked for twice"
        made.add(trial)
        return Outcome((ratio(*trial),), False, needed(trial.gpus), waits)

    run_searches({"only": search.steps()}, lambda trials: [outcome(trial) for _, trial in trials])
    return search


def runs(search: ClusterSearch) -> int:
    return sum(len(replications.outcomes) for replications in search.known.values())


@given(answer=st.integers(1, 300), max_gpus=st.integers(1, 256), factor=st.floats(0.3, 1.5))
def test_search_finds_the_smallest_cluster_of_a_monotone_law(answer: int, max_gpus: int, factor: float) -> None:
    search = searched(lambda gpus, _: answer / gpus, max_gpus, needed=lambda _: factor * answer)
    assert search.gpus == (answer if answer <= max_gpus else None)


@given(answer=st.integers(1, 256))
def test_search_takes_a_fifth_of_the_runs_of_exhaustive_search(answer: int) -> None:
    assert runs(searched(lambda gpus, _: answer / gpus, 256)) <= 256 * 2 / 5


@given(meets=st.lists(st.booleans(), min_size=3, max_size=40))
def test_answer_meets_the_target_and_so_does_the_next_larger_cluster(meets: list[bool]) -> None:
    search = searched(lambda gpus, _: 0.5 if meets[gpus - 1] else 2.0, len(meets))
    if search.gpus is None:
        return
    assert meets[search.gpus - 1]
    assert search.gpus == len(meets) or meets[search.gpus]
    assert all(not meets[gpus - 1] for gpus in search.not_monotone)
    below = [gpus for gpus in search.known if gpus < search.gpus and search.known[gpus].meets]
    assert bool(below) <= bool(search.not_monotone)


def test_search_ends_where_hardly_a_request_waits_and_the_target_is_missed() -> None:
    search = searched(lambda gpus, _: 1.5, 256, waits=0.001)
    assert search.is_floor
    assert runs(search) == 2


def test_noisy_cluster_is_run_again_until_its_interval_decides() -> None:
    noise = (0.9, 1.02, 0.93, 0.95, 0.91, 0.94)
    search = searched(lambda gpus, replication: noise[replication] if gpus >= 3 else 5.0, 8)
    assert search.gpus == 3
    assert len(search.known[3].outcomes) > 3


@pytest.mark.parametrize(
    ("ratios", "grows", "seeds", "undecided"), [((0.8, 1.2, 0.8, 1.2), False, 4, True), ((0.1,), True, 6, False)]
)
def test_undecided_cluster_and_overloaded_run_miss(
    ratios: tuple[float, ...], grows: bool, seeds: int, undecided: bool
) -> None:
    replications = Replications([Outcome((ratio,), grows, 1.0, 1.0) for ratio in ratios])
    replications.decide(seeds)
    assert replications.meets is False
    assert replications.is_undecided is undecided


@given(ratios=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6))
def test_single_replication_decides_by_its_value_alone(ratios: list[float]) -> None:
    replications = Replications([Outcome(tuple(ratios), False, 1.0, 1.0)])
    replications.decide(1)
    assert replications.meets is (max(ratios) <= 1)


@given(ends=st.lists(st.integers(0, 99), min_size=1, max_size=5))
def test_bisection_of_several_brackets_finds_each_end(ends: list[int]) -> None:
    def middle(low: int, high: int) -> int | None:
        return (low + high) // 2 if high - low > 1 else None

    brackets = dict.fromkeys(range(len(ends)), (-1, 100))
    found = bisect(brackets, middle, lambda tried: [value < ends[key] for key, value in tried])
    assert found == {key: (end - 1, end) for key, end in enumerate(ends)}


def test_confidence_interval_has_its_stated_coverage() -> None:
    rng = np.random.default_rng(3)
    held = [(spread := interval(rng.normal(10.0, 2.0, 5).tolist())).low < 10.0 < spread.high for _ in range(4000)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)


def test_what_two_designs_share_in_a_seed_cancels_in_their_difference() -> None:
    """The interval is that of the pairs' own noise, however much the load of the seeds varies, and covers as stated."""
    rng, held = np.random.default_rng(5), 0
    for _ in range(2000):
        shared, one, other = (rng.normal(0.0, scale, 4) for scale in (50.0, 1.0, 1.0))
        spread = paired_difference(list(13.0 + shared + one), list(10.0 + shared + other))
        assert spread is not None
        alone = paired_difference(list(3.0 + one), list(other))
        assert alone is not None
        assert (spread.low, spread.high) == pytest.approx((alone.low, alone.high))
        held += spread.low < 3.0 < spread.high
    assert held / 2000 == pytest.approx(0.95, abs=0.02)


def test_a_difference_takes_two_pairs_of_numbers() -> None:
    assert paired_difference([1.0, 2.0], [1.0]) is None
    assert paired_difference([1.0, None], [1.0, 2.0]) is None
    spread = paired_difference([1.0, 2.0, 9.0], [2.0, 4.0])
    assert spread is not None
    assert (spread.mean, spread.count) == (-1.5, 2)


@given(answer=st.integers(1, 60), step=st.integers(1, 8), start=st.integers(1, 80))
def test_clusters_of_groups_grow_in_multiples_of_the_group_from_any_start(answer: int, step: int, start: int) -> None:
    search = ClusterSearch(70, 6, step, start)

    def measure(trials: list[tuple[str, Trial]]) -> list[Outcome]:
        assert all(trial.gpus % step == 0 for _, trial in trials)
        return [Outcome((answer / trial.gpus,), False, answer, 1.0) for _, trial in trials]

    run_searches({"only": search.steps()}, measure)
    assert search.gpus == -(-answer // step) * step


@pytest.mark.parametrize(
    ("ratio", "is_light", "meets"), [(0.4, True, True), (0.4, False, None), (0.7, True, None), (4.0, False, False)]
)
def test_one_replication_decides_where_it_is_clear(ratio: float, is_light: bool, meets: bool | None) -> None:
    replications = Replications([Outcome((ratio,), False, 1.0, 1.0, is_light)])
    replications.decide(6)
    assert replications.meets is meets
