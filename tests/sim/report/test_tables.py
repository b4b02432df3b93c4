"""Numbers of the report's tables: what is best, what is unknown, and on which work and assumptions they rest."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mezzotint.figures.page import DASH
from mezzotint.sim.report.assumed import Stated
from mezzotint.sim.report.compare import beyond_noise, cells
from mezzotint.sim.report.report import write_report
from mezzotint.sim.report.runs import Run, load_runs
from mezzotint.sim.report.tables import (
    Entry,
    assumptions,
    columns,
    comparison,
    different_images,
    facts,
    gpus,
    quality_notes,
    reproduction,
    unknown_quality,
    verdict,
)

Fabricate = Callable[..., Path]

MLPERF = {
    **{"role": "large", "model": "sdxl-mlperf", "gpu": "l40s", "width": 1024, "height": 1024, "steps": 20},
    **{"precision": "fp8", "basis": "published", "service_error": 0.21, "source": "MLPerf"},
}
ASSUMED = MLPERF | {
    **{"model": "sdxl", "gpu": "h100", "steps": 50, "precision": "fp16", "basis": "assumed", "service_error": None},
}


def column(runs: Sequence[Run], title: str) -> dict[str, Entry]:
    """Return a column of the comparison, by series."""
    place = [shown.title for shown in columns(runs)].index(title)
    return {cell.series: entries[place] for cell, entries in comparison(runs)}


def test_source_ages_are_reported_on_both_clocks(fabricate: Fabricate, tmp_path: Path) -> None:
    for system in ("vanilla", "nirvana"):
        fabricate(system, system, requests=20)
    runs = load_runs([tmp_path])
    for title, minutes in (("Cached age p50", "1.33"), ("Cached age in trace", "2.5")):
        assert column(runs, title)["nirvana"].text == minutes
        assert column(runs, title)["vanilla"].text == DASH
    alone = [run for run in runs if run.system == "vanilla"]
    assert "Cached age p50" not in [shown.title for shown in columns(alone)], "an unknown quantity has no column"


@pytest.mark.parametrize("seeds", [1, 3])
def test_best_of_each_load_is_marked_if_seeds_agree(seeds: int, fabricate: Fabricate, tmp_path: Path) -> None:
    for system in ("vanilla", "modm-throughput"):
        for seed in range(seeds):
            fabricate(f"{system}-{seed}", system, rate_rpm=20.0, requests=400, seed=seed)
    runs = load_runs([tmp_path])
    for title in ("Throughput", "Latency p50"):
        best = [name for name, entry in column(runs, title).items() if entry.best]
        assert best == (["modm-throughput"] if seeds > 1 else []), "the noise of one seed is unknown"
    assert not any(entry.best for entry in column(runs, "GPU busy").values()), "a busier GPU is not better"


@pytest.mark.parametrize(
    ("vanilla", "nirvana", "is_beyond"),
    [
        ((9.0, 10.0, 11.0), (11.1, 9.0, 10.2), False),  # the means differ by 0.1, the seeds of each by 2
        ((2.0, 2.0), (2.0, 2.0), False),
        ((2.0, 2.0), (2.5, 2.5), True),  # of no noise at all
    ],
)
def test_difference_is_marked_beyond_the_noise_of_seeds(
    vanilla: tuple[float, ...], nirvana: tuple[float, ...], is_beyond: bool, fabricate: Fabricate, tmp_path: Path
) -> None:
    for system, rates in (("vanilla", vanilla), ("nirvana", nirvana)):
        for seed, rate in enumerate(rates):

            def edit(summary: dict[str, Any], rate: float = rate) -> None:
                summary["throughput_rpm"] = rate

            fabricate(f"{system}-{seed}", system, seed=seed, requests=10, change=edit)
    runs = load_runs([tmp_path])
    one, other = cells(runs)
    assert beyond_noise(one, other, "throughput_rpm") is is_beyond
    assert any(entry.best for entry in column(runs, "Throughput").values()) is is_beyond


def test_overload_is_marked(fabricate: Fabricate) -> None:
    def edit(summary: dict[str, Any]) -> None:
        summary["load"]["verdict"] = "overloaded"
        summary["throughput_until_last_arrival_rpm"] = 8.5

    runs = load_runs([fabricate("r", "vanilla", requests=50, change=edit)])
    assert column(runs, "Latency p99")["vanilla"].unstable
    assert not column(runs, "Cost per image")["vanilla"].unstable
    assert column(runs, "Throughput to last arrival")["vanilla"].text == "8.5"
    assert verdict(cells(runs)[0]) == "overloaded"
    assert gpus(cells(runs)[0]) == "16 mi210"


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ({"arrived": 10, "completed": 0, "discarded": 10}, "completes no request"),
        ({"arrived": 10, "completed": 7, "discarded": 3}, "below capacity, drops 30.0%"),
        ({"arrived": 10, "completed": 10}, "below capacity"),
        ({"arrived": None, "completed": None}, DASH),
    ],
)
def test_verdict_says_what_is_not_served(requests: dict[str, Any], message: str, fabricate: Fabricate) -> None:
    def edit(summary: dict[str, Any]) -> None:
        summary["requests"] |= requests
        summary["slo"] = {}  # a share of late requests counts those that are not served

    (cell,) = cells(load_runs([fabricate("r", requests=20, change=edit)]))
    assert verdict(cell) == message


def test_quality_is_reported_beside_speed(fabricate: Fabricate, tmp_path: Path) -> None:
    def edit(summary: dict[str, Any]) -> None:
        known = summary["system"] == "small-model"
        summary["quality"] = {"factor_mean": 0.93} if known else {"factor_mean": None, "reason": "another selector"}

    for system in ("small-model", "nirvana"):
        fabricate(system, system, requests=50, change=edit)
    runs = load_runs([tmp_path])
    assert [entry.text for entry in column(runs, "Quality").values()] == [DASH, "0.93"]
    assert unknown_quality(runs) == {"another selector": "nirvana"}


def test_mean_over_seeds_lies_in_its_range(fabricate: Fabricate, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        fabricate(str(seed), "vanilla", seed=seed, rate_rpm=9.0, requests=200)
    entry = column(load_runs([tmp_path]), "Latency mean")["vanilla"]
    low, high = (float(part.replace(",", "")) for part in entry.range.split(" to "))
    assert low <= float(entry.text.replace(",", "")) <= high


def test_shared_assumptions_are_listed_once(fabricate: Fabricate, tmp_path: Path) -> None:
    def more(summary: dict[str, Any]) -> None:
        summary["assumptions"] = [{"what": "extrapolated", "value": [1, {"a": 2}], "source": None}] * 2

    fabricate("a", "vanilla", requests=10)
    fabricate("b", "nirvana", requests=10)
    fabricate("c", "small-model", change=more, requests=10)
    rows = assumptions(load_runs([tmp_path]))
    assert Stated("extrapolated", [1, {"a": 2}], DASH, "small-model") in rows
    assert [row.systems for row in rows if row.what == "model switch time"] == ["nirvana, vanilla"]
    assert len(rows) == 3


def test_reproduction_names_seed_trace_and_digest(fabricate: Fabricate) -> None:
    (row,) = reproduction(load_runs([fabricate("r", seed=7, requests=10)]))
    assert row[:5] == ("r", "nirvana", "10 rpm", "7", "synthetic")
    assert row[5].startswith("sha256:")


@pytest.mark.parametrize("section", ["latency_s", "queue_s", "slo", "cache", "gpu", "energy_j", "cost_usd", "trace"])
def test_any_summary_section_may_be_null(fabricate: Fabricate, section: str) -> None:
    def forget(summary: dict[str, Any]) -> None:
        summary[section] = None

    def hollow(summary: dict[str, Any]) -> None:
        summary[section] = {
            key: dict.fromkeys(value) if isinstance(value, dict) else None for key, value in summary[section].items()
        }

    for name, change in (("null", forget), ("hollow", hollow)):
        assert comparison(load_runs([fabricate(name, change=change, requests=10)]))


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


def test_quality_names_its_score_and_what_a_factor_above_one_means(fabricate: Fabricate, tmp_path: Path) -> None:
    def edit(summary: dict[str, Any]) -> None:
        summary["quality"] = {"factor_mean": 1.03, "score": "CLIPScore", "note": "above 1: FID says otherwise"}

    fabricate("a", "vanilla", change=edit, requests=20)
    notes = quality_notes(load_runs([tmp_path]))
    assert notes == {"compares CLIPScore": "vanilla", "above 1: FID says otherwise": "vanilla"}
    assert "Quality of vanilla: compares CLIPScore." in write_report([tmp_path])[0].read_text()


def test_facts_join_what_differs_in_numbers_and_name_the_systems_of_other_words(
    fabricate: Fabricate, tmp_path: Path
) -> None:
    for system in ("vanilla", "nirvana"):
        for rate in (6.0, 10.0):

            def edit(summary: dict[str, Any], rate: float = rate) -> None:
                summary["throughput_rpm"] = rate
                verdict = "overloaded" if summary["system"] == "vanilla" and rate == 10.0 else "below"
                summary["load"] |= {"offered_rpm": rate, "served_rpm": rate, "growth_per_hour": 0.0, "verdict": verdict}

            fabricate(f"{system}-{rate:g}", system, rate_rpm=rate, requests=20, change=edit)
    rows, differing = facts(load_runs([tmp_path]))
    shown = dict(rows)
    assert shown["traffic"] == "synthetic: poisson arrivals at 6 to 10 a minute"
    below = "offered 6 to 10 a minute, served 6 to 10: below capacity (nirvana, 1 of 2 runs of vanilla)"
    assert shown["load"] == f"{below}; offered 10 a minute, served 10: overloaded (1 of 2 runs of vanilla)"
    assert [name for name, _ in differing] == ["traffic", "load"]
    assert all(len(values) == 4 for _, values in differing)
