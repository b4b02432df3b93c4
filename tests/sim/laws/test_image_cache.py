"""MoDM's image cache: its two clocks, its admission, its eviction and its refinements."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from mezzotint.sim.run.config.choices import choices
from mezzotint.sim.run.simulate import Outcome, simulate
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace, make, write
from tests.sim.lab import configured

PER_STEP_S = {"sd3.5-large": 1.83, "sdxl": 0.33}
ROWS = 240

Served = Callable[..., Outcome]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Path]:
    """Prompts of six kinds in one order, at irregular times of the service."""
    rng = np.random.default_rng(5)
    animals = rng.choice(["fox", "owl", "elk", "hare", "bear", "crow"], ROWS)
    made = make(
        {
            "request_id": [f"r{row}" for row in range(ROWS)],
            "arrival_s": np.cumsum(rng.exponential(40.0, ROWS)),
            "prompt": [f"a watercolour of a {animal}" for animal in animals],
        },
        name="service",
        source="made up",
    )
    path = tmp_path_factory.mktemp("trace") / "service.parquet"
    write(made, path)
    return made, path


@pytest.fixture(scope="module")
def served(trace: tuple[Trace, Path]) -> Served:
    """Run that trace through MoDM on eight GPUs; the configuration is composed once and then edited."""
    words = ("trace=file", f"trace.path={trace[1]}", "arrivals=poisson", "cluster.count=8")
    composed = {name: configured(f"system={name}", *words) for name in ("modm-throughput", "modm-quality")}

    def run(system: str = "modm-throughput", **keys: Any) -> Outcome:
        config = deepcopy(composed[system])
        for key, value in keys.items():
            *path, name = key.split("__")
            node = config
            for part in path:
                node = node[part]
            node[name] = value
        return simulate(config)

    return run


def chosen(group: str, choice: str) -> dict[str, Any]:
    with initialize_config_module("mezzotint.conf", version_base="1.3"):
        found: dict[str, Any] = OmegaConf.to_container(compose(f"{group}/{choice}")[group])  # type: ignore[assignment]
    return found


def reused(outcome: Outcome) -> pd.DataFrame:
    """Return the requests that started from a cached image."""
    rows = outcome.requests.to_pandas()
    return rows[rows.source_id.notna()]


def test_trace_age_minus_run_age_is_the_source_latency(served: Served) -> None:
    """The age of an image is the age of its request less that request's latency."""
    outcome = served(arrivals=chosen("arrivals", "trace"))
    rows = outcome.requests.to_pandas().set_index("request_id")
    hits = reused(outcome)
    assert len(hits) > 100
    source = rows.loc[hits.source_id]
    latency_s = (source.finish_s - source.arrival_s).to_numpy()
    assert np.allclose(hits.source_age_trace_s - hits.source_age_s, latency_s)


@pytest.mark.parametrize("rate_rpm", [4.0, 40.0])
def test_trace_age_is_the_same_at_every_rate(trace: tuple[Trace, Path], served: Served, rate_rpm: float) -> None:
    """The trace age is the difference of both requests' original times, also for preloaded images; so are its
    quantiles."""
    own, _ = trace
    outcome = served(preload=60, warmup=20, arrivals__rate_rpm=rate_rpm)
    hits = reused(outcome)
    at_s = dict(zip(own.table.column("request_id").to_pylist(), own.arrival_s, strict=True))
    expected = np.array([at_s[a] - at_s[b] for a, b in zip(hits.request_id, hits.source_id, strict=True)])
    assert np.array_equal(hits.source_age_trace_s.to_numpy(), expected)
    assert (expected >= 0).all()
    assert hits.source_id.isin([f"r{row}" for row in range(60)]).any()
    measured = expected[hits.request_id.isin([f"r{row}" for row in range(80, ROWS)]).to_numpy()]
    quantiles = outcome.summary["cache"]["source_age_trace_s"]
    assert quantiles == {"p50": pytest.approx(np.median(measured)), "p90": pytest.approx(np.percentile(measured, 90))}
    assert quantiles != outcome.summary["cache"]["source_age_s"]


def test_untimed_trace_has_no_trace_age(trace: tuple[Trace, Path], served: Served, tmp_path: Path) -> None:
    path = tmp_path / "order.parquet"
    write(make(trace[0].table, name="order", source="made up", notes={"arrival_s": ORDER_ONLY}), path)
    outcome = served(trace__path=str(path))
    assert len(reused(outcome))
    assert reused(outcome).source_age_trace_s.isna().all()
    assert outcome.summary["cache"]["source_age_trace_s"] == {"p50": None, "p90": None}
    assert outcome.summary["cache"]["source_age_s"]["p50"] is not None


def test_modm_cache_is_fifo_over_every_image_by_default(served: Served) -> None:
    """A reused image is among the newest ``capacity`` images finished before the request came."""
    capacity, preload = 25, 60
    outcome = served(preload=preload, cache__capacity=capacity, arrivals__rate_rpm=30.0)
    rows = outcome.requests.to_pandas()
    filled = [f"r{row}" for row in range(preload)]
    finished = rows.sort_values("finish_s", kind="stable")
    assert len(reused(outcome)) > 100
    for hit in reused(outcome).itertuples():
        before = finished.request_id[finished.finish_s <= hit.arrival_s].tolist()
        assert hit.source_id in [*filled, *before][-capacity:]
    assert outcome.summary["cache"]["evictions"] == len(rows)


@pytest.mark.filterwarnings("ignore:In:UserWarning")
@pytest.mark.parametrize("eviction", [choice.name for choice in choices("eviction")])
def test_every_eviction_policy_serves_the_image_cache(served: Served, eviction: str) -> None:
    """In a full cache evictions equal insertions, and an evicted image is not found (else the run ends)."""
    outcome = served(preload=60, cache__capacity=25, eviction=chosen("eviction", eviction))
    assert outcome.summary["cache"]["evictions"] == ROWS - 60
    assert outcome.summary["cache"]["hits"] > 0


def test_cache_large_admits_large_model_images_and_cache_all_every_image(served: Served) -> None:
    """In quality mode the large model refines too, and cache-large keeps those images, unlike `misses`."""
    sources: dict[str, Any] = {}
    for admission in ("cache-all", "cache-large", "misses"):
        outcome = served("modm-quality", admission=chosen("admission", admission), arrivals__rate_rpm=10.0)
        rows = outcome.requests.to_pandas().set_index("request_id")
        source = rows.loc[rows.index.intersection(reused(outcome).source_id)]
        sources[admission] = (set(source.model), bool((source.skipped > 0).any()))
    assert sources["cache-all"] == ({"sd3.5-large", "sdxl"}, True)
    assert sources["cache-large"] == ({"sd3.5-large"}, True)
    assert sources["misses"] == ({"sd3.5-large"}, False)


def test_refinement_runs_its_remaining_steps_on_whichever_model_serves_it(served: Served) -> None:
    hits = reused(served("modm-quality", arrivals__rate_rpm=10.0))
    assert set(hits.model) == set(PER_STEP_S)
    assert len(set(hits.skipped)) > 1
    assert set(hits.skipped) <= {5, 10, 15, 25, 30}
    per_step_s = hits.denoise_s / (50 - hits.skipped)
    assert np.allclose(per_step_s, hits.model.astype(str).map(PER_STEP_S), rtol=0.01)
