"""The simulator states its own error: live, profiled, simulated, compared."""

import json
from pathlib import Path

import pandas as pd
import pytest

from mezzotint.sim.cli import main

pytest.importorskip("torch")
pytest.importorskip("diffusers")

QUICK = ("trace.requests=12", "models.large.width=64", "models.large.height=64", "models.large.steps=20")


def test_validation_reports_the_error_of_the_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Loose bounds: this machine may be busy, and the figure that matters is reported, not asserted."""
    assert main(["validate", "system=nirvana", *QUICK, "trace.users=2", f"run.dir={tmp_path}"]) == 0
    output = capsys.readouterr().out
    assert "| latency mean [s] |" in output
    assert "on cpu (processor time), 12 requests" in output
    assert (tmp_path / "validation.png").stat().st_size > 5_000
    validation = json.loads((tmp_path / "validation.json").read_text())
    errors = {row["what"]: row["error"] for row in validation["rows"]}
    assert errors.keys() == {
        *(f"latency {p} [s]" for p in ("mean", "p50", "p90", "p99")),
        "throughput [1/min]",
        "GPU-seconds",
    }
    assert all(-0.9 < error < 9 for error in errors.values())
    assert validation["requests"] == 12
    for run in ("live", "simulated"):
        assert json.loads((tmp_path / run / "summary.json").read_text())["requests"]["completed"] == 12
    live, simulated = (json.loads((tmp_path / r / "summary.json").read_text()) for r in ("live", "simulated"))
    assert live["trace"]["digest"] == simulated["trace"]["digest"]
    assert any(a["what"] == "service times" for a in live["assumptions"])
    assert any("step time of sdxl-tiny on here" in a["what"] for a in simulated["assumptions"])


def test_only_a_live_backend_can_be_validated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["backend=profiled", "cluster=mi210", f"run.dir={tmp_path}"]
    assert main(["validate", *words]) == 2
    assert "add backend=live" in capsys.readouterr().err
    (tmp_path / "validation.md").write_text("# A simulation against a measured result\n")
    assert main(["validate", *words]) == 2
    assert "validation.md: is not a page of a live validation" in capsys.readouterr().err


def test_user_trace_replaces_the_validation_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["trace=file", f"trace.path={tmp_path / 'nowhere.parquet'}", "arrivals=closed", f"run.dir={tmp_path}"]
    assert main(["validate", *words]) == 2
    assert "nowhere.parquet: no such file" in capsys.readouterr().err


TEN_STEPS = tuple(
    f"models.{role}.{key}={value}"
    for role in ("large", "small")
    for key, value in (("width", 64), ("height", 64), ("steps", 10))
)
MODM = (
    "system=modm-throughput", "cluster.count=6", "trace.users=2", "trace.repeat_share=0.5", "seed=5",
    "controller.kp=1", "controller.ki=0", "controller.kd=0", *TEN_STEPS,
)  # fmt: skip
"""Return six GPUs of which the monitor wants five large ones in the first window and few in the second."""


def _image_s(folder: Path) -> float:
    """Return the seconds of an image on the large model of MODM on this machine."""
    words = ("system=vanilla", "trace.requests=8", "arrivals.rate_rpm=60", *TEN_STEPS, f"run.dir={folder}")
    assert main(["validate", *words]) == 0
    validation = json.loads((folder / "validation.json").read_text())
    return next(row["live"] for row in validation["rows"] if row["what"] == "GPU-seconds") / 8


def test_modm_monitor_switches_live_models_and_the_simulation_follows(tmp_path: Path) -> None:
    """The load and the monitor's period are multiples of an image's time: equal loads on fast and slow machines."""
    images = tmp_path / "images"
    image_s = _image_s(tmp_path / "alone")
    words = (
        "trace.requests=36", f"arrivals.rate_rpm={120 / image_s}", f"controller.period_s={2.5 * image_s}",
        f"backend.images={images}", f"run.dir={tmp_path / 'found'}",
    )  # fmt: skip
    assert main(["validate", *MODM, *words]) == 0
    validation = json.loads((tmp_path / "found" / "validation.json").read_text())
    rows = {row["what"]: row for row in validation["rows"]}
    loaded = rows["model switches"]
    assert loaded["live"] >= 2
    assert loaded["simulated"] == pytest.approx(loaded["live"], rel=0.5, abs=2)  # the machine may be busy
    assert rows["GPU-seconds of switches"]["live"] > 0
    assert len(list(images.glob("*.png"))) == 36
    assert validation["same_plan"] >= 25
    assert abs(validation["hits_live"] - validation["hits_simulated"]) <= 8
    assert all(-0.9 < row["error"] < 9 for row in validation["rows"])


def test_model_without_live_requests_is_still_profiled(tmp_path: Path) -> None:
    words = ("arrivals.rate_rpm=8000", "controller.period_s=1", "trace.requests=2", f"run.dir={tmp_path}")
    assert main(["validate", *MODM, *words]) == 0
    served = pd.read_parquet(tmp_path / "live" / "requests.parquet").model.astype(str)
    assert set(served) == {"sdxl-tiny"}
    assert {path.name for path in (tmp_path / "profiles").glob("*.yaml")} == {
        "here_sdxl-tiny.yaml",
        "here_sana-tiny.yaml",
    }
