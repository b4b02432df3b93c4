"""The event simulation beside NIRVANA's analytic model (4.1), and the model's printed numbers."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.papers.scorecard.measures import nirvana
from mezzotint.sim.run.simulate import Outcome
from tests.oracles.approximate_caching import Times, best_shares, best_single, cost_reduction, saving, usd_per_image
from tests.sim.lab import simulated

NIRVANA = {5: 0.65, 10: 0.75, 15: 0.85, 20: 0.90, 25: 0.95}
STEPS = 50
TIMES = Times(8.59, 0.1, 0.03, STEPS)


@pytest.fixture(scope="module")
def runs() -> dict[str, Outcome]:
    """One outstanding request on one A10G."""
    settings = ("cluster=a10g", "arrivals=closed", "trace.requests=500", "preload=100")
    times = ("frontend.search_s=0.1", "frontend.fetch_s=0.03")
    return {"nirvana": simulated("system=nirvana", *settings, *times), "vanilla": simulated(*settings)}


@pytest.mark.parametrize(("power", "saved"), [(1, 0.25), (2, 2 / (3 * math.sqrt(3)))])
def test_best_single_threshold_matches_nirvana_footnote_1(power: int, saved: float) -> None:
    """Linear: K_T/2 saves K_T/4N. Quadratic: 2 K_T / (3 sqrt(3) N), 0.3849 K_T/N."""
    assert nirvana.best_single(power) == pytest.approx(saved, rel=1e-9)


@given(power=st.floats(0.2, 8))
def test_numerical_best_threshold_matches_the_closed_form(power: float) -> None:
    assert best_single(lambda k: 1 - k**power) == pytest.approx(nirvana.best_single(power), rel=1e-7)


def test_cost_reduction_matches_nirvana_section_7_3() -> None:
    """7.3, Fig. 13: $8.144 for the instance, $0.12 and $0.09 for services, 1.28 times the throughput: 19 to 20 %."""
    assert round(cost_reduction(8.144, 0.12 + 0.09, 1.28), 3) == 0.199


def test_simulated_request_latency_equals_the_analytic_model(runs: dict[str, Outcome]) -> None:
    rows = runs["nirvana"].requests.to_pandas()
    hit, foreseen = rows.source_id.notna(), rows.search_s == 0
    assert 0.1 < hit.mean() < 0.9
    missed_s = np.where(foreseen, TIMES.full_s, TIMES.miss_s())
    expected = np.where(hit, [TIMES.hit_s(k) for k in rows.skipped], missed_s)
    np.testing.assert_allclose(rows.finish_s - rows.arrival_s, expected, rtol=0, atol=1e-9)


def test_simulated_mean_latency_follows_from_its_hit_shares(runs: dict[str, Outcome]) -> None:
    summary = runs["nirvana"].summary
    hit_rate = summary["cache"]["hits"] / summary["requests"]["completed"]
    best = {int(k): hit_rate * share for k, share in summary["cache"]["hit_share_by_k"].items()}
    foreseen = float((runs["nirvana"].requests.to_pandas().search_s == 0).mean())
    assert summary["latency_s"]["mean"] == pytest.approx(TIMES.mean_s(best, foreseen), abs=1e-9)
    assert summary["cache"]["compute_saving"] == pytest.approx(saving(best, STEPS), abs=1e-9)


def test_simulated_hit_shares_follow_from_its_similarities(runs: dict[str, Outcome]) -> None:
    """Without evictions every request skips the largest K that its best match allows."""
    rows: pd.DataFrame = runs["nirvana"].requests.to_pandas()
    counted = rows.skipped.value_counts(normalize=True)
    for k, share in best_shares(rows.similarity.to_numpy(), NIRVANA).items():
        assert counted.get(k, 0.0) == pytest.approx(share, abs=1e-9)


def test_simulated_cost_follows_from_its_throughput(runs: dict[str, Outcome]) -> None:
    nirvana_, vanilla = (runs[name].summary for name in ("nirvana", "vanilla"))
    assert nirvana_["cost_usd"]["per_image"] == pytest.approx(usd_per_image(8.354, nirvana_["throughput_rpm"]))
    reduction = 1 - nirvana_["cost_usd"]["per_image"] / vanilla["cost_usd"]["per_image"]
    speedup = nirvana_["throughput_rpm"] / vanilla["throughput_rpm"]
    assert speedup > 1
    assert reduction == pytest.approx(cost_reduction(8.144, 0.21, speedup), abs=1e-9)
