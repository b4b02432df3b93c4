"""Declared hits: shares by K, their draws, and the laws that follow from them."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cache.admission import Misses
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo
from mezzotint.sim.cache.index import VectorIndex
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import DECLARED, LOOKUPS
from mezzotint.sim.engine import Engine
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.frontend.declared_hits import DeclaredHits
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.similarity.similarities import TextToText
from tests.sim.lab import engine, simulated

KS = (5, 10, 15, 20, 25)
SELECTOR = Thresholds(dict(zip(KS, (0.65, 0.75, 0.85, 0.9, 0.95), strict=True)), strict=True)
NIRVANA = {"shares": {25: 0.08}, "hit_rate": 0.88, "mean_k": 50 * 0.21 / 0.88}
SEARCH_S, FETCH_S = 0.1, 0.02


def served(hits: DeclaredHits, rows: int = 2000, times: Any = None, count: int = 1, **parts: Any) -> Engine:
    """Requests of one second each on ``count`` workers, behind NIRVANA's front end with ``hits``."""
    frontend = CachedFrontEnd(
        ArtifactCache(None, TextToText(), Fifo(), KS),
        SELECTOR,
        Misses(),
        search_s=SEARCH_S,
        fetch_s=FETCH_S,
        hits=hits,
        **{name: parts.pop(name) for name in ("index", "store") if name in parts},
    )
    refused = parts.pop("embeddings", _no_embeddings)
    total = rows + parts.get("preload", 0)
    run = engine(np.arange(rows) if times is None else times, [1.0] * total, count, frontend=frontend,
                 embeddings=refused, **parts)  # fmt: skip
    run.run()
    return run


def _no_embeddings() -> Any:
    raise AssertionError("declared hits need no embeddings")


def ks(run: Engine) -> np.ndarray:
    return run.record.request_columns["k"]


def lookups(run: Engine) -> Counter[str]:
    return Counter(LOOKUPS[code] for code in run.record.request_columns["lookup"])


shares = st.lists(st.integers(0, 10), min_size=6, max_size=6).filter(
    lambda of: of[0] + sum(of[1:]) > 0 and sum(of[1:]) > 0
)


@pytest.mark.parametrize("k", [5, 127, 128, 900])
def test_draws_keep_a_k_of_any_size(k: int) -> None:
    run, selector = served(DeclaredHits({5: 1.0}), rows=3), Thresholds({k: 0.5}, of_steps=1000)
    assert set(DeclaredHits({k: 1.0}).draw(run, selector, ())) == {k}


@given(weights=shares, seed=st.integers(0, 2**31))
@settings(max_examples=8, deadline=None)
def test_shares_by_k_converge_to_the_declared_ones(weights: list[int], seed: int) -> None:
    expected = {k: weight / sum(weights) for k, weight in zip((0, *KS), weights, strict=True)}
    rows = 4000
    drawn = ks(served(DeclaredHits({k: share for k, share in expected.items() if k}), rows, seed=seed))
    for k, share in expected.items():
        deviation = math.sqrt(share * (1 - share) / rows)
        assert abs(np.mean(drawn == k) - share) <= 5 * deviation + 1e-12, (k, share)


@pytest.mark.parametrize("autocorrelation", [0.0, 0.6])
def test_successive_draws_have_the_declared_autocorrelation(autocorrelation: float) -> None:
    drawn = ks(served(DeclaredHits(**NIRVANA, autocorrelation=autocorrelation), 15_000)).astype(float)
    for lag in (1, 2, 5):
        for value in (drawn, drawn > 0):
            found = np.corrcoef(value[:-lag], value[lag:])[0, 1]
            assert found == pytest.approx(autocorrelation**lag, abs=0.03)
    assert np.mean(drawn > 0) == pytest.approx(0.88, abs=0.03)


@given(
    hit_rate=st.floats(0.05, 1), at=st.floats(0, 1), fixed=st.sampled_from([None, 5, 25]), step=st.floats(-0.01, 0.01)
)
@settings(max_examples=100, deadline=None)
def test_open_shares_have_the_largest_entropy(hit_rate: float, at: float, fixed: int | None, step: float) -> None:
    given_shares = {} if fixed is None else {fixed: hit_rate / 4}
    open_ks = [k for k in KS if k != fixed]
    open_share = hit_rate - sum(given_shares.values())
    mean_open = open_ks[0] + at * (open_ks[-1] - open_ks[0])
    mean_k = (mean_open * open_share + sum(k * p for k, p in given_shares.items())) / hit_rate
    by_k = DeclaredHits(given_shares, hit_rate, mean_k).share_by_k(SELECTOR)
    assert math.fsum(by_k.values()) == pytest.approx(hit_rate)
    assert math.fsum(k * p for k, p in by_k.items()) == pytest.approx(mean_k * hit_rate)
    assert all(by_k[k] == pytest.approx(p) for k, p in given_shares.items())
    found = np.array([by_k.get(k, 0.0) for k in open_ks]) / open_share
    a, b, c = open_ks[:3]  # a change that keeps both the sum and the mean
    other = found.copy()
    other[:3] += step * np.array([c - b, a - c, b - a]) / (c - a)
    if (other >= 0).all() and not np.allclose(other, found):
        assert _entropy(found) >= _entropy(other) - 1e-9


def _entropy(p: np.ndarray) -> float:
    return float(-sum(x * math.log(x) for x in p if x > 0))


def test_a_hit_rate_alone_gives_equal_shares() -> None:
    assert DeclaredHits(hit_rate=0.5).share_by_k(SELECTOR) == pytest.approx(dict.fromkeys(KS, 0.1))


def test_mean_latency_is_the_closed_form() -> None:
    """NIRVANA, 4.1: a hit takes l_s + C (N - K) / N + l_r, a miss l_s + C; here with one request outstanding."""
    hits = DeclaredHits(**NIRVANA)
    by_k = hits.share_by_k(SELECTOR)
    run = served(hits, 6000, Schedule(np.zeros(1)))
    columns = run.record.request_columns
    latency_s = columns["finish_s"] - columns["arrival_s"]
    expected_s = SEARCH_S + 1.0 + sum(p * (FETCH_S - k / 50) for k, p in by_k.items())
    assert expected_s == pytest.approx(SEARCH_S + 1 - 0.21 + 0.88 * FETCH_S)
    assert latency_s.mean() == pytest.approx(expected_s, rel=0.005)
    counted = np.bincount(ks(run), minlength=26) / len(ks(run))
    exact_s = SEARCH_S + 1.0 + sum(share * (FETCH_S - k / 50) for k, share in enumerate(counted) if k)
    assert latency_s.mean() == pytest.approx(exact_s, rel=1e-9)


def test_mean_wait_on_one_gpu_is_pollaczek_khinchine_s() -> None:
    load, rows = 0.6, 25_000
    by_k = DeclaredHits(**NIRVANA).share_by_k(SELECTOR)
    service_s = {1.0: 1 - sum(by_k.values())} | {1 - k / 50 + FETCH_S: p for k, p in by_k.items()}
    mean_s, square = (sum(s**power * p for s, p in service_s.items()) for power in (1, 2))
    rate = load / mean_s
    times = np.cumsum(np.random.default_rng(5).exponential(1 / rate, rows))
    columns = served(DeclaredHits(**NIRVANA), rows, times).record.request_columns
    wait_s = np.mean(columns["start_s"] - columns["arrival_s"] - SEARCH_S)
    assert wait_s == pytest.approx(rate * square / (2 * (1 - load)), rel=0.05)


def test_saturated_throughput_is_the_gpus_over_the_mean_service_time() -> None:
    rows = 6000
    run = served(DeclaredHits(**NIRVANA), rows, np.zeros(rows), count=4)
    finish_s = run.record.request_columns["finish_s"]
    mean_s = 1 - 0.21 + 0.88 * FETCH_S
    assert rows / finish_s.max() == pytest.approx(4 / mean_s, rel=0.01)


def test_without_hits_every_request_runs_in_full_after_a_search() -> None:
    columns = served(DeclaredHits(hit_rate=0.0), 50).record.request_columns
    assert not columns["k"].any()
    assert columns["start_s"][0] == pytest.approx(SEARCH_S)
    assert np.allclose(columns["denoise_s"], 1.0)


def test_with_hits_alone_no_request_runs_in_full() -> None:
    run = served(DeclaredHits({25: 1.0}), 50)
    assert (ks(run) == 25).all()
    assert (run.record.request_columns["source"] == DECLARED).all()
    assert lookups(run) == {"hit": 50}


def test_a_cache_that_fills_hits_more_and_more() -> None:
    filling = ks(served(DeclaredHits(hit_rate=0.8, by_request={1000: 0, 3000: 1}), 6000)) > 0
    assert not filling[:1000].any()
    assert filling[1900:2100].mean() == pytest.approx(0.4, abs=0.12)
    assert filling[3000:].mean() == pytest.approx(0.8, abs=0.04)
    assert (ks(served(DeclaredHits(hit_rate=0.8), 6000))[:1000] > 0).mean() == pytest.approx(0.8, abs=0.06)


def test_the_hit_rate_follows_the_hour_of_the_day() -> None:
    times = np.arange(8000) * (2 * 86_400 / 8000)
    hit = ks(served(DeclaredHits(hit_rate=0.8, by_hour={0: 1, 12: 0.5}), 8000, times)) > 0
    hours = times / 3600 % 24
    assert hit[(hours < 1) | (hours > 23)].mean() == pytest.approx(0.8, abs=0.05)
    assert hit[abs(hours - 12) < 1].mean() == pytest.approx(0.4, abs=0.05)
    assert hit[abs(hours - 6) < 1].mean() == pytest.approx(0.6, abs=0.06)
    assert hit[abs(hours - 18) < 1].mean() == pytest.approx(0.6, abs=0.06)


def test_precision_and_recall_split_the_misses() -> None:
    run = served(DeclaredHits(**NIRVANA, precision=0.96, recall=0.95), 15_000)
    found = lookups(run)
    assert found["hit"] / (found["hit"] + found["miss"]) == pytest.approx(0.96, abs=0.005)
    assert found["hit"] / (found["hit"] + found["forgone match"]) == pytest.approx(0.95, abs=0.005)
    assert found["hit"] / 15_000 == pytest.approx(0.88, abs=0.01)
    searched = run.record.request_columns["search_s"] > 0
    assert searched.sum() == found["hit"] + found["miss"]


def test_rows_that_fill_a_cache_have_no_hit() -> None:
    run = served(DeclaredHits({5: 1.0}), 30, preload=20)
    assert len(ks(run)) == 30
    assert (ks(run) == 5).all()


def test_an_outage_of_the_index_is_a_miss_after_its_time_out() -> None:
    run = served(DeclaredHits({5: 1.0}), 30, index=VectorIndex(outages=[(10.5, 20.5)], timeout_s=0.5))
    assert lookups(run) == {"hit": 20, "no database": 10}


SYSTEMS = {
    **dict.fromkeys(("nirvana", "modm-throughput", "modm-quality", "pinecone", "gpt-cache", "crs"), ""),
    **dict.fromkeys(("nirvana-add-ons", "modm-add-ons"), "cluster=h800 models=sdxl"),
    "swiftdiffusion-nirvana": "cluster=h800 models=sdxl trace=synthetic-service-a",
    "modm-patched": "cluster=h100 models=sdxl",
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_cached_system_takes_declared_hits(system: str) -> None:
    words = [*SYSTEMS[system].split(), "hits=declared", "hits.hit_rate=0.5", "trace.requests=400"]
    outcome = simulated(f"system={system}", *words)
    cache = outcome.summary["cache"]
    assert cache["hit_rate"] == pytest.approx(0.5, abs=0.1)
    assert cache["source_age_s"]["p50"] is None
    assert outcome.requests["source_id"].null_count == outcome.requests["similarity"].null_count == 400
    assert any(row["what"] == "hits by K" for row in outcome.summary["assumptions"])


def test_a_trace_without_prompts_is_enough() -> None:
    words = ["system=nirvana", "hits=nirvana", "trace=mix", "trace.requests=400", "arrivals.rate_rpm=5"]
    assert simulated(*words).summary["cache"]["hit_rate"] == pytest.approx(0.88, abs=0.07)


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    words = ["run", "system=modm-quality", "hits=modm", "trace.requests=500"]
    tables = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert main([*words, f"seed={seed}", f"run.dir={tmp_path / name}"]) == 0
        tables.append((tmp_path / name / "requests.parquet").read_bytes())
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]


def test_hits_of_another_run_are_its_shares(tmp_path: Path) -> None:
    words = ["run", "system=nirvana", "trace.requests=1500", "preload=300"]
    assert main([*words, f"run.dir={tmp_path / 'cached'}"]) == 0
    declared = [*words, "hits=declared", f"hits.of_run={tmp_path / 'cached'}", f"run.dir={tmp_path / 'declared'}"]
    assert main(declared) == 0
    one, other = (
        json.loads((tmp_path / name / "summary.json").read_text())["cache"] for name in ("cached", "declared")
    )
    assert other["hit_rate"] == pytest.approx(one["hit_rate"], abs=0.05)
    for k, share in one["hit_share_by_k"].items():
        assert other["hit_share_by_k"].get(k, 0) == pytest.approx(share, abs=0.05)
    assert pq.read_table(tmp_path / "declared" / "requests.parquet")["lookup"].null_count == 0


@pytest.mark.parametrize(
    ("hits", "message"),
    [
        ({}, "found no hit rate"),
        ({"shares": {5: 0.7, 10: 0.5}}, "in all more than the hit rate"),
        ({"shares": {5: 0.7}, "hit_rate": 0.5}, "in all more than the hit rate of 0.5"),
        ({"hit_rate": 0.5, "mean_k": 30}, "would need a mean K of 30"),
        ({"shares": {25: 0.4}, "hit_rate": 0.5, "mean_k": 5}, "would need a mean K of -75"),
        ({"shares": {5: 0.5}, "mean_k": 7}, "leave nothing open"),
        ({"shares": {12: 0.5}}, "K = 12, expected K = 5, 10, 15, 20, 25"),
        ({"hit_rate": 0.8, "by_request": {0: 2}}, "a hit rate of 1.6"),
        ({"hit_rate": 0.5, "recall": 0.9}, "without hits.precision"),
        ({"hit_rate": 0.9, "precision": 0.5}, "need more misses than a hit rate of 0.9 leaves"),
        ({"of_run": Path("nowhere")}, r"nowhere/summary\.json: cannot be read \(No such file"),
        ({"of_run": Path("nowhere"), "hit_rate": 0.5}, "give the run or the numbers"),
        ({"hit_rate": 0.5, "by_hour": {0: 1, 30: 1}}, "found hour 30"),
    ],
)
def test_hits_that_cannot_be_are_refused(hits: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        served(DeclaredHits(**hits), 10)


def test_a_closed_loop_has_no_hours() -> None:
    with pytest.raises(ConfigError, match="choose other arrivals="):
        served(DeclaredHits(hit_rate=0.5, by_hour={0: 1}), 10, Schedule(np.zeros(1)))
