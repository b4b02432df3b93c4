"""Similarity of blocks from step to step: the shares match their definition, and a run reads the file."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.calibrate.likeness import PROMPTS, blocks, measure  # noqa: E402
from mezzotint.backends.calibrate.patches import Batches  # noqa: E402
from mezzotint.backends.calibrate.patches import measure as measure_batches  # noqa: E402
from mezzotint.backends.diffusers_ import ModelSpec, build  # noqa: E402
from mezzotint.backends.patched import PatchTiming  # noqa: E402
from mezzotint.sim.cli import main  # noqa: E402
from tests.sim.lab import simulated  # noqa: E402

STEPS = 5


@pytest.fixture(scope="module")
def sdxl() -> Any:
    """Treat as read-only."""
    return build(ModelSpec("sdxl", scale="tiny", seed=7))


def by_hand(model: Any, threshold: float) -> tuple[list[float], list[float]]:
    """Keep every input of every block, and compare every 64 px patch of 128x128 in a loop."""
    seen: list[list[np.ndarray]] = []

    def keep(module: Any, args: Any, given: Any) -> None:
        seen[-1].append((given.get("hidden_states", args[0] if args else None)).float().numpy().copy())

    handles = [block.register_forward_pre_hook(keep, with_kwargs=True) for block in blocks(model)]
    seen.append([])
    model.denoise(
        model.encode([PROMPTS[0]]), model.noise(128, 128, [0], STEPS), STEPS, on_step=lambda *_: seen.append([])
    )
    for handle in handles:
        handle.remove()
    patches, whole = [0.0], [0.0]
    for before, now in itertools.pairwise(seen[:STEPS]):
        alike = []
        for x, y in zip(before, now, strict=True):
            half = x.shape[-1] // 2
            for row in range(2):  # without and with guidance
                cells = [
                    ((x - y)[row, :, top : top + half, left : left + half] ** 2).mean() <= threshold
                    for top in (0, half)
                    for left in (0, half)
                ]
                alike.append(cells)
        patches.append(float(np.mean(alike)))
        whole.append(float(np.mean(np.all(alike, axis=1))))
    return patches, whole


def test_similarity_shares_match_a_comparison_patch_by_patch(sdxl: Any) -> None:
    for threshold in (0.1, 0.02):
        found = measure(sdxl, "sdxl-tiny", 128, 128, 64, threshold, STEPS, 1)
        patches, whole = by_hand(sdxl, threshold)
        np.testing.assert_allclose(found.patch_share, patches, atol=1e-6)
        np.testing.assert_allclose(found.image_share, whole, atol=1e-6)
        assert found.blocks == 5
    assert 0 < sum(patches) < STEPS - 1, "a threshold that tells patches apart"
    assert not sdxl.denoiser.mid_block._forward_pre_hooks, "the network is left as it was"


def test_indivisible_patches_or_unknown_blocks_are_refused(sdxl: Any) -> None:
    with pytest.raises(BackendError, match="have to divide 96x96"):
        measure(sdxl, "sdxl-tiny", 96, 96, 64, 0.1, 2, 1)
    with pytest.raises(BackendError, match="multiples of 16 px"):
        measure(sdxl, "sdxl-tiny", 64, 64, 8, 0.1, 2, 1)
    with pytest.raises(BackendError, match="which blocks can be left out"):
        blocks(build(ModelSpec("flux", scale="tiny")))


def test_run_reads_the_written_feature_similarity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "likeness.json"
    words = ["sd3", "--scale", "tiny", "--sizes", "64,128", "--steps", "4", "--images", "1", "--threshold", "0.02"]
    assert main(["calibrate", "feature-similarity", *words, "--device", "cpu", "-o", str(path)]) == 0
    assert "sd3-tiny 128x128:" in capsys.readouterr().out
    facts = json.loads(path.read_text())
    assert [row["width"] for row in facts["rows"]] == [64, 128]
    assert "random weights" in facts["measured_on"]
    asked = ("models=sdxl", "cluster=h100", "trace=mix", "trace.requests=20", "arrivals.rate_rpm=20")
    ran = ("executor=continuous-batching", "extrapolate=warn", "feature_cache=patch-level-measured")
    read = (f"feature_cache.likeness.path={path}", "+feature_cache.likeness.names.sdxl=sd3-tiny")
    assumptions = simulated(*asked, *ran, *read).summary["assumptions"]
    assert any(str(each["source"]).startswith("sd3 (tiny, random weights") for each in assumptions)
    assert main(["calibrate", "feature-similarity", *words, "--sizes", "64,x"]) == 2
    assert "--sizes: found '64,x'" in capsys.readouterr().err


def test_patched_batch_times_fit_the_planted_line(sdxl: Any) -> None:
    true = PatchTiming(side=64, base_s=0.02, patch_s=0.004, size_s=0.01, halo_s=0.001, source="made up")
    found = measure_batches(sdxl, [(64, 64), (128, 64), (128, 128)], 64, 3, batches=8, steps=1)
    assert len(found.sizes) == 8
    assert (found.seconds > 0).all()
    made = Batches(64, found.sizes, np.array([true.step_s(batch, 64) for batch in found.sizes]))
    timing, error = made.fit()
    assert error < 1e-9
    for batch in [((64, 64),), ((128, 128), (64, 64)), ((128, 64),) * 5]:
        assert timing.step_s(batch, 64) == pytest.approx(true.step_s(batch, 64))
