"""Batches of patches: which are measured, and the line through their seconds."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("diffusers")

from mezzotint.backends.base import BackendError
from mezzotint.backends.calibrate.patches import fit
from mezzotint.backends.calibrate.plan import draw_mixes, grid
from mezzotint.backends.calibrate.session import complete
from mezzotint.backends.patched import PatchTiming

SIZES = [(64, 64), (128, 64), (128, 128)]


def test_patched_batch_times_fit_the_planted_line() -> None:
    true = PatchTiming(side=64, base_s=0.02, patch_s=0.004, size_s=0.01, halo_s=0.001, source="made up")
    timing = fit(64, {mix: true.step_s(mix, 64) for mix in draw_mixes(SIZES, 3, 8)})
    assert "8 batches of up to 3 images, median error 0.0%" in timing.source
    for batch in [((64, 64),), ((128, 128), (64, 64)), ((128, 64),) * 5]:
        assert timing.step_s(batch, 64) == pytest.approx(true.step_s(batch, 64), rel=1e-5)


def test_batches_to_measure_hold_each_size_alone_and_the_papers_mixes() -> None:
    """Figure 14 of PatchedServe has 3, 6, 9 and 12 images, as many of each of three sizes."""
    mixes = draw_mixes(SIZES, 12)
    assert [Counter(mix) for mix in mixes[:7]] == [
        *(Counter([size]) for size in SIZES),
        *(Counter(dict.fromkeys(SIZES, each)) for each in (1, 2, 3, 4)),
    ]
    assert len(set(mixes)) == 24
    assert max(map(len, mixes)) <= 12
    assert draw_mixes([(64, 64)], 2) == [((64, 64),), ((64, 64), (64, 64))], "no more are found"


def test_calibration_writes_the_patched_step_and_what_it_saves(plan: Any, tmp_path: Path) -> None:
    small = plan(shapes=grid([(64, 64), (128, 64)], [1]), repeats=1, steps_timed=1, patches=(64, 2))
    done = complete(small, tmp_path)
    assert done.profile.patched is not None
    assert done.profile.patched.side == 64
    assert done.profile.patched.step_s([(64, 64)], 64) > 0
    page = done.files[1].read_text()
    found = re.search(r"\| 1 of 64×64, 1 of 128×64 \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \| (-?\d+) % \|", page)
    assert found is not None
    here, turns, saved = map(float, found.groups())
    assert saved == pytest.approx(100 * (1 - here / turns), abs=1)
    assert "1 of 64×64 |" in page


@pytest.mark.parametrize(("family", "side"), [("sd3", 64), ("sdxl", 96)])
def test_patches_that_cannot_be_measured_are_refused_at_once(plan: Any, tmp_path: Path, family: str, side: int) -> None:
    with pytest.raises(BackendError, match=rf"patches of {side} px: {family} .*leave --patches out"):
        complete(plan(family, patches=(side, 2)), tmp_path)
