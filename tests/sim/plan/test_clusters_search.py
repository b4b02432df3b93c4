"""The search for the smallest cluster: against exhaustive search, for any outcomes of its runs."""

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.plan.clusters.search import Ask, Found, Judgement, Outcome, run_search, smallest

Ratio = Callable[[int, int], float]


def searched(
    ratio: Ratio, max_gpus: int, seeds: int = 6, needed: Callable[[int], float] = lambda gpus: 0.0, waits: float = 1.0
) -> Found:
    """Run the search with ``ratio(gpus, replication)`` as the outcome of a run."""
    found, asked = Found(1), set[Ask]()

    def outcome(ask: Ask) -> Outcome:
        assert ask not in asked, "a run is asked for twice"
        asked.add(ask)
        return Outcome((ratio(ask.gpus, ask.replication),), False, needed(ask.gpus), waits)

    run_search(smallest(found, max_gpus, seeds), lambda asks: {ask: outcome(ask) for ask in asks})
    return found


def runs(found: Found) -> int:
    return sum(len(judgement.outcomes) for judgement in found.known.values())


@given(answer=st.integers(1, 300), max_gpus=st.integers(1, 256), factor=st.floats(0.3, 1.5))
def test_search_finds_the_smallest_cluster_of_a_monotone_law(answer: int, max_gpus: int, factor: float) -> None:
    found = searched(lambda gpus, _: answer / gpus, max_gpus, needed=lambda gpus: factor * answer)
    assert found.gpus == (answer if answer <= max_gpus else None)


@given(answer=st.integers(1, 256))
def test_search_takes_a_fifth_of_the_runs_of_exhaustive_search(answer: int) -> None:
    assert runs(searched(lambda gpus, _: answer / gpus, 256)) <= 256 * 2 / 5


@given(meets=st.lists(st.booleans(), min_size=3, max_size=40))
def test_answer_meets_the_target_and_so_does_the_next_larger_cluster(meets: list[bool]) -> None:
    found = searched(lambda gpus, _: 0.5 if meets[gpus - 1] else 2.0, len(meets))
    if found.gpus is None:
        return
    assert meets[found.gpus - 1]
    assert found.gpus == len(meets) or meets[found.gpus]
    assert all(not meets[gpus - 1] for gpus in found.not_monotone)
    below = [gpus for gpus in found.known if gpus < found.gpus and found.known[gpus].meets]
    assert bool(below) <= bool(found.not_monotone)


def test_search_ends_where_hardly_a_request_waits_and_the_target_is_missed() -> None:
    found = searched(lambda gpus, _: 1.5, 256, waits=0.001)
    assert found.is_floor
    assert runs(found) == 2


def test_noisy_cluster_is_run_again_until_its_interval_decides() -> None:
    noise = (0.9, 1.02, 0.93, 0.95, 0.91, 0.94)
    found = searched(lambda gpus, replication: noise[replication] if gpus >= 3 else 5.0, 8)
    assert found.gpus == 3
    assert len(found.known[3].outcomes) > 3


def test_cluster_that_no_number_of_seeds_decides_counts_as_missing() -> None:
    judgement = Judgement([Outcome((ratio,), False, 1.0, 1.0) for ratio in (0.8, 1.2, 0.8, 1.2)])
    judgement.decide(4)
    assert judgement.meets is False
    assert judgement.is_open


def test_growing_backlog_misses_whatever_the_latencies_say() -> None:
    judgement = Judgement([Outcome((0.1,), True, 9.0, 1.0)])
    judgement.decide(6)
    assert judgement.meets is False
    assert not judgement.is_open


@given(ratios=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6))
def test_single_replication_decides_by_its_value_alone(ratios: list[float]) -> None:
    judgement = Judgement([Outcome(tuple(ratios), False, 1.0, 1.0)])
    judgement.decide(1)
    assert judgement.meets is (max(ratios) <= 1)
    assert math.isfinite(max(ratios))
