"""Compositions beside their parts: both have the same requests, and every part is included."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.papers import runs
from mezzotint.sim.papers.compositions import TRAFFICS
from mezzotint.sim.papers.runs import Finished, Point, Runs, compose_point


def test_every_part_of_a_composition_is_a_design_that_composes() -> None:
    for traffic in TRAFFICS:
        names = [design.name for design in traffic.designs]
        assert len(set(names)) == len(names)
        for design in traffic.designs:
            assert set(design.parts) < set(names)
    traffic = TRAFFICS[2]
    patched = next(design for design in traffic.designs if design.name == "4 servers, patched batches")
    config = compose_point(Point("compositions", {}, (*patched.overrides, *traffic.overrides)))
    assert config["executor"]["max_batch"] == 4


def replace_runs(monkeypatch: pytest.MonkeyPatch, rpm: float | None = None) -> list[Point]:
    """Replace the runs: the i-th, from 1 on, takes i to i + 1 s and makes 8 i images a minute, or ``rpm``."""
    asked: list[Point] = []

    def finish(points: Sequence[Point], work: Path, jobs: int, launcher: str) -> Runs:
        asked.extend(points)
        outcomes: list[tuple[Point, Finished | str]] = []
        for at, point in enumerate(points, 1):
            summary: dict[str, Any] = {
                "system": "s",
                "gpu": {"count": 8},
                "latency_s": {"p50": at + 0.0, "p95": at + 1.0},
                "throughput_rpm": 8.0 * at if rpm is None else rpm,
                "cost_usd": {"per_image": at / 100},
                "cache": {"hit_rate": 0.5 if at < 3 else None},
            }
            outcomes.append((point, Finished(point, {}, work, summary)))
        return Runs(tuple(outcomes))

    monkeypatch.setattr(runs, "finish", finish)
    return asked


def test_latency_is_of_the_light_load_and_throughput_of_the_full_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace_runs(monkeypatch)
    words = ["reproduce", "compositions", "--quick", "-o", str(tmp_path)]
    assert main(words) == 0
    results = json.loads((tmp_path / "compositions-quick.json").read_text())
    measured = [design for of_traffic in results["traffics"] for design in of_traffic["designs"]]
    pairs = [(traffic, design) for traffic in TRAFFICS for design in traffic.designs]
    numbers = iter(range(len(asked)))
    for (traffic, design), found in zip(pairs, measured, strict=True):
        light = full = next(numbers)
        parts = {*traffic.cluster, *design.overrides, *traffic.overrides}
        if traffic.day_rpm is None:
            full = next(numbers)
            parts |= {"trace.requests=240", "preload=180"}
            assert set(asked[light].overrides) > {*parts, f"arrivals.rate_rpm={traffic.light_rpm}"}
            assert set(asked[full].overrides) > {*parts, "arrivals=saturation"}
        else:
            assert set(asked[light].overrides) > {*parts, "arrivals=day", f"arrivals.rate_rpm={traffic.day_rpm}"}
        assert (found["p50_s"], found["rpm_per_gpu"]) == (light + 1, full + 1)
        assert found["command"] == asked[light].command
    assert next(numbers, None) is None


def test_compositions_check_fails_where_a_gain_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_runs(monkeypatch)
    words = ["reproduce", "compositions", "--quick", "-o", str(tmp_path)]
    assert main([*words, "--check"]) == 2, "there is nothing to compare with"
    assert main(words) == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main([*words, "--check"]) == 0
    replace_runs(monkeypatch, rpm=0.001 * 8)  # on eight GPUs
    capsys.readouterr()
    assert main([*words, "--check"]) == 1
    lines = capsys.readouterr().err.splitlines()
    title = TRAFFICS[0].title
    # the eighth run, of a composition, and the fourth, of its part: 8 i images on eight GPUs
    assert lines[0].startswith(f"mezzotint: {title}: swiftdiffusion under nirvana over nirvana, add-ons in series, ")
    assert lines[0].endswith("found 0.001, before 8")
    assert len(lines) == sum(len(design.parts) for traffic in TRAFFICS for design in traffic.designs)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
