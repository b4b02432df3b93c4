"""Runs of unlike work are named."""

import json
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.metrics.run_files import read_summaries
from mezzotint.sim.metrics.served import ImageSpec, ServedModel, runs_by_images, served_models, service_error

MLPERF = {
    **{"role": "large", "model": "sdxl-mlperf", "gpu": "l40s", "width": 1024, "height": 1024, "steps": 20},
    **{"precision": "fp8", "basis": "published", "service_error": 0.21, "source": "MLPerf"},
}
ASSUMED = MLPERF | {
    **{"model": "sdxl", "gpu": "h100", "steps": 50, "precision": "fp16", "basis": "assumed", "service_error": None},
}


def test_error_of_several_models_is_the_largest_and_null_if_one_is_unknown() -> None:
    def models(*errors: float | None) -> tuple[ServedModel, ...]:
        return tuple(ServedModel(f"{n}", ImageSpec("m", 1, 1, 1, None), None, error) for n, error in enumerate(errors))

    assert service_error(models(0.02, 0.2)) == 0.2
    assert service_error(models(0.02, None)) is None
    assert service_error(models()) is None


@pytest.mark.parametrize(
    ("change", "is_same_work"),
    [
        ({}, True),
        ({"gpu": "a40", "basis": "assumed", "service_error": 0.5, "source": "else"}, True),
        ({"model": "flux"}, False),
        ({"width": 512}, False),
        ({"height": None}, False),
        ({"steps": 21}, False),
        ({"precision": "fp16"}, False),
    ],
)
def test_work_differs_by_model_size_steps_or_precision(change: dict[str, Any], is_same_work: bool) -> None:
    runs = [("a", served_models({"models": [MLPERF]})), ("b", served_models({"models": [MLPERF | change]}))]
    groups = runs_by_images(runs)
    assert [names for _, names in groups] == ([] if is_same_work else [["a"], ["b"]])


@pytest.mark.parametrize("second", ["cluster=h100", "cluster=l40s"])
def test_sweep_of_unlike_work_says_so_at_end(second: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sweep"
    words = ["run", "-m", "cluster.count=1", "arrivals.rate_rpm=2", "trace.requests=20", f"run.dir={folder}"]
    words.append("hydra.launcher.n_jobs=1")  # in this process, whose output is captured
    seeds = ["cluster=l40s", "seed=1,2"] if second == "cluster=l40s" else ["cluster=l40s,h100"]
    assert main([*words, *seeds]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 2
    # the runs' statements are written here; the tests of the profiles check what each profile states
    for path in folder.glob("*/summary.json"):
        summary = json.loads(path.read_text())
        kind = "h100" if second == "cluster=h100" and path.parent.name == "1" else "l40s"
        summary["models"] = [ASSUMED if kind == "h100" else MLPERF]
        path.write_text(json.dumps(summary))
    assert main([*words, *seeds]) == 0, "every point is there already"
    error = capfd.readouterr().err
    assert "2 points" in error
    assert ("do different work, so their speed and cost cannot be compared" in error) is (second == "cluster=h100")
    (folder / "0" / "summary.json").write_text("{")
    assert list(read_summaries(folder)) == ["1"]
