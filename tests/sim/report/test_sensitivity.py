"""The report's error bars: wider where the model's error matters more, and as wide as reruns make them."""

import json
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.figures.page import number
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.report import write_report
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.report.sensitivity import EXAMPLE, configuration, sensitivities
from mezzotint.sim.report.served import ImageSpec, ServedModel, service_error
from mezzotint.sim.run.simulate import simulate, write
from tests.sim.lab import configured

VANILLA = (
    *("trace=mix", "trace.requests=2000", "models=z-image-turbo", "cluster=h100", "cluster.count=2"),
    *("arrivals=expovariate", "warmup=100", "sample_s=1e5"),
)
ALONE_S = 9 * 0.09 + 0.12949 + 0.00623


def made(folder: Path, load: float, *more: str) -> Path:
    config = configured(*VANILLA, f"arrivals.rate_rpm={60 * load * 2 / ALONE_S}", *more)
    write(simulate(config), folder)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("sweep")
    for load in (0.7, 0.98):
        made(folder / f"{load}", load)
    return folder


def rerun(load: float, factor: float) -> list[float]:
    """Return p50, p95 and p99 of the same run from the command line, with the service time changed."""
    config = configured(*VANILLA, f"arrivals.rate_rpm={60 * load * 2 / ALONE_S}", f"backend.service_factor={factor}")
    rows = simulate(config).requests
    arrival, finish = (rows[name].to_numpy()[100:] for name in ("arrival_s", "finish_s"))
    return [float(np.quantile(finish - arrival, q)) for q in (0.5, 0.95, 0.99)]


def stated(folder: Path, service_error: float | None, basis: str = "measured") -> Path:
    """Make the run in ``folder`` state its model, as a profile of that basis and error does."""
    summary = json.loads((folder / "summary.json").read_text())
    row = {"role": "large", "model": "z-image-turbo", "width": 1024, "height": 1024, "steps": 9, "precision": "bf16"}
    summary["models"] = [row | {"basis": basis, "service_error": service_error, "gpu": "h100", "source": "made up"}]
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


@pytest.mark.parametrize("error", [0.02, 0.21, None])
def test_sensitivity_band_is_the_profile_error_or_an_example(error: float | None, tmp_path: Path) -> None:
    share = EXAMPLE if error is None else error
    (each,) = sensitivities(load_runs([stated(made(tmp_path / "run", 0.7), error)]), inf)
    assert each.error == error
    assert each.baseline is not None
    assert each.baseline["p99"] == pytest.approx(each.run.number("latency_s", "p99"))  # the run's own, without warm-up
    for place, name in enumerate(("p50", "p95", "p99")):
        values = [rerun(0.7, factor)[place] for factor in (1 - share, 1.0, 1 + share)]
        assert each.bands[name] == pytest.approx((min(values), max(values)))
    page = write_report([tmp_path], tmp_path / "r.html", reruns_s=inf)[0].read_text()
    low, high = each.bands["p99"]
    assert f"{number(low, 3)} to {number(high, 3)}" in page
    assert (f"±{100 * share:.1f} %" if error else "not known; example ±10 %") in page


def test_sensitivity_band_is_wider_near_saturation(runs: Path) -> None:
    found = {round(each.run.load.rate_rpm or 0): each for each in sensitivities(load_runs([runs]), inf)}
    relaxed, loaded = (found[rate].bands["p99"] for rate in sorted(found))
    assert (loaded[1] - loaded[0]) / loaded[0] > 2 * (relaxed[1] - relaxed[0]) / relaxed[0]


def test_error_of_several_models_is_the_largest_and_null_if_one_is_unknown() -> None:
    def models(*errors: float | None) -> tuple[ServedModel, ...]:
        return tuple(ServedModel(f"{n}", ImageSpec("m", 1, 1, 1, None), None, each) for n, each in enumerate(errors))

    assert service_error(models(0.02, 0.2)) == 0.2
    assert service_error(models(0.02, None)) is None
    assert service_error(models()) is None


def test_report_states_the_basis_of_service_times(runs: Path, tmp_path: Path) -> None:
    page = write_report([runs], tmp_path / "r.html")[0].read_text()
    assert "<h2>Accuracy</h2>" in page
    assert "z-image-turbo on h100: not yet compared with a real service" in page
    assert "SGLang-Diffusion, performance baselines" in page
    assert "measured by others" in page
    assert "21&thinsp;%" in page
    stated(made(tmp_path / "assumed", 0.3), 0.21, "assumed")
    page = write_report([tmp_path / "assumed"], tmp_path / "r.html")[0].read_text()
    assert "measured by others" not in page
    assert "21&thinsp;%" not in page


def test_run_that_cannot_be_rerun_says_why(runs: Path, tmp_path: Path) -> None:
    folder = made(tmp_path / "gone", 0.5, "trace.requests=200")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("mezzotint.traces.sources.mix.Mix", "mine.Mix"))
    (each,) = sensitivities(load_runs([folder]), inf)
    assert each.baseline is None
    assert "mine" in each.reason
    assert "not rerun: " in write_report([folder], tmp_path / "r.html", reruns_s=inf)[0].read_text()


def test_malformed_config_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("- a\n- list\n")
    with pytest.raises(ConfigError, match=r"config.yaml: the top level is .*, expected a mapping"):
        configuration(tmp_path)


def test_reruns_beyond_the_time_budget_are_skipped(runs: Path, tmp_path: Path) -> None:
    given = load_runs([runs])
    takes_s = [3 * (run.number("wall", "cpu_s") or 0.0) for run in given]
    assert [each.baseline is None for each in sensitivities(given, 0.0)] == [True, True]
    assert [each.baseline is None for each in sensitivities(given, 1.01 * min(takes_s))].count(False) == 1
    assert "--reruns-s inf" in write_report([runs], tmp_path / "r.html")[0].read_text()


def test_vllm_omni_results_have_the_keys_of_its_benchmark(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(runs / "0.7"), "--format", "vllm-omni", "-o", str(tmp_path / "r.json")]) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    summary = json.loads((runs / "0.7" / "summary.json").read_text())
    assert found.keys() == {
        *("duration", "completed_requests", "failed_requests", "throughput_qps", "latency_mean", "latency_median"),
        *("latency_p50", "latency_p95", "latency_p99", "peak_memory_mb_max", "peak_memory_mb_mean"),
        *("peak_memory_mb_median", "stage_durations_mean", "stage_durations_p50", "stage_durations_p99"),
        *("slo_attainment_rate", "slo_met_success", "slo_scale", "backend", "model", "dataset", "task"),
    }
    assert found["completed_requests"] == summary["requests"]["completed"] == 1900
    for name in ("mean", "p50", "p95", "p99"):
        assert found[f"latency_{name}"] == pytest.approx(summary["latency_s"][name])
    assert found["throughput_qps"] * found["duration"] == pytest.approx(1900)
    stages = found["stage_durations_mean"]
    assert sum(stages.values()) == pytest.approx(found["latency_mean"])
    assert stages["denoise"] == pytest.approx(9 * 0.09)
    assert found["slo_attainment_rate"] == pytest.approx(1 - summary["slo"]["2x"]["violation_rate"])
    assert (found["model"], found["slo_scale"], found["dataset"]) == ("z-image-turbo", 2.0, "mix")
    capsys.readouterr()
    assert main(["report", str(runs), "--format", "vllm-omni"]) == 2
    assert "found 2 runs, expected one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ("mezzotint.backends.profiled.Profiled -> sim.mine.Live", "it has no profile to change"),
        ("- 1", "expected a mapping; run it again"),
        ("warmup: 100 -> warmup: 1999", ""),
    ],
)
def test_run_without_a_sensitivity_says_why(tmp_path: Path, found: str, message: str) -> None:
    folder = made(tmp_path / "run", 0.5, "trace.requests=2000")
    config = folder / "config.yaml"
    (run,) = load_runs([folder])
    old, _, new = found.partition(" -> ")
    config.write_text(config.read_text().replace(old, new) if new else old)
    (each,) = sensitivities([run], inf)
    assert message in each.reason
    assert (each.baseline is None) == bool(message), "of one request only there are percentiles too"
