"""A run's results in the keys of vLLM-Omni's benchmark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.report.vllm_omni import vllm_omni
from mezzotint.sim.run.simulate import simulate, write
from tests.sim.lab import configured

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 300 requests, 50 of them to warm up."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    words = ("trace=mix", "trace.requests=300", "models=z-image-turbo", "cluster=h100", "warmup=50")
    write(simulate(configured(*words, "arrivals=expovariate", "arrivals.rate_rpm=50")), folder)
    return folder


@pytest.fixture
def edited(made: Path, tmp_path: Path) -> Callable[[Change], Path]:
    """Return a copy of the run with an edited summary."""

    def edit(change: Change) -> Path:
        for file in made.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        summary = json.loads((tmp_path / "summary.json").read_text())
        change(summary)
        (tmp_path / "summary.json").write_text(json.dumps(summary))
        return tmp_path

    return edit


def test_results_have_the_keys_of_the_benchmark_and_exclude_the_warmup(made: Path, tmp_path: Path) -> None:
    assert main(["report", str(made), "--format", "vllm-omni", "-o", str(tmp_path / "r.json")]) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    summary = json.loads((made / "summary.json").read_text())
    assert found.keys() == {
        *("duration", "completed_requests", "failed_requests", "throughput_qps", "latency_mean", "latency_median"),
        *("latency_p50", "latency_p95", "latency_p99", "peak_memory_mb_max", "peak_memory_mb_mean"),
        *("peak_memory_mb_median", "stage_durations_mean", "stage_durations_p50", "stage_durations_p99"),
        *("slo_attainment_rate", "slo_met_success", "slo_scale", "backend", "model", "dataset", "task"),
    }
    assert found["completed_requests"] == summary["requests"]["completed"] == 250
    for name in ("mean", "p50", "p95", "p99"):
        assert found[f"latency_{name}"] == pytest.approx(summary["latency_s"][name])
    assert found["throughput_qps"] * found["duration"] == pytest.approx(250)
    stages = found["stage_durations_mean"]
    assert sum(stages.values()) == pytest.approx(found["latency_mean"])
    assert stages["denoise"] == pytest.approx(9 * 0.09)
    late = summary["slo"]["2x"]["violation_rate"]
    assert found["slo_attainment_rate"] == pytest.approx(1 - late)
    assert found["slo_met_success"] == round((1 - late) * 250)
    assert (found["model"], found["slo_scale"], found["dataset"]) == ("z-image-turbo", 2.0, "mix")


@pytest.mark.parametrize(
    ("slo", "expected"),
    [
        ({"60s": 0.1, "5s": 0.4}, (0.6, 150, None)),  # the tightest in seconds has no scale
        ({}, (None, None, None)),
        (None, (None, None, None)),
    ],
)
def test_attainment_is_that_of_the_tightest_limit(slo: Any, expected: Any, edited: Callable[[Change], Path]) -> None:
    limits = slo and {name: {"limit_s": None, "violation_rate": share} for name, share in slo.items()}
    found = vllm_omni([edited(lambda summary: summary.update(slo=limits))])
    assert tuple(found[f"slo_{key}"] for key in ("attainment_rate", "met_success", "scale")) == expected


def test_result_without_its_data_is_refused(
    made: Path, edited: Callable[[Change], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = edited(lambda summary: None)
    table = pq.read_table(path / "requests.parquet")
    for name in ("finish_s", "outcome", "decode_s"):
        pq.write_table(table.drop_columns([name]), path / "requests.parquet")
        with pytest.raises(ConfigError, match=rf"requests\.parquet: column '{name}' is missing; run it again"):
            vllm_omni([path])
    (path / "requests.parquet").unlink()
    with pytest.raises(ConfigError, match=r"requests\.parquet: is missing; run it again"):
        vllm_omni([path])
    assert main(["report", str(made), str(path), "--format", "vllm-omni"]) == 2
    assert "found 2 runs, expected one" in capsys.readouterr().err
