"""Stages apart against measurements: setups that run as stated, a page that matches its numbers, verdicts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mezzotint.sim.papers.apart.command import compare, run_setups
from mezzotint.sim.papers.apart.page import draw
from mezzotint.sim.papers.apart.rows import Study, comparisons, study

TANDEM = ("split-1", "split-8", "one-1", "one-8", "wan-1-6-1")


@pytest.fixture(scope="module")
def short() -> Study:
    """The study with the setups of a few rows, and 60 requests where it has 600."""
    whole = study()
    setups = {name: replace(whole.setups[name], requests=min(whole.setups[name].requests, 60)) for name in TANDEM}
    cells = [[cell for cell in group.cells if {cell.setup, cell.over} <= {None, *TANDEM}] for group in whole.rows]
    rows = tuple(replace(group, cells=tuple(own)) for group, own in zip(whole.rows, cells, strict=True) if own)
    return replace(whole, setups=setups, rows=rows, sensitivity={"Wan2.2": ("wan-1-6-1",)})


@pytest.fixture(scope="module")
def facts(short: Study) -> dict[str, Any]:
    """The results of the short study, with a capacity of short runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mezzotint.sim.papers.apart.command.REQUESTS", 200)
        return run_setups(short)


def test_split_of_two_gpus_is_the_tandem_of_its_stage_times(facts: dict[str, Any]) -> None:
    """0.40 + 5 x 3.76 + 0.31 s for the first of eight at once, then one in 18.8 s. Alone on a GPU each request loads
    text encoder and VAE: 0.40 + 12.49 + 5 x 5.75 + 0.31 + 0.23 s."""
    assert facts["setups"]["split-1"]["p50"] == pytest.approx(0.40 + 18.8 + 0.31)
    assert facts["setups"]["split-8"]["rate"] == pytest.approx(8 / (19.51 + 7 * 18.8))
    assert facts["setups"]["one-1"]["p50"] == pytest.approx(42.18)
    assert facts["setups"]["one-8"]["component_loads"] == 16
    assert facts["setups"]["wan-1-6-1"]["busiest"] == "denoiser"
    assert 0.04 < facts["capacity_hz"] < 6 / 74.5
    assert any("rate, 8 at once" in name and row.within_tolerance for name, row in comparisons(facts).items())
    assert len(draw(facts).axes) == 2


def test_command_prints_every_row_and_checks_itself(
    short: Study,
    facts: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command runs its study, whose results are those of the fixture."""
    monkeypatch.setattr("mezzotint.sim.papers.apart.command.study", lambda: short)
    monkeypatch.setattr("mezzotint.sim.papers.apart.command.run_setups", lambda given: facts if given is short else {})
    assert compare(output=tmp_path) == 0
    rows = comparisons(json.loads((tmp_path / "apart.json").read_text()))
    said = capsys.readouterr().out
    assert all(f"{name}: expected" in said for name in rows)
    assert compare(check=True, output=tmp_path) == 0


def test_every_row_and_every_division_names_a_setup() -> None:
    whole = study()
    named = {cell.setup for group in whole.rows for cell in group.cells}
    named |= {cell.over for group in whole.rows for cell in group.cells if cell.over}
    named |= {name for names in whole.sensitivity.values() for name in names}
    assert named == set(whole.setups)
    assert {setup.profile for setup in whole.setups.values()} == set(whole.profiles)
    assert whole.setups["eight-1-7"].division == "1 text-encoder + vae, 7 denoiser"


def test_order_claims_are_judged_without_a_tolerance() -> None:
    cells = [
        {"what": "a", "expected": "denoiser", "ours": "vae"},
        {"what": "b", "expected": "< 1", "ours": 0.99},
        {"what": "c", "expected": 2.0, "ours": 2.3},
    ]
    found = comparisons({"rows": [{"group": "g", "tolerance": 0.1, "cells": cells}]})
    assert [row.within_tolerance for row in found.values()] == [False, True, False]
