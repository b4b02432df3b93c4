"""Runs of unlike work are named and no best is marked among them; the first table answers a buyer's question."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.metrics.run_files import read_summaries
from mezzotint.sim.report.report import write_report
from mezzotint.sim.report.runs import load_runs
from mezzotint.sim.report.served import runs_by_images, served_models
from mezzotint.sim.report.tables import comparison, different_images, verdicts

Fabricate = Callable[..., Path]

MLPERF = {
    **{"role": "large", "model": "sdxl-mlperf", "gpu": "l40s", "width": 1024, "height": 1024, "steps": 20},
    **{"precision": "fp8", "basis": "published", "service_error": 0.21, "source": "MLPerf"},
}
ASSUMED = MLPERF | {
    **{"model": "sdxl", "gpu": "h100", "steps": 50, "precision": "fp16", "basis": "assumed", "service_error": None},
}


def serving(*models: Mapping[str, Any]) -> Callable[[dict[str, Any]], None]:
    def change(summary: dict[str, Any]) -> None:
        summary["models"] = list(models)

    return change


def of_kind(kind: str, count: int = 16) -> dict[str, Any]:
    return {"cluster": {"count": count, "gpu": {"name": kind}}}


def test_reference_model_is_listed_first() -> None:
    small = MLPERF | {"role": "base"}
    assert [each.role for each in served_models({"models": [small, MLPERF]}, {})] == ["large", "base"]
    config = {"models.base.name": "a", "models.large.name": "b"}
    assert [each.role for each in served_models({"models": [MLPERF, small]}, config)] == ["base", "large"]


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
    assert (groups == []) is is_same_work
    if not is_same_work:
        assert groups[0] == ("sdxl-mlperf, 1024x1024, 20 steps, fp8 (measured by others)", ["a"])
        assert groups[1][1] == ["b"]


@pytest.mark.parametrize("is_same_work", [True, False])
def test_no_run_is_best_across_different_images(is_same_work: bool, fabricate: Fabricate, tmp_path: Path) -> None:
    """Between systems with like work the faster is marked, since the seeds agree."""
    for system, model in (("vanilla", MLPERF), ("modm-throughput", MLPERF if is_same_work else ASSUMED)):
        for seed in (1, 2, 3):
            config = of_kind(model["gpu"])
            fabricate(f"r/{system}-{seed}", system, rate_rpm=20.0, seed=seed, change=serving(model), config=config)
    runs = load_runs([tmp_path / "r"])
    assert any(entry.best for _, entries in comparison(runs) for entry in entries) is is_same_work
    page = write_report([tmp_path / "r"])[0].read_text()
    assert ("These runs make different images." in page) is not is_same_work
    if not is_same_work:
        first = page.index("These runs make different images.")
        assert first < page.index("<table")
        assert different_images(runs) == [
            ("sdxl, 1024x1024, 50 steps, fp16 (assumed)", "modm-throughput on h100"),
            ("sdxl-mlperf, 1024x1024, 20 steps, fp8 (measured by others)", "vanilla on l40s"),
        ]


def test_verdicts_are_grouped_by_system_and_gpu(fabricate: Fabricate, tmp_path: Path) -> None:
    def grows(summary: dict[str, Any]) -> None:
        summary |= {"models": [MLPERF], "backlog": {"grows": summary["gpu"]["count"] == 2}}
        summary["slo"] = {"10s": {"limit_s": 10.0, "violation_rate": 0.25}}
        summary["cost_usd"] = {"per_image": 0.0123, "total": 1.0}
        summary["latency_s"] = dict.fromkeys(summary["latency_s"], 7.125)

    for gpus in (2, 4):
        for rate in (6.0, 16.0):
            config = of_kind("l40s", gpus)
            fabricate(f"{gpus}-{rate}", "nirvana", rate_rpm=rate, gpus=gpus, requests=20, change=grows, config=config)
    fabricate("other", "vanilla", rate_rpm=6.0, requests=20, change=grows, config=of_kind("h100"))
    found = verdicts(load_runs([tmp_path]))
    assert list(found) == ["nirvana on l40s", "vanilla on h100"]
    nirvana = found["nirvana on l40s"]
    assert [(row["load"], row["gpus"]) for row in nirvana] == [
        *(("6 rpm", "2"), ("6 rpm", "4")),
        *(("16 rpm", "2"), ("16 rpm", "4")),
    ]
    overloaded, row = nirvana[:2]
    assert overloaded["verdict"] == "overloaded: its queue grows, 25.0% over 10s"
    assert row["verdict"] == "stable, 25.0% over 10s"
    assert (row["usd_per_1000"], row["p95_s"]) == ("12.3", "7.12")
    assert (row["model"], row["steps"], row["precision"], row["basis"]) == (
        "sdxl-mlperf",
        "20",
        "fp8",
        "measured by others",
    )
    assert row["series"] == "", "load and number of GPUs tell the rows of a group apart"


def test_verdict_rows_name_the_setting_that_differs(fabricate: Fabricate, tmp_path: Path) -> None:
    for size in (50, 100):
        config = of_kind("l40s") | {"cache": {"capacity": size}}
        fabricate(str(size), "nirvana", rate_rpm=6.0, requests=20, config=config)
    (rows,) = verdicts(load_runs([tmp_path])).values()
    assert [row["series"] for row in rows] == ["nirvana (cache.capacity=50)", "nirvana (cache.capacity=100)"]


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ({"arrived": 10, "completed": 0, "discarded": 10}, "completes no request"),
        ({"arrived": 10, "completed": 7, "discarded": 3}, "queue not recorded, drops 30.0%"),
        ({"arrived": 10, "completed": 10}, "queue not recorded"),
        ({"arrived": None, "completed": None}, "–"),
    ],
)
def test_verdict_says_what_is_not_served(requests: dict[str, Any], message: str, fabricate: Fabricate) -> None:
    def edit(summary: dict[str, Any]) -> None:
        summary["requests"] |= requests
        summary["slo"] = {}

    ((row,),) = verdicts(load_runs([fabricate("r", requests=20, change=edit)])).values()
    assert row["verdict"] == message


def test_prices_are_shown_with_their_source(fabricate: Fabricate, tmp_path: Path) -> None:
    def listed(summary: dict[str, Any]) -> None:
        source = "list price of 2025-08-12: a cloud"
        summary["assumptions"] = [{"what": "price of a GPU [USD/h]", "value": 0.86, "source": source}]

    fabricate("a", requests=20, change=listed, config=of_kind("l40s"))
    fabricate("b", requests=20, config=of_kind("mi210"))
    page = write_report([tmp_path])[0].read_text()
    assert "list price of 2025-08-12: a cloud" in page
    assert "A cost needs a price (cluster.gpu.usd_per_gpu_h)" in page


def test_page_has_answer_figures_tables_assumptions_and_command_in_this_order(fabricate: Fabricate) -> None:
    page = write_report([fabricate("r", requests=50)])[0].read_text()
    parts = [
        '<p class="answer">',
        '<div class="legend"',
        "<figure",
        'class="verdicts"',
        "Assumptions",
        "mezzotint run --config-path",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize("second", ["cluster=h100", "cluster=l40s"])
def test_sweep_of_unlike_work_says_so_at_end(second: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sweep"
    words = ["run", "-m", "cluster.count=1", "arrivals.rate_rpm=2", "trace.requests=20", f"run.dir={folder}"]
    words.append("hydra.launcher.n_jobs=1")  # in this process, whose output is captured
    seeds = ["cluster=l40s", "seed=1,2"] if second == "cluster=l40s" else ["cluster=l40s,h100"]
    assert main([*words, *seeds]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "p95 " in line
        assert "sdxl" in line
        assert "1024x1024, " in line
    # the runs' statements are written here; the tests of the profiles check what each profile states
    for path in folder.glob("*/summary.json"):
        summary = json.loads(path.read_text())
        kind = "h100" if second == "cluster=h100" and path.parent.name == "1" else "l40s"
        summary["models"] = [ASSUMED if kind == "h100" else MLPERF]
        path.write_text(json.dumps(summary))
    assert main([*words, *seeds]) == 0, "every point is there already"
    error = capfd.readouterr().err
    assert "2 points" in error
    assert ("do different work" in error) is (second == "cluster=h100")
    if second == "cluster=h100":
        assert "do different work, so their speed and cost cannot be compared" in error
        assert "  sdxl, 1024x1024, 50 steps, fp16 (assumed): 1\n" in error
    (folder / "0" / "summary.json").write_text("{")
    assert list(read_summaries(folder)) == ["1"]
