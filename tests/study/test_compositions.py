"""Compositions beside their parts: what is compared has the same requests, and every part is there."""

import json
from pathlib import Path
from typing import Any

import pytest

from sim.cli import main
from sim.study.compositions.command import NAME, QUICK_ROWS, ROWS
from sim.study.compositions.designs import TRAFFICS
from sim.study.compositions.page import draw, render
from sim.study.scorecard.points import Point, composed
from tests.conftest import REPOSITORY


def test_every_part_of_a_composition_is_a_design_beside_it_and_can_be_composed() -> None:
    for traffic in TRAFFICS:
        names = [design.name for design in traffic.designs]
        assert len(set(names)) == len(names)
        for design in traffic.designs:
            assert set(design.parts) < set(names)
    last = TRAFFICS[2]
    assert composed(Point("compositions", {}, (*last.designs[3].overrides, *last.overrides)))["executor"]["limit"] == 4


def test_the_page_says_what_each_brings_over_its_parts() -> None:
    numbers = {"p50_s": 2.0, "p95_s": 3.0, "rpm_per_gpu": 5.0, "usd_per_image": 0.01, "hit_rate": None}
    facts = {
        "rows": 10,
        "traffics": [
            {
                "title": traffic.title,
                "designs": [
                    {"name": design.name, "parts": list(design.parts)}
                    | numbers
                    | ({"p50_s": 1.0} if design.parts else {})
                    for design in traffic.designs
                ],
            }
            for traffic in TRAFFICS
        ],
    }
    text = render(facts, "c.png")
    assert "- modm before patched batches over patched batches: p50 -50%, p95 +0%, throughput +0%, cost +0%" in text
    assert "Per GPU they give from 5.00 to 5.00 images a minute. SwiftDiffusion has 100% of the median" in text
    assert "the product of the two would be 1.00" in text
    assert "Shared servers give 1.00 times the images per GPU of gangs" in text
    assert len(draw(facts).axes) == 3 * len(TRAFFICS)


def test_the_page_that_is_committed_says_what_its_numbers_do() -> None:
    folder = REPOSITORY / "results"
    facts = json.loads((folder / f"{NAME}.json").read_text(encoding="utf-8"))
    assert (folder / f"{NAME}.md").read_text(encoding="utf-8") == render(facts, f"{NAME}.png")


def test_the_command_writes_the_page_of_its_study_and_with_check_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the numbers that are committed, the page that is."""
    folder = REPOSITORY / "results"
    facts = json.loads((folder / f"{NAME}.json").read_text(encoding="utf-8"))
    asked: list[tuple[Path, int, int]] = []

    def made(work: Path, jobs: int, rows: int) -> dict[str, Any]:
        asked.append((work, jobs, rows))
        return facts

    monkeypatch.setattr("sim.study.compositions.command.study", made)
    words = ["scorecard", "compositions", "--work", str(tmp_path / "work"), "-o", str(tmp_path / "out")]
    assert main([*words, "--check", "--quick"]) == 0
    designs = [each for traffic in facts["traffics"] for each in traffic["designs"]]
    assert len(capsys.readouterr().out.splitlines()) == len(designs)
    assert not (tmp_path / "out").exists()
    assert main([*words, "--jobs", "3"]) == 0
    for kind in ("md", "json"):
        assert (tmp_path / f"out/{NAME}.{kind}").read_bytes() == (folder / f"{NAME}.{kind}").read_bytes()
    assert (tmp_path / f"out/{NAME}.png").read_bytes().startswith(b"\x89PNG")
    assert asked == [(tmp_path / "work", 1, QUICK_ROWS), (tmp_path / "work", 3, ROWS)]
