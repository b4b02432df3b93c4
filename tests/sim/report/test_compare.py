"""Which runs are averaged, which are compared, and what they are called."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.report.compare import cells, common_loads, hit_shares, slo_multiples, thin_out
from mezzotint.sim.report.runs import load_runs

Fabricate = Callable[..., Path]


def test_seeds_are_replicas_and_rates_are_loads(fabricate: Fabricate, tmp_path: Path) -> None:
    for rate in (5.0, 20.0):
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            fabricate(f"{rate}-{name}", "vanilla", rate_rpm=rate, seed=seed, requests=20)
    grid = cells(load_runs([tmp_path]))
    assert [(cell.series, cell.load.label, len(cell.runs)) for cell in grid] == [
        ("vanilla", "5 rpm", 2),
        ("vanilla", "20 rpm", 2),
    ], "a repeated seed counts once"


def test_common_loads_are_shared_by_most_systems_and_include_both_ends(fabricate: Fabricate, tmp_path: Path) -> None:
    for rate in (2, 4, 6, 8, 10):
        fabricate(f"v{rate}", "vanilla", rate_rpm=float(rate), requests=10)
        if rate > 2:
            fabricate(f"n{rate}", "nirvana", rate_rpm=float(rate), requests=10)
    rates = [load.rate_rpm for load in common_loads(load_runs([tmp_path]))]
    assert (rates[0], rates[-1], len(rates)) == (4, 10, 3)


@pytest.mark.parametrize("count", [1, 12, 13, 120])
def test_thinning_keeps_both_ends(count: int) -> None:
    kept = thin_out(range(count), 12)
    assert len(kept) == min(count, 12)
    assert (kept[0], kept[-1]) == (0, count - 1)
    assert kept == sorted(set(kept))


def test_slo_names_are_ordered_by_size(fabricate: Fabricate) -> None:
    def more(summary: dict[str, Any]) -> None:
        summary["slo"] = {name: {"limit_s": 1.0, "violation_rate": 0.1} for name in ("10x", "3s", "4x", "60s", "1.5x")}

    assert slo_multiples(load_runs([fabricate("r", change=more, requests=10)])) == ["1.5x", "4x", "10x", "3s", "60s"]


@pytest.mark.parametrize("system", ["vanilla", "pinecone", "nirvana", "modm-throughput"])
def test_hit_shares_sum_to_one(fabricate: Fabricate, system: str) -> None:
    (cell,) = cells(load_runs([fabricate("r", system, requests=20)]))
    shares = hit_shares(cell)
    assert (shares is None) == (system == "vanilla")
    if shares is not None:
        assert sum(shares.values()) == pytest.approx(1.0)
        assert shares["miss"] == pytest.approx(1 - cell.runs[0].summary["cache"]["hit_rate"])


@pytest.mark.parametrize("by_k", [None, {}, {"5": 0.0}, {"5": None}])
def test_hits_without_a_step_count_are_shown_as_unknown(fabricate: Fabricate, by_k: object) -> None:
    def forget(summary: dict[str, Any]) -> None:
        summary["cache"]["hit_share_by_k"] = by_k

    (cell,) = cells(load_runs([fabricate("r", change=forget, requests=10)]))
    assert hit_shares(cell) == pytest.approx({"unknown": 0.78, "miss": 0.22})
