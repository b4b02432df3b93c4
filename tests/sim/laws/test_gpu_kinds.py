"""Laws of clusters of several GPU kinds: every worker has its own service times, memory, power and price."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from mezzotint.backends.base import Asset, BackendError
from mezzotint.backends.profile import shipped
from mezzotint.sim.cli import main
from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu, Kind
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.run_folder import REQUESTS
from mezzotint.sim.engine import Engine
from mezzotint.sim.metrics.cost import list_prices
from mezzotint.sim.protocols import Controller
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.simulate import Outcome, assemble, replay
from tests.sim.lab import FixedTimes, configured, engine, simulated

FAST, SLOW = "h100-sxm", "l40s"
MLPERF = ("models=sdxl-mlperf", "extrapolate=warn", "trace.requests=300")
MODM = ("cluster=pools", "trace.requests=400", "preload=100", "arrivals.rate_rpm=12")
ALONE = {
    "sequential": ("executor=sequential",),
    "static batch": ("executor=static-batch", "executor.max_batch=1"),
    "continuous batching": ("executor=continuous-batching", "executor.max_batch=1"),
}


def pools(*of: tuple[Any, ...]) -> tuple[str, str]:
    """Return the overrides of a cluster of pools (kind, count) or (kind, count, role)."""
    listed = [dict(zip(("gpu", "count", "role"), pool, strict=False)) for pool in of]
    text = str(listed).replace("'", "")
    return "cluster=pools", f"cluster.pools={text}"


def standalone_s(kind: str) -> float:
    """Return the seconds of a request alone on a GPU of ``kind``."""
    requests = simulated(f"cluster={kind}", "cluster.count=1", *MLPERF, "trace.requests=1").requests
    return float(requests["denoise_s"][0].as_py() + requests["decode_s"][0].as_py())


def of_kind(outcome: Outcome, first: int) -> dict[str, pd.DataFrame]:
    """Return the requests that ran on the ``first`` GPUs, and the others."""
    frame = outcome.requests.to_pandas()
    return {FAST: frame[frame.worker < first], SLOW: frame[frame.worker >= first]}


@pytest.mark.parametrize(
    "system",
    [
        ("executor=sequential",),
        ("executor=static-batch", "scheduler=dynamic-batching"),
        ("executor=continuous-batching",),
        ("scheduler=per-worker", "router=least-work-left"),
        ("models=sd35l-sdxl", "system=modm-throughput", "preload=50"),
        ("models=sd35l-sdxl", "system=modm-quality", "preload=50"),
        ("models=sd35l-sdxl", "system=modm-fixed", "preload=50"),
    ],
    ids="".join,
)
def test_two_pools_of_one_kind_equal_one_cluster_of_it(system: tuple[str, ...]) -> None:
    kind, words = ("mi210", ()) if "sd35l" in system[0] else (FAST, MLPERF)
    words = (*words, "trace.requests=300", "arrivals.rate_rpm=40", *system)
    one = simulated(f"cluster={kind}", "cluster.count=6", *words)
    two = simulated(*pools((kind, 2), (kind, 4)), *words)
    assert two.requests.equals(one.requests)
    assert two.cluster.equals(one.cluster)
    assert two.summary | {"wall": None} == one.summary | {"wall": None}


@pytest.mark.parametrize("executor", ALONE.values(), ids=ALONE)
def test_request_takes_the_service_time_of_its_workers_kind(executor: tuple[str, ...]) -> None:
    outcome = simulated(*pools((FAST, 2), (SLOW, 3)), *MLPERF, *executor, "arrivals.rate_rpm=300")
    for kind, rows in of_kind(outcome, 2).items():
        assert len(rows) > 20
        assert (rows.denoise_s + rows.decode_s).to_numpy() == pytest.approx(standalone_s(kind))


def test_batch_takes_the_service_time_of_its_workers_kind() -> None:
    """All requests arrive at once: each GPU steps one full batch after another, as a cluster of its kind does."""
    closed = (*MLPERF, "arrivals=closed", "executor=static-batch", "executor.max_batch=2", "trace.requests=4")
    of_one = {
        kind: simulated(f"cluster={kind}", "cluster.count=2", *closed, "arrivals.outstanding=4").requests["denoise_s"]
        for kind in (FAST, SLOW)
    }
    mixed = simulated(*pools((FAST, 1), (SLOW, 1)), *closed, "arrivals.outstanding=4")
    for kind, rows in of_kind(mixed, 1).items():
        assert rows.denoise_s.tolist() == of_one[kind].to_pylist()[: len(rows)]
        assert len(rows) == 2


@pytest.mark.parametrize("executor", ALONE.values(), ids=ALONE)
def test_saturated_throughput_is_the_sum_of_the_kinds_capacities(executor: tuple[str, ...]) -> None:
    words = (*MLPERF, *executor, "arrivals=closed", "arrivals.outstanding=12", "trace.requests=2000")
    found = simulated(*pools((FAST, 2), (SLOW, 4)), *words).summary["throughput_until_last_arrival_rpm"]
    assert found == pytest.approx(60 * (2 / standalone_s(FAST) + 4 / standalone_s(SLOW)), rel=0.01)


@pytest.mark.parametrize("order", [(FAST, SLOW), (SLOW, FAST)])
@pytest.mark.parametrize("scheduler", [("scheduler=fcfs",), ("scheduler=per-worker", "router=least-requests")])
def test_first_kind_is_preferred_among_equally_loaded_workers(
    order: tuple[str, str], scheduler: tuple[str, ...]
) -> None:
    """Every request comes to an idle cluster."""
    outcome = simulated(*pools((order[0], 2), (order[1], 2)), *MLPERF, *scheduler, "arrivals.rate_rpm=2")
    assert set(outcome.requests["worker"].to_pylist()[:20]) <= {0, 1}


def test_dollars_are_the_sum_over_kinds_of_whole_instances() -> None:
    """Five GPUs by fours are paid as eight."""
    rented = "{name: l40s, active_w: 350, idle_w: 70, source: made up, usd_per_gpu_h: 0.5, gpus_per_instance: 4}"
    summary = simulated(*pools((FAST, 2), (rented, 5)), *MLPERF).summary
    hours = summary["gpu"]["seconds"] / 7 / 3600
    by = summary["cost_usd"]["by"]
    assert list(by) == [FAST, SLOW]
    assert by[SLOW] == pytest.approx(8 * 0.5 * hours)
    assert by[FAST] == pytest.approx(2 * list_prices()[FAST].usd_per_gpu_h * hours)
    assert summary["cost_usd"]["total"] == pytest.approx(sum(by.values()))
    assert {f"price of a GPU ({kind}) [USD/h]" for kind in by} <= {row["what"] for row in summary["assumptions"]}


@pytest.mark.parametrize("executor", ALONE.values(), ids=ALONE)
def test_energy_is_the_sum_over_kinds_of_their_power(executor: tuple[str, ...]) -> None:
    """By the datasheet: an H100 SXM draws 700 and 140 W, an L40S 350 and 70 W."""
    outcome = simulated(*pools((FAST, 2), (SLOW, 3)), *MLPERF, *executor, "arrivals.rate_rpm=200")
    gpu, power_w = outcome.summary["gpu"], {FAST: (700, 140), SLOW: (350, 70)}
    assert [gpu["by_kind"][kind]["count"] for kind in (FAST, SLOW)] == [2, 3]
    for kind, rows in of_kind(outcome, 2).items():
        active_w, idle_w = power_w[kind]
        busy_s, found = float((rows.denoise_s + rows.decode_s).sum()), gpu["by_kind"][kind]
        assert rows.energy_j.sum() == pytest.approx(active_w * busy_s)
        assert found["busy_fraction"] * found["seconds"] == pytest.approx(busy_s)
        assert found["energy_j"] == pytest.approx(active_w * busy_s + idle_w * (found["seconds"] - busy_s))
    assert outcome.summary["energy_j"]["total"] == pytest.approx(sum(k["energy_j"] for k in gpu["by_kind"].values()))
    assert sum(each["seconds"] for each in gpu["by_kind"].values()) == pytest.approx(gpu["seconds"])


def test_energy_is_null_if_the_power_of_one_kind_is_not_known() -> None:
    unknown = "{name: l40s, active_w: null, idle_w: null, source: not known}"
    summary = simulated(*pools((FAST, 1), (unknown, 2)), *MLPERF, "arrivals.rate_rpm=100").summary
    assert summary["energy_j"]["total"] is None
    assert summary["gpu"]["by_kind"][SLOW]["energy_j"] is None
    assert summary["gpu"]["by_kind"][FAST]["energy_j"] > 0


def test_latency_limits_are_of_the_first_pools_kind() -> None:
    for first, second in ((FAST, SLOW), (SLOW, FAST)):
        summary = simulated(*pools((first, 1), (second, 1)), *MLPERF, "slo=[2x]").summary
        assert summary["slo"]["2x"]["limit_s"] == pytest.approx(2 * standalone_s(first))
        assert (first, "the first pool's") in [(row["value"], row["source"]) for row in summary["assumptions"]]


def test_modm_serves_misses_on_one_kind_and_hits_on_another() -> None:
    cluster = pools(("mi210", 12, "large"), ("a40", 3, "small"))
    outcome = simulated("system=modm-fixed", *MODM, *cluster)
    frame = outcome.requests.to_pandas()
    assert set(zip(frame.worker >= 12, frame.model, strict=True)) == {(False, "sd3.5-large"), (True, "sdxl")}
    assert set(frame[frame.worker >= 12].lookup) == {"hit"}
    rows = [(row["role"], row["model"], row["gpu"]) for row in outcome.summary["models"]]
    assert rows == [("large", "sd3.5-large", "mi210"), ("small", "sdxl", "a40")]
    assert outcome.summary["gpu"]["switches"] == 0


@pytest.mark.parametrize(("small_step_s", "best_at_large"), [(0.05, "mi210"), (0.5, "a40")])
@pytest.mark.parametrize("mode", ["quality", "throughput"])
def test_monitor_keeps_the_large_model_on_the_kind_that_is_best_at_it(
    tmp_path: Path, mode: str, small_step_s: float, best_at_large: str
) -> None:
    """Its step takes 0.924 s on an A40 and 1.83 s on an MI210, the small model's 0.33 s on an MI210."""
    profile = yaml.safe_load((shipped() / "a40_sdxl.yaml").read_text(encoding="utf-8"))
    profile["step"][0]["seconds"] = small_step_s
    (tmp_path / "a40.yaml").write_text(yaml.safe_dump(profile), encoding="utf-8")
    words = (f"system=modm-{mode}", *MODM, f"backend.folder={tmp_path}", "arrivals.rate_rpm=20")
    config = configured(*words, *pools(("a40", 4), ("mi210", 8)))
    assembled = assemble(check(config))
    cluster = assembled.engine.cluster
    splits: list[dict[str, list[str]]] = []

    def look(now_s: float) -> float:
        splits.append({k: [w.role for w in cluster.workers if w.gpu.name == k] for k in ("a40", "mi210")})
        return 0.0

    assembled.engine.gauge("looked", look)
    replay(check(config), assembled, config)
    other = {"a40": "mi210", "mi210": "a40"}[best_at_large]
    settled = splits[len(splits) // 4 :]
    assert any("large" in split[best_at_large] and "small" in split[other] for split in settled)
    assert all("small" not in split[best_at_large] or "large" not in split[other] for split in settled)


def test_allocation_decides_over_each_kind_as_over_a_cluster_of_it() -> None:
    config = configured("system=modm-fixed", *MODM, *pools(("mi210", 5), ("a40", 1, "small"), ("a40", 3)))
    found = [worker.role for worker in assemble(check(config)).engine.cluster.workers]
    for kind, count, at in (("mi210", 5, slice(0, 5)), ("a40", 3, slice(6, 9))):
        alone = assemble(check(configured("system=modm-fixed", *MODM[1:], f"cluster={kind}", f"cluster.count={count}")))
        assert found[at] == [worker.role for worker in alone.engine.cluster.workers]
    assert found[5] == "small"


FIRST, SECOND = Gpu("first", 100.0, 10.0, "made up"), Gpu("second", 200.0, 20.0, "made up")


class Lacking(FixedTimes):
    """Serves only the large model."""

    def require(self, model: str) -> None:
        if model != "large":
            raise BackendError(f"no profile of {model}")


def of_kinds(*kinds: Kind, act: Any = None, **parts: Any) -> Engine:
    """Build an engine of one GPU of each of ``kinds``, with a controller that calls ``act(run)`` at the start."""

    class Acts(Controller):
        def bind(self, run: Any) -> None:
            run.process(self._act(run))

        def _act(self, run: Any) -> Any:
            yield run.clock.sleep_until(0.0)
            act(run)

    models = {role: Model(role, 50, 64, 64) for role in ("large", "small")}
    cluster = Cluster(kinds, ["large"] * len(kinds), models)
    return engine([0.0], [1.0], cluster=cluster, models=models, controllers=[Acts()] if act else [], **parts)


def test_model_loads_take_the_time_and_power_of_the_workers_kind() -> None:
    def order(run: Any) -> None:
        for worker in run.cluster.workers[1:]:
            run.cluster.change_role(worker, "small", run.clock.now)

    kinds = (Kind(FIRST, FixedTimes([100.0], 1.0)), Kind(FIRST, FixedTimes([100.0], 1.0)))
    run = of_kinds(*kinds, Kind(SECOND, FixedTimes([100.0], 4.0)), act=order)
    run.run()
    spans = run.record.usage_log.spans()
    loads = spans[spans["kind"] == run.record.usage_log.kinds["load"]]
    found = {int(s["worker"]): (float(s["until_s"] - s["from_s"]), float(s["joules"])) for s in loads}
    assert found == {1: (1.0, 100.0), 2: (4.0, 800.0)}


def test_worker_cannot_take_a_role_that_its_kind_cannot_serve() -> None:
    def order(run: Any) -> None:
        run.cluster.change_role(run.cluster.workers[1], "small", run.clock.now)

    run = of_kinds(Kind(FIRST, FixedTimes([1.0])), Kind(SECOND, Lacking([1.0])), act=order)
    with pytest.raises(BackendError, match="no profile of small"):
        run.run()


class Large(FixedTimes):
    """Its models take 8 GB."""

    def bytes(self, asset: Asset) -> int | None:
        return 8 * 10**9


def test_model_must_fit_into_the_memory_of_its_workers_kind() -> None:
    roomy, tight = (Gpu(f"with {size} GB", 100.0, 10.0, "made up", memory_bytes=size * 10**9) for size in (16, 4))
    of_kinds(Kind(roomy, Large([1.0])), Kind(roomy, Large([1.0]))).run()
    with pytest.raises(SimulationError, match=r"large takes 8\.0 GB of the 4\.0 GB that a with 4 GB has"):
        of_kinds(Kind(roomy, Large([1.0])), Kind(tight, Large([1.0]))).run()


def test_pools_of_one_name_have_the_same_settings() -> None:
    other = "{name: a40, active_w: 300, idle_w: 60, source: made up}"
    with pytest.raises(ConfigError, match=r"cluster\.pools\.1\.gpu: found other settings of a40"):
        simulated(*pools(("a40", 1), (other, 1)), "trace.requests=5")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            pools(("nope", 1)),
            r"cluster\.pools\.0\.gpu: found 'nope'; `mezzotint list cluster` prints all .*sim\.core\.gpu\.Gpu",
        ),
        (pools(("mi210", 1), (SLOW, 1)), r"cluster\.pools: the role 'large' on the kind l40s: no profile of sd3\.5-l"),
        (pools((SLOW, 1), ("mi210", 1)), r"cluster\.pools: latencies .* relative to sd3\.5-large .* kind, l40s"),
        (pools(("mi210", 1, "tiny")), r"cluster\.pools: found the role 'tiny', expected one of large, small"),
        (pools(("mi210", 2, "controlnet-server")), r"cluster\.pools: every GPU has the role 'controlnet-server'"),
        (pools(), r"cluster\.pools: .*at least 1"),
        (pools(("mi210", 0)), r"cluster\.pools\.0\.count: .*found 0"),
        (pools(("mi210", 60_000), ("a40", 60_000)), r"cluster\.pools: expected 100,000 GPUs at most"),
        (pools(("mi210", 1), ("{name: a40, colour: red}", 1)), r"cluster\.pools\.1\.gpu\.colour: .* no such setting"),
        ((*pools(("mi210", 1)), "++cluster.count=2"), r"cluster\.pools: found beside cluster\.gpu or cluster\.count"),
        (("cluster=mi210", f"++{pools(('mi210', 1))[1]}"), r"cluster\.pools: found beside .*add cluster=pools"),
        (("cluster=pools", "backend=live"), r"cluster\.pools: mezzotint\.backends\.\S+Live has no setting gpu"),
        (("cluster=pools", "backend.gpu=a40"), r"backend\.gpu: found 'a40' beside cluster\.pools"),
        (("cluster=pools", "system=patchedserve", "slo=[5]"), r"discipline: .* cluster\.pools has mi210, a40"),
        (
            ("cluster=pools", "system=modm-quality", "controller=modm-hindsight", "controller.folder=x"),
            r"controller=modm-hindsight: .* cluster\.pools has mi210, a40",
        ),
        (
            ("system=modm-quality", "models=flux-sana", *pools(("mi210", 1), ("h100", 2, "large"))),
            r"controller: the monitor may put any model on any GPU, and there is no profile of sana-1\.6b",
        ),
    ],
)
def test_impossible_pools_are_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulated(*words, "trace.requests=5")


def test_run_folder_of_pools_reruns_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("run", *pools((FAST, 1), (SLOW, 1)), *MLPERF, "timeline=true")
    assert main([*words, "run.dir=out"]) == 0
    assert main(["run", "--config-path", "out", "--config-name", "config", "run.dir=again"]) == 0
    assert Path("again", REQUESTS).read_bytes() == Path("out", REQUESTS).read_bytes()
    assert main(["report", "out"]) == 0
    (run,) = load_runs([Path("out")])
    assert run.gpu_kinds == [FAST, SLOW]
    assert [model.gpu for model in run.models] == [FAST, SLOW]
    with gzip.open("out/timeline.json.gz", "rt") as file:
        names = [event["args"]["name"] for event in json.load(file)["traceEvents"] if event["name"] == "thread_name"]
    assert names == [f"GPU 0 ({FAST})", f"GPU 1 ({SLOW})"]
