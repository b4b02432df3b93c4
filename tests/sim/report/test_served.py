"""Runs of unlike work are named, and no best is marked among them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.metrics.run_files import read_summaries
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.report.served import ImageSpec, ServedModel, runs_by_images, served_models, service_error
from mezzotint.sim.report.tables import comparison, different_images

Fabricate = Callable[..., Path]

MLPERF = {
    **{"role": "large", "model": "sdxl-mlperf", "gpu": "l40s", "width": 1024, "height": 1024, "steps": 20},
    **{"precision": "fp8", "basis": "published", "service_error": 0.21, "source": "MLPerf"},
}
ASSUMED = MLPERF | {
    **{"model": "sdxl", "gpu": "h100", "steps": 50, "precision": "fp16", "basis": "assumed", "service_error": None},
}


def test_reference_model_is_listed_first() -> None:
    small = MLPERF | {"role": "base"}
    assert [model.role for model in served_models({"models": [small, MLPERF]}, {})] == ["large", "base"]
    config = {"models.base.name": "a", "models.large.name": "b"}
    assert [model.role for model in served_models({"models": [MLPERF, small]}, config)] == ["base", "large"]


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
    runs = [("a", served_models({"models": [MLPERF]}, {})), ("b", served_models({"models": [MLPERF | change]}, {}))]
    groups = runs_by_images(runs)
    assert [names for _, names in groups] == ([] if is_same_work else [["a"], ["b"]])


@pytest.mark.parametrize("is_same_work", [True, False])
def test_no_run_is_best_across_different_images(is_same_work: bool, fabricate: Fabricate, tmp_path: Path) -> None:
    """Between systems with like work the faster is marked, since the seeds agree."""
    for system, model in (("vanilla", MLPERF), ("modm-throughput", MLPERF if is_same_work else ASSUMED)):
        for seed in (1, 2, 3):
            config = {"cluster": {"count": 16, "gpu": {"name": model["gpu"]}}}

            def change(summary: dict[str, Any], model: dict[str, Any] = model) -> None:
                summary["models"] = [model]

            fabricate(f"{system}-{seed}", system, rate_rpm=20.0, seed=seed, change=change, config=config)
    runs = load_runs([tmp_path])
    assert any(entry.best for _, entries in comparison(runs) for entry in entries) is is_same_work
    assert different_images(runs) == (
        []
        if is_same_work
        else [
            ("sdxl, 1024x1024, 50 steps, fp16 (assumed)", "modm-throughput on h100"),
            ("sdxl-mlperf, 1024x1024, 20 steps, fp8 (measured by others)", "vanilla on l40s"),
        ]
    )


@pytest.mark.parametrize("second", ["cluster=h100", "cluster=l40s"])
def test_sweep_of_unlike_work_says_so_at_end(second: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sweep"
    words = ["run", "-m", "cluster.count=1", "arrivals.rate_rpm=2", "trace.requests=20", f"run.dir={folder}"]
    words.append("hydra.launcher.n_jobs=1")  # in this process, whose output is captured
    seeds = ["cluster=l40s", "seed=1,2"] if second == "cluster=l40s" else ["cluster=l40s,h100"]
    assert main([*words, *seeds]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all("1024x1024, " in line for line in lines)
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
