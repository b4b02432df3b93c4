"""Disaggregated stages against measurements: setups that run as stated, and verdicts."""

from dataclasses import replace
from typing import Any

import pytest

from mezzotint.sim.papers import disaggregated
from mezzotint.sim.papers.disaggregated import INPUTS, comparisons, measure

TANDEM = ("split-1", "split-8", "one-1", "one-8", "wan-1-6-1")


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    """The results of a few setups with 60 requests where they have 600, and a capacity of short runs."""
    setups = {name: replace(INPUTS.setups[name], requests=min(INPUTS.setups[name].requests, 60)) for name in TANDEM}
    groups = {
        group: tuple(cell for cell in group.cells if {cell.setup, cell.over} <= {None, *TANDEM})
        for group in INPUTS.rows
    }
    rows = tuple(replace(group, cells=cells) for group, cells in groups.items() if cells)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disaggregated, "REQUESTS", 200)
        return measure(replace(INPUTS, setups=setups, rows=rows, sensitivity={"Wan2.2": ("wan-1-6-1",)}))


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


def test_every_row_and_every_division_names_a_setup() -> None:
    cells = [cell for group in INPUTS.rows for cell in group.cells]
    named = {name for cell in cells for name in (cell.setup, cell.over) if name}
    named |= {name for names in INPUTS.sensitivity.values() for name in names}
    assert named == set(INPUTS.setups)
    assert {setup.profile for setup in INPUTS.setups.values()} == set(INPUTS.profiles)
    assert INPUTS.setups["eight-1-7"].division == "1 text-encoder + vae, 7 denoiser"


def test_order_claims_are_judged_without_a_tolerance() -> None:
    cells = [
        {"what": "a", "expected": "denoiser", "ours": "vae"},
        {"what": "b", "expected": "< 1", "ours": 0.99},
        {"what": "c", "expected": 2.0, "ours": 2.3},
    ]
    rows = comparisons({"rows": [{"group": "g", "tolerance": 0.1, "cells": cells}]})
    assert [row.within_tolerance for row in rows.values()] == [False, True, False]
