"""One simulation from its configuration to its files."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mezzotint.backends.base import Asset, Cost, Work
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import Plan
from mezzotint.sim.core.request import Request
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.metrics.summary import MeasuredWindow, models
from mezzotint.sim.protocols import Run
from mezzotint.sim.run.simulate import Outcome, write
from mezzotint.traces.table.trace import make
from mezzotint.traces.table.trace import write as write_trace
from tests.sim.lab import FixedTimes, engine, simulated

SYSTEMS = ("vanilla", "small-model", "pinecone", "nirvana", "nirvana-no-predictor", "modm-fixed", "modm-throughput")


@pytest.fixture(scope="module")
def finished() -> dict[str, Outcome]:
    """Run every system on the same 600 requests, saturated: 24 in flight on 12 GPUs."""
    return {
        name: simulated(
            f"system={name}", "trace.requests=900", "preload=300", "arrivals=closed", "arrivals.outstanding=24",
            "cluster.count=12",
        )
        for name in SYSTEMS
    }  # fmt: skip


@pytest.mark.parametrize(("system", "roles"), [("vanilla", ["large"]), ("modm-fixed", ["large", "small"])])
def test_summary_describes_each_model_on_a_gpu(finished: dict[str, Outcome], system: str, roles: list[str]) -> None:
    described = finished[system].summary["models"]
    assert [each["role"] for each in described] == roles
    completed = finished[system].requests.to_pandas().query("outcome == 'completed'")
    assert [each["requests"] for each in described] == [(completed.model == each["model"]).sum() for each in described]
    assert {key: value for key, value in described[0].items() if key != "requests"} == {
        "role": "large", "model": "sd3.5-large", "gpu": "mi210", "width": 1024, "height": 1024, "steps": 50,
        "precision": None, "basis": "published", "service_error": None,
        "source": "MoDM's public artifact, multi-node capacity model: 91.5 s for 50 steps at 1024x1024, batch 1",
        "software": None, "date": None, "untimed": ["text_encode", "vae_decode"],
    }  # fmt: skip


def test_summary_has_no_model_shape_if_requests_bring_their_own() -> None:
    (described,) = simulated("shapes=trace", "extrapolate=warn", "trace.requests=20", "cluster=h100").summary["models"]
    assert (described["width"], described["height"], described["steps"]) == (None, None, None)
    assert (described["precision"], described["basis"], described["service_error"]) == ("float16", "assumed", 0.4)


def test_backend_without_provenance_has_no_basis() -> None:
    run = engine([0.0], [1.0])
    run.run()
    (described,) = models(run, lambda model: 0)
    assert (described["model"], described["steps"]) == ("large", 50)
    assert [described[key] for key in ("precision", "basis", "service_error", "source")] == [None] * 4


@pytest.mark.parametrize("system", SYSTEMS)
def test_latency_is_the_sum_of_its_parts(finished: dict[str, Outcome], system: str) -> None:
    rows = finished[system].requests.to_pandas()
    parts = rows[["search_s", "fetch_s", "load_s", "stall_s", "denoise_s", "decode_s"]].sum(axis=1)
    queued = rows.start_s - rows.arrival_s - rows.search_s
    assert (queued > -1e-9).all()
    np.testing.assert_allclose(rows.finish_s - rows.arrival_s, parts + queued, atol=1e-6)


@pytest.mark.invariant(5)
@pytest.mark.parametrize("system", SYSTEMS)
def test_no_gpu_serves_two_requests_at_once(finished: dict[str, Outcome], system: str) -> None:
    rows = finished[system].requests.to_pandas().dropna(subset="worker").sort_values("start_s")
    for _, served in rows.groupby("worker"):
        assert (served.start_s.to_numpy()[1:] >= served.finish_s.to_numpy()[:-1]).all()


def test_throughput_and_saving_rank_the_systems_by_mechanism(finished: dict[str, Outcome]) -> None:
    rate = {name: outcome.summary["throughput_rpm"] for name, outcome in finished.items()}
    assert rate["vanilla"] < rate["nirvana"] < rate["modm-throughput"] < rate["small-model"]
    assert rate["vanilla"] < rate["pinecone"]
    assert finished["vanilla"].summary["cache"]["hits"] is None
    saving = {name: outcome.summary["cache"]["compute_saving"] for name, outcome in finished.items()}
    assert saving["vanilla"] is saving["small-model"] is None  # no cache, so no savings
    steps = {name: outcome.summary["gpu"]["step_saving"] for name, outcome in finished.items()}
    assert steps == {**saving, "vanilla": 0, "small-model": steps["small-model"]}
    assert steps["small-model"] == pytest.approx(1 - 16.5 / 91.5)
    assert 0 < saving["nirvana"] < saving["modm-throughput"]
    joules = {name: outcome.summary["energy_j"]["per_image"] for name, outcome in finished.items()}
    assert joules["modm-throughput"] < joules["nirvana"] < joules["vanilla"]


def test_hit_shares_by_k_sum_to_one_and_give_the_compute_saving(finished: dict[str, Outcome]) -> None:
    """NIRVANA, 4.1: the compute saved is the sum over K of the share served at K times K/N."""
    cache = finished["nirvana"].summary["cache"]
    shares = cache["hit_share_by_k"]
    assert sum(shares.values()) == pytest.approx(1)
    saved = cache["hit_rate"] * sum(share * int(k) / 50 for k, share in shares.items())
    assert cache["compute_saving"] == pytest.approx(saved)


@pytest.mark.invariant(10)
def test_summary_lists_its_assumptions(finished: dict[str, Outcome]) -> None:
    assumptions = {a["what"] for a in finished["modm-throughput"].summary["assumptions"]}
    assert {"the trace is synthetic", "text-to-image similarity", "GPU power, at work and idle [W]"} <= assumptions
    assert {"step time of sd3.5-large on mi210", "step time of sdxl on mi210"} <= assumptions
    assert {"similarity of prompts", "fetch time of an image [s]"} <= assumptions
    planned = {a["what"] for a in finished["modm-fixed"].summary["assumptions"]}
    assert "hit rate and share of steps left that the split is planned for" in planned
    assert "similarity for retrieval" in {a["what"] for a in finished["pinecone"].summary["assumptions"]}
    assert "text-to-image similarity" not in {a["what"] for a in finished["nirvana"].summary["assumptions"]}
    stated = [each for outcome in finished.values() for each in outcome.summary["assumptions"]]
    assert all(each["source"] and each["value"] is not None for each in stated)


@pytest.mark.parametrize("arrivals", ["arrivals.rate_rpm=20", "arrivals=saturation"])
def test_vanilla_saturates_at_the_published_rate(arrivals: str) -> None:
    """MoDM's artifact: 16 MI210 at 91.5 s are 10.49 requests/min."""
    summary = simulated("system=vanilla", arrivals, "trace.requests=3200").summary
    assert summary["throughput_rpm"] == pytest.approx(16 * 60 / 91.5, rel=0.01)
    assert summary["gpu"]["busy_fraction"] > 0.99


def test_one_a10g_in_a_closed_loop_takes_the_published_time() -> None:
    """NIRVANA, 7.1: 8.59 s for vanilla, 3.05 s for the small model."""
    closed = ("cluster=a10g", "cluster.count=1", "arrivals=closed", "trace.requests=50")
    assert simulated("system=vanilla", *closed).summary["latency_s"]["mean"] == pytest.approx(8.59)
    assert simulated("system=small-model", *closed).summary["latency_s"]["mean"] == pytest.approx(3.05)


def test_nirvana_obeys_its_latency_equation_for_every_request() -> None:
    """NIRVANA, 4.1: a hit takes l_s + C (N-K)/N + l_r, a miss l_s + C."""
    outcome = simulated(
        "system=nirvana", "cluster=a10g", "cluster.count=1", "arrivals=closed", "trace.requests=400",
        "frontend.search_s=0.1", "frontend.fetch_s=0.03",
    )  # fmt: skip
    rows = outcome.requests.to_pandas()
    hit = rows.source_id.notna()
    assert 50 < hit.sum() < 350
    expected = 0.1 + 8.59 * (50 - rows.skipped) / 50 + np.where(hit, 0.03, 0.0)
    np.testing.assert_allclose(rows.finish_s - rows.arrival_s, expected, atol=1e-9)
    assert set(rows.skipped[hit]) <= {5, 10, 15, 20, 25}
    assert (rows.skipped[~hit] == 0).all()


@pytest.mark.invariant(1)
@pytest.mark.parametrize("system", ["vanilla", "nirvana", "modm-throughput"])
def test_same_seed_gives_the_same_bytes(tmp_path: Path, system: str) -> None:
    files = []
    for attempt in ("first", "second"):
        outcome = simulated(f"system={system}", "trace.requests=300", "seed=7")
        write(outcome, tmp_path / attempt)
        files.append({file.name: file.read_bytes() for file in sorted((tmp_path / attempt).iterdir())})
    assert files[0].keys() == {"cluster.parquet", "config.yaml", "requests.parquet", "summary.json"}
    for name in ("cluster.parquet", "config.yaml", "requests.parquet"):
        assert files[0][name] == files[1][name]
    first, second = (json.loads(each["summary.json"]) for each in files)
    assert first.pop("wall").keys() == second.pop("wall").keys()
    assert first == second


def test_systems_with_the_same_seed_see_the_same_arrivals() -> None:
    times = [simulated(f"system={s}", "trace.requests=200").requests["arrival_s"].to_pylist() for s in SYSTEMS]
    assert all(other == times[0] for other in times)
    assert simulated("seed=2", "trace.requests=200").requests["arrival_s"].to_pylist() != times[0]


def test_warmup_is_excluded_from_the_measured_window() -> None:
    whole = simulated("trace.requests=500", "arrivals.rate_rpm=9")
    part = simulated("trace.requests=500", "arrivals.rate_rpm=9", "warmup=200")
    assert part.summary["requests"] == {"arrived": 300, "completed": 300, "discarded": 0, "failed": 0}
    rows = whole.requests.to_pandas()
    kept = rows.iloc[200:]
    assert part.summary["latency_s"]["mean"] == pytest.approx((kept.finish_s - kept.arrival_s).mean())
    start, end = kept.arrival_s.iloc[0], kept.finish_s.max()
    inside = rows.finish_s.between(start, end).sum()
    assert part.summary["throughput_rpm"] == pytest.approx(60 * inside / (end - start))
    ended = rows.start_s + 91.5  # all work of a GPU for a request of vanilla
    busy = (ended.clip(start, end) - rows.start_s.clip(start, end)).sum()
    assert part.summary["gpu"]["busy_fraction"] == pytest.approx(busy / (16 * (end - start)))
    energy = 300 * busy + 60 * (16 * (end - start) - busy)
    assert part.summary["energy_j"]["total"] == pytest.approx(energy)


@pytest.mark.parametrize("warmup", [0, 500, 2000])
def test_energy_per_image_does_not_depend_on_the_warmup(warmup: int) -> None:
    """Saturated: 300 W for 91.5 s, and the idle seconds of the window, over the images finished in it. Of those, 16 at
    most began before it."""
    outcome = simulated("system=vanilla", "arrivals.rate_rpm=14", "trace.requests=4000", f"warmup={warmup}")
    rows, summary = outcome.requests.to_pandas(), outcome.summary
    start, end = rows.arrival_s[warmup], rows.finish_s.max()
    images = int(rows.finish_s.between(start, end, inclusive="right").sum())
    assert images > 4000 - warmup or not warmup
    idle_s = 16 * (end - start) - (rows.finish_s.clip(start, end) - rows.start_s.clip(start, end)).sum()
    expected = 300 * 91.5 + 60 * idle_s / images
    assert abs(summary["energy_j"]["per_image"] - expected) < 16 * 300 * 91.5 / images
    assert summary["energy_j"]["per_image"] == pytest.approx(300 * 91.5, rel=0.015)
    assert summary["throughput_rpm"] == pytest.approx(60 * images / (end - start))


@pytest.mark.parametrize("warmup", [0, 1, 37])
def test_busy_gpu_draws_power_times_service_time_per_image(warmup: int) -> None:
    """A closed loop: the image that ends as the window begins belongs to the warm-up, with all its work."""
    summary = simulated("cluster.count=1", "arrivals=closed", "trace.requests=60", f"warmup={warmup}").summary
    assert summary["energy_j"]["per_image"] == pytest.approx(300 * 91.5)
    assert summary["energy_j"]["total"] == pytest.approx((60 - warmup) * 300 * 91.5)
    assert summary["throughput_rpm"] == pytest.approx(60 / 91.5)
    priced = simulated("cluster=a10g", "arrivals=closed", "trace.requests=60", f"warmup={warmup}").summary
    assert priced["cost_usd"]["per_image"] == pytest.approx(8.144 * 8.59 / 3600)


def test_work_after_the_last_measured_request_is_outside_the_window() -> None:
    """A warm-up request ends last, and no GPU is busy for longer than the window."""
    run = engine([0.0, 1.0, 2.0], [100.0, 1.0, 1.0], 2)
    run.run()
    window = MeasuredWindow(run, run.record, 1)
    assert (window.start_s, window.end_s) == (1.0, 3.0)
    assert window.completions() == 2
    usage = run.record.usage_log.inside(window.start_s, window.end_s, run.cluster.gpu_counts())
    assert usage.busy_s == pytest.approx(2.0 + 2.0)


def test_latency_equal_to_its_limit_is_no_violation() -> None:
    """Two in flight on one GPU: every latency but the first is exactly twice the standalone time."""
    outcome = simulated(
        "cluster=a10g", "cluster.count=1", "arrivals=closed", "arrivals.outstanding=2", "slo=[2]", "trace.requests=500"
    )  # fmt: skip
    assert outcome.summary["slo"]["2x"]["violation_rate"] == 0.0


def test_loads_that_take_no_time_are_counted() -> None:
    counts = []
    for seconds in (0, 20):
        run = engine(
            [0.0, 1.0, 2.0], [0.1] * 3, frontend=Alternating(), backend=FixedTimes([0.1] * 3, load_s=float(seconds))
        )  # fmt: skip
        run.run()
        counts.append(run.record.usage_log.inside(0.0, run.clock.now, run.cluster.gpu_counts()).switches)
    assert counts == [2, 2]


class Metered(FixedTimes):
    """A second of work takes 100 J, and one of loading 30 J."""

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(0.0, 0.0)

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        seconds = super().steps(works, count).seconds
        return Cost(seconds, 100 * seconds)

    def load(self, asset: Asset) -> Cost:
        return Cost(self.swap_s, 30 * self.swap_s)


def test_load_energy_adds_to_serving_energy() -> None:
    """Measured: two loads of 2 s and three requests of 1 s. By the power of the GPU, 300 W: the same seconds."""
    for backend, joules in ((Metered([1.0] * 3, 2.0), [100, 160, 160]), (FixedTimes([1.0] * 3, 2.0), [300, 900, 900])):
        run = engine([0.0, 10.0, 20.0], [1.0] * 3, frontend=Alternating(), backend=backend)
        run.run()
        assert list(run.record.request_columns["energy_j"]) == pytest.approx(joules)
        usage = run.record.usage_log.inside(0.0, run.clock.now, run.cluster.gpu_counts())
        assert usage.joules == pytest.approx(sum(joules))


class Alternating(Direct):
    """Rows alternate between the large and the small model."""

    def bind(self, run: Run) -> None:
        self.run = run

    def admit(self, request: Request, now_s: float) -> float:
        self.run.assign(request, Plan(self.run.model(("large", "small")[request.row % 2]).name))
        return 0.0


def test_multiple_images_per_request_are_stated(tmp_path: Path) -> None:
    columns = {"request_id": ["a", "b"], "arrival_s": [0.0, 1.0], "images": [1, 4]}
    write_trace(make(columns, name="t", source="test", notes={}, where="test"), tmp_path / "t.parquet")
    assumptions = simulated("trace=file", f"trace.path={tmp_path / 't.parquet'}", "images=first").summary["assumptions"]
    assert [a["source"] for a in assumptions if a["what"] == "images per request"] == [
        "1 requests ask for more; one is served"
    ]


def test_trace_shapes_change_times_and_limits() -> None:
    outcome = simulated("shapes=trace", "extrapolate=warn", "trace.requests=300", "arrivals.rate_rpm=1")
    rows = outcome.requests.to_pandas()
    full = 1.83 * rows.steps * rows.width * rows.height / 1024**2
    np.testing.assert_allclose(rows.denoise_s, full)
    assert outcome.summary["slo"]["2x"]["limit_s"] == pytest.approx(2 * full.mean())
    assert any("extrapolated" in a["what"] for a in outcome.summary["assumptions"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["preload=100", "trace.requests=100"], "leave nothing of the 100 requests"),
        (["system=modm-throughput", "cluster.count=1"], "at least 2 GPUs"),
        (["system=modm-fixed", "allocation.large=16"], "expected 1 to 15"),
        (["system=small-model", "cluster=h800"], "needs a model in role 'small'"),
        (["frontend._target_=mezzotint.sim.frontend.cached.Nothing"], "has no Nothing"),
        (["+frontend.colour=red"], "frontend.colour: .* takes no such setting; expected one of role"),
        (["system=nirvana", "~cache._target_"], "cache: expected a mapping with _target_, found"),
        (["slo=[2,2.0000001]"], "slo: .*differ"),
        (["slo=[2,-1]"], r"slo\.1: "),
        (["~cluster.gpu.idle_w"], "cluster.gpu.idle_w: .* needs this setting"),
        (["run.dir=null"], r"run\.dir: "),
        (["run="], "run: "),
        (["models.large.steps=99999999999"], "10,000 steps"),
        (["system=modm-fixed", "allocation.hit_rate=1", "allocation.steps_left=0"], "no work to split"),
    ],
)
def test_inconsistent_settings_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulated(*overrides)
