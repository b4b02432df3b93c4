"""NIRVANA's analytic model (4.1): its laws, its printed numbers, and the event simulation beside it."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim.run import Outcome
from sim.study.analytic import (
    Times,
    best_shares,
    best_single,
    best_single_of_power,
    cost_reduction,
    hit_rates,
    overall,
    predicted_hit_rate,
    saving,
    saving_at,
    usd_per_image,
    wasted_bound_s,
    wasted_by_false_alarms_s,
    wasted_s,
)
from tests.sim.lab import simulated

NIRVANA = {5: 0.65, 10: 0.75, 15: 0.85, 20: 0.90, 25: 0.95}
STEPS = 50

shares = st.floats(0, 1)
similarities = st.lists(st.floats(-1, 1) | st.just(math.nan), min_size=1, max_size=60).map(np.array)


@pytest.fixture(scope="module")
def runs() -> dict[str, Outcome]:
    """One outstanding request on one A10G."""
    settings = ("cluster=a10g", "arrivals=closed", "trace.requests=500", "preload=100")
    times = ("door.search_s=0.1", "door.fetch_s=0.03")
    return {"nirvana": simulated("system=nirvana", *settings, *times), "vanilla": simulated(*settings)}


@given(similarity=similarities, strict=st.booleans())
def test_a_larger_k_is_hit_less_and_the_parts_are_the_whole(similarity: np.ndarray, strict: bool) -> None:
    hit_rate = hit_rates(similarity, NIRVANA, strict=strict)
    rates = [hit_rate[k] for k in sorted(hit_rate)]
    assert rates == sorted(rates, reverse=True)
    best = best_shares(hit_rate)
    assert all(0 <= share <= 1 for share in best.values())
    assert overall(best) == pytest.approx(hit_rate[5])
    counted = [max((k for k, s in NIRVANA.items() if (x > s if strict else x >= s)), default=0) for x in similarity]
    assert saving(best, STEPS) == pytest.approx(np.mean(counted) / STEPS)


@given(similarity=similarities)
def test_many_k_save_at_least_what_the_best_one_does_and_at_most_what_the_largest_would(similarity: np.ndarray) -> None:
    hit_rate = hit_rates(similarity, NIRVANA, strict=True)
    saved = saving(best_shares(hit_rate), STEPS)
    assert saved >= max(saving_at(h, k, STEPS) for k, h in hit_rate.items()) - 1e-12
    assert saved <= overall(best_shares(hit_rate)) * 25 / STEPS + 1e-12


def test_a_hit_rate_that_grows_with_k_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot grow with K"):
        best_shares({5: 0.4, 10: 0.5})
    with pytest.raises(ValueError, match="at least one"):
        hit_rates(np.array([]), NIRVANA, strict=True)


@pytest.mark.parametrize(("power", "factor"), [(1, 0.25), (2, 2 / (3 * math.sqrt(3)))])
@pytest.mark.parametrize("k_limit", [10.0, 30.0, 50.0])
def test_footnote_1(power: int, factor: float, k_limit: float) -> None:
    """Linear: K_T/2 saves K_T/4N. Quadratic: 2 K_T / (3 sqrt(3) N), 0.3849 K_T/N."""
    for k, saved in (
        best_single_of_power(power, k_limit, STEPS),
        best_single(lambda k: 1 - (k / k_limit) ** power, k_limit, STEPS),
    ):
        assert saved == pytest.approx(factor * k_limit / STEPS, rel=1e-9)
        assert k == pytest.approx(k_limit * (1 / 2 if power == 1 else 3**-0.5), rel=1e-4)


@given(power=st.floats(0.2, 8), k_limit=st.floats(5, 50))
def test_what_is_found_numerically_is_the_closed_form(power: float, k_limit: float) -> None:
    closed = best_single_of_power(power, k_limit, STEPS)
    found = best_single(lambda k: 1 - (k / k_limit) ** power, k_limit, STEPS)
    assert found[1] == pytest.approx(closed[1], rel=1e-7)


@pytest.mark.parametrize("power", [0.0, -1.0, math.nan])
def test_a_hit_rate_that_does_not_fall_has_no_best_k(power: float) -> None:
    with pytest.raises(ValueError, match="expected a positive power, found"):
        best_single_of_power(power, 30, STEPS)


@given(low=st.floats(0.1, 5), more=st.floats(0.1, 5))
def test_the_slower_the_hit_rate_falls_the_more_is_saved(low: float, more: float) -> None:
    assert best_single_of_power(low + more, 30, STEPS)[1] > best_single_of_power(low, 30, STEPS)[1]


@given(similarity=similarities, full_s=st.floats(0.1, 100), search_s=shares, fetch_s=shares, foreseen=shares)
def test_latency_laws(similarity: np.ndarray, full_s: float, search_s: float, fetch_s: float, foreseen: float) -> None:
    times = Times(full_s, search_s, fetch_s, STEPS)
    best = best_shares(hit_rates(similarity, NIRVANA, strict=True))
    told = foreseen * (1 - overall(best))
    mean_s = times.mean_s(best, told)
    assert times.retrieved_s() == pytest.approx(search_s + fetch_s)
    assert times.predicted_miss_s() <= times.miss_s()
    assert times.hit_s(25) <= times.hit_s(5)
    assert min(times.hit_s(25), full_s) - 1e-9 <= mean_s <= max(times.miss_s(), times.hit_s(5)) + 1e-9
    assert mean_s <= times.mean_s(best) + 1e-9
    priced = full_s * (1 - saving(best, STEPS)) + (1 - told) * search_s + overall(best) * fetch_s
    assert mean_s == pytest.approx(priced)


@given(hit_rate=shares, precision=st.floats(0.01, 1), recall=shares)
def test_a_predictor_never_wastes_more_searches_than_there_are_misses(
    hit_rate: float, precision: float, recall: float
) -> None:
    """The paper's bound holds for every predictor that can be; a perfect one wastes nothing and costs no hit."""
    assume(hit_rate * recall * (1 / precision - 1) <= 1 - hit_rate)
    wasted = wasted_by_false_alarms_s(hit_rate, precision, recall, 0.1)
    assert wasted <= wasted_bound_s(hit_rate, precision, 0.1) + 1e-9 <= wasted_s(hit_rate, 0.1) + 2e-9
    assert predicted_hit_rate(hit_rate, recall) <= hit_rate
    assert wasted_by_false_alarms_s(hit_rate, 1.0, 1.0, 0.1) == 0
    assert predicted_hit_rate(hit_rate, 1.0) == hit_rate


def test_a_predictor_that_cannot_be_is_refused() -> None:
    for precision in (0.0, 0.5):
        with pytest.raises(ValueError, match="no predictor"):
            wasted_by_false_alarms_s(0.95, precision, 0.9, 0.1)
    with pytest.raises(ValueError, match="leaves no room"):
        Times(8.59, 0.1, 0.03, STEPS).mean_s({5: 0.9}, 0.2)


def test_the_papers_cost_reduction() -> None:
    """7.3, Fig. 13: $8.144 for the instance, $0.12 and $0.09 for services, 1.28 times the throughput: 19 to 20 %."""
    assert cost_reduction(8.144, 0.12 + 0.09, 1.28) == pytest.approx(1 - 8.354 / 8.144 / 1.28)
    assert round(cost_reduction(8.144, 0.21, 1.28), 3) == 0.199
    assert cost_reduction(8.144, 0.0, 1.0) == 0


def test_every_request_of_the_simulation_takes_the_time_of_the_model(runs: dict[str, Outcome]) -> None:
    rows = runs["nirvana"].requests.to_pandas()
    times = Times(8.59, 0.1, 0.03, STEPS)
    hit, foreseen = rows.source_id.notna(), rows.search_s == 0
    assert 0.1 < hit.mean() < 0.9
    missed_s = np.where(foreseen, times.predicted_miss_s(), times.miss_s())
    expected = np.where(hit, [times.hit_s(k) for k in rows.skipped], missed_s)
    np.testing.assert_allclose(rows.finish_s - rows.arrival_s, expected, rtol=0, atol=1e-9)


def test_means_of_the_simulation_are_those_of_its_own_hit_shares(runs: dict[str, Outcome]) -> None:
    said = runs["nirvana"].summary
    hit_rate = said["cache"]["hits"] / said["requests"]["completed"]
    best = {int(k): hit_rate * share for k, share in said["cache"]["hit_share_by_k"].items()}
    foreseen = float((runs["nirvana"].requests.to_pandas().search_s == 0).mean())
    mean_s = Times(8.59, 0.1, 0.03, STEPS).mean_s(best, foreseen)
    assert said["latency_s"]["mean"] == pytest.approx(mean_s, abs=1e-9)
    assert said["cache"]["compute_saving"] == pytest.approx(saving(best, STEPS), abs=1e-9)


def test_hit_shares_of_the_simulation_follow_from_its_similarities(runs: dict[str, Outcome]) -> None:
    """Nothing is evicted, so every request skips the most that its best match allows."""
    rows: pd.DataFrame = runs["nirvana"].requests.to_pandas()
    best = best_shares(hit_rates(rows.similarity.to_numpy(), NIRVANA, strict=True))
    counted = rows.skipped.value_counts(normalize=True)
    for k, share in best.items():
        assert counted.get(k, 0.0) == pytest.approx(share, abs=1e-9)


def test_cost_of_the_simulation_is_that_of_its_own_throughput(runs: dict[str, Outcome]) -> None:
    nirvana, vanilla = (runs[name].summary for name in ("nirvana", "vanilla"))
    assert nirvana["cost_usd"]["per_image"] == pytest.approx(usd_per_image(8.354, nirvana["throughput_rpm"]))
    reduction = 1 - nirvana["cost_usd"]["per_image"] / vanilla["cost_usd"]["per_image"]
    speedup = nirvana["throughput_rpm"] / vanilla["throughput_rpm"]
    assert speedup > 1
    assert reduction == pytest.approx(cost_reduction(8.144, 0.21, speedup), abs=1e-9)
