"""Seconds of batches of patches: a planted line is found again."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("diffusers")

from mezzotint.backends.calibrate.patches import Batches, measure
from mezzotint.backends.diffusers_ import ModelSpec, build
from mezzotint.backends.patched import PatchTiming


def test_patched_batch_times_fit_the_planted_line() -> None:
    true = PatchTiming(side=64, base_s=0.02, patch_s=0.004, size_s=0.01, halo_s=0.001, source="made up")
    found = measure(
        build(ModelSpec("sdxl", scale="tiny", seed=7)), [(64, 64), (128, 64), (128, 128)], 64, 3, batches=8, steps=1
    )
    assert len(found.sizes) == 8
    assert (found.seconds > 0).all()
    made = Batches(64, found.sizes, np.array([true.step_s(batch, 64) for batch in found.sizes]))
    timing, error = made.fit()
    assert error < 1e-9
    for batch in [((64, 64),), ((128, 128), (64, 64)), ((128, 64),) * 5]:
        assert timing.step_s(batch, 64) == pytest.approx(true.step_s(batch, 64))
