"""MoDM's systems and baselines on both of its clusters: models, steps and times of each request."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from mezzotint.backends.profile import shipped, within
from tests.sim.lab import simulated

FULL_S = {"mi210": {"sd3.5-large": 91.5, "sdxl": 16.5, "sana-1.6b": 6.5}, "a40": {}}
SMALL = ("trace.requests=240", "preload=120", "arrivals=closed", "arrivals.outstanding=40")
GPUS = {"a40": 4, "mi210": 16}
MODM: dict[str, tuple[str, ...]] = {
    "modm-fixed": (),
    "modm-throughput": (),
    "modm-quality": (),
}
VARIANTS = [(name, words, cluster) for name, words in MODM.items() for cluster in GPUS] + [
    ("modm-quality", ("scheduler=hit-miss-per-worker",), "mi210"),
    ("modm-throughput", ("models=flux-sdxl",), "a40"),
    ("modm-throughput", ("models=flux-sana",), "mi210"),
    ("modm-quality", ("models=flux-sdxl-sana",), "a40"),
    ("modm-throughput", ("models=sd35l-sana",), "a40"),
]


@cache
def step_s(cluster: str) -> dict[str, float]:
    """Model -> seconds of a step, as the shipped profiles have it."""
    return {each.model: each.step[0].seconds for each in within(shipped()) if each.gpu == cluster}


def lawful(rows: pd.DataFrame, cluster: str) -> None:
    """Check that every request on a GPU ran its remaining steps at its model's pace."""
    run = rows[rows.worker.notna() & (rows.batch_mean <= 1)]
    assert len(run)
    assert (rows.outcome == "completed").all()
    pace = run.model.astype(str).map(step_s(cluster))
    np.testing.assert_allclose(run.denoise_s, (run.steps - run.skipped) * pace)


@pytest.mark.parametrize(("system", "words", "cluster"), VARIANTS)
def test_every_modm_system_runs_on_both_clusters(system: str, words: tuple[str, ...], cluster: str) -> None:
    outcome = simulated(f"system={system}", f"cluster={cluster}", *SMALL, *words)
    rows = outcome.requests.to_pandas()
    lawful(rows, cluster)
    assert outcome.summary["gpu"]["count"] == GPUS[cluster]
    hit = rows.source_id.notna()
    assert 0.05 < hit.mean() < 0.95
    large = "flux-dev" if "flux" in " ".join(words) else "sd3.5-large"
    assert set(rows.model[~hit]) == {large}
    if system != "modm-quality":
        assert large not in set(rows.model[hit])


BASELINES = [
    ("vanilla", (), "sd3.5-large", 50, 1.0),
    ("vanilla", ("models=flux-sana",), "flux-dev", 50, 1.0),
    ("sdxl-alone", (), "sdxl", 50, 29.30 / 28.55),
    ("sana-alone", (), "sana-1.6b", 50, 28.08 / 28.55),
    ("sana-alone", ("models=flux-sana",), "sana-1.6b", 50, 28.08 / 26.82),
    ("distilled", (), "sd3.5-large-turbo", 10, 27.23 / 28.55),
]


@pytest.mark.parametrize("cluster", GPUS)
@pytest.mark.parametrize(("system", "more", "model", "steps", "quality"), BASELINES)
def test_single_model_baseline_runs_every_step(
    system: str, more: tuple[str, ...], model: str, steps: int, quality: float, cluster: str
) -> None:
    """Its quality is the paper's (MoDM, Tables 2 and 3); unpublished times are stated as assumed."""
    outcome = simulated(f"system={system}", f"cluster={cluster}", *SMALL, *more)
    rows, summary = outcome.requests.to_pandas(), outcome.summary
    lawful(rows, cluster)
    assert set(rows.model) == {model}
    assert set(rows.steps) == {steps}
    assert (rows.skipped == 0).all()
    full_s = steps * step_s(cluster)[model]
    np.testing.assert_allclose(rows.finish_s - rows.start_s, full_s)
    assert full_s == pytest.approx(FULL_S[cluster].get(model, full_s), abs=1e-4)
    assert summary["throughput_until_last_arrival_rpm"] == pytest.approx(60 * GPUS[cluster] / full_s, rel=0.05)
    large_s = 50 * step_s(cluster)["flux-dev" if more else "sd3.5-large"]
    assert summary["slo"]["2x"]["limit_s"] == pytest.approx(2 * large_s)
    assert summary["quality"]["factor_mean"] == pytest.approx(quality)
    source = next(a["source"] for a in summary["assumptions"] if a["what"] == f"step time of {model} on {cluster}")
    assert source.startswith(("assumed", "fitted")) == (model not in FULL_S[cluster])


@pytest.mark.parametrize(("system", "cluster"), [("nirvana", "a40"), ("nirvana", "mi210"), ("pinecone", "a40")])
def test_other_papers_caches_run_on_modm_clusters_and_models(system: str, cluster: str) -> None:
    rows = simulated(f"system={system}", f"cluster={cluster}", *SMALL).requests.to_pandas()
    lawful(rows, cluster)
    hit = rows.source_id.notna()
    assert hit.any()
    assert set(rows.model.dropna()) == {"sd3.5-large"}
    assert rows.worker[hit].isna().all() == (system == "pinecone")


@pytest.mark.parametrize(("models", "factor"), [("sd35l-sdxl", 28.70 / 28.55), ("sd35l-turbo", None)])
def test_quality_factor_is_carried_only_where_it_was_published(models: str, factor: float | None) -> None:
    quality = simulated("system=modm-throughput", f"models={models}", *SMALL).summary["quality"]
    assert quality["factor_mean"] == (None if factor is None else pytest.approx(factor))


def test_quality_of_hits_on_one_model_is_not_carried_to_another() -> None:
    """In quality mode large models refine hits too, but Table 2 is of throughput mode."""
    outcome = simulated("system=modm-quality", "trace.requests=240", "preload=120", "arrivals.rate_rpm=4")
    assert set(outcome.requests.to_pandas().dropna(subset="source_id").model) == {"sd3.5-large"}
    quality = outcome.summary["quality"]
    assert quality["factor_mean"] is None
    assert "hits ran elsewhere than on sdxl" in quality["reason"]
