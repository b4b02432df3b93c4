"""Patches of images of several sizes in one pass give what whole images give, operator by operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("peft")

from mezzotint.backends.base import BackendError, Patching, Work  # noqa: E402
from mezzotint.backends.diffusers_.patches import arrange, convolve, normalise  # noqa: E402
from tests.backends.live.test_stages import STEPS, close, image, live, work  # noqa: E402

grids = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=3)


def images(sizes: list[tuple[int, int, int]], side: int, channels: int = 8) -> list[Any]:
    drawn = torch.Generator().manual_seed(0)
    return [torch.randn(n, channels, down * side, across * side, generator=drawn) for n, down, across in sizes]


@settings(max_examples=25)
@given(sizes=grids, side=st.sampled_from([1, 2, 4]))
def test_patch_split_and_join_invert_and_halos_hold_neighbours(sizes: list[tuple[int, int, int]], side: int) -> None:
    whole = images(sizes, side)
    cut = arrange([(x.shape[0], *x.shape[-2:]) for x in whole], side)
    patches = cut.split(whole)
    assert all((back == x).all() for back, x in zip(cut.join(patches), whole, strict=True))
    haloed = cut.split(whole, halo=1)
    at = 0
    for x in whole:
        padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
        for row in padded:
            for top in range(0, x.shape[-2], side):
                for left in range(0, x.shape[-1], side):
                    assert (haloed[at] == row[:, top : top + side + 2, left : left + side + 2]).all()
                    at += 1
    assert at == len(patches)


@settings(max_examples=15)
@given(sizes=grids, stride=st.sampled_from([1, 2]))
def test_patched_convolutions_and_norms_equal_whole_image_ones(sizes: list[tuple[int, int, int]], stride: int) -> None:
    torch.manual_seed(1)
    whole = images(sizes, 4)
    cut = arrange([(x.shape[0], *x.shape[-2:]) for x in whole], 4)
    conv = torch.nn.Conv2d(8, 6, 3, stride, 1)
    norm = torch.nn.GroupNorm(4, 8)
    torch.nn.init.normal_(norm.weight)
    for operator, mine in ((conv, convolve(conv, cut)), (norm, normalise(norm, cut))):
        with torch.no_grad():
            made = cut.join(mine(cut.split(whole) * 3 + 1))
            for ours, x in zip(made, whole, strict=True):
                torch.testing.assert_close(ours, operator(x * 3 + 1), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def backend() -> Any:
    """Treat as read-only."""
    return live()


@pytest.mark.parametrize("model", ["sdxl", "sd15"])
def test_mixed_sizes_in_patches_give_the_images_of_single_runs(backend: Any, model: str) -> None:
    """Images equal those of single runs up to the order of sums: no border of a patch is visible."""
    assert isinstance(backend, Patching)
    small, large, wide = work(model, 1), work(model, 2, side=128), Work(model, 128, 64, STEPS + 2, row=0)
    alone = [
        image(backend, each) for each in (work(model, 1), work(model, 2, side=128), Work(model, 128, 64, 8, row=0))
    ]
    backend.begin([small])
    backend.patched([small], 64, 2)
    backend.begin([large, wide])
    cost = backend.patched([large, small, wide], 64)
    backend.patched([wide, small, large], 32, 3)
    backend.end([small])
    backend.patched([large, wide], 64, 2)
    backend.end([large])
    backend.patched([wide], 32, 2)
    backend.end([wide])
    assert cost.seconds > 0
    for made, wanted in zip((small, large, wide), alone, strict=True):
        assert made.made.shape == wanted.shape
        assert close(made.made, wanted)
    assert backend.largest_cut(model) == {64: 3, 32: 3}
    assert "forward" not in vars(backend.model(model).denoiser.conv_in), "the network is left as it was"


def test_patched_step_is_one_forward_pass_and_keeps_its_latents(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    works = [work("sdxl", 0, capture={10: 2}), work("sdxl", 1, side=128)]
    backend.begin(works)
    backend.patched(works, 64)
    rows = []
    unet = backend.model("sdxl").denoiser
    monkeypatch.setattr(unet, "forward", lambda x, *a, __f=unet.forward, **k: rows.append(x.shape) or __f(x, *a, **k))
    backend.patched(works, 64)
    assert [tuple(shape) for shape in rows] == [(2 * (1 + 4), 4, 8, 8)], "guidance doubles five patches"
    kept = works[0].state.kept[2]
    np.testing.assert_array_equal(kept, works[0].state.latents.cpu())


def test_invalid_patch_size_is_refused(backend: Any) -> None:
    begun = work("sdxl", side=128)
    backend.begin([begun])
    with pytest.raises(BackendError, match="expected a multiple of 8"):
        backend.patched([begun], 100)
    with pytest.raises(BackendError, match="do not divide an image of 16x16"):
        backend.patched([begun], 96)
    with pytest.raises(BackendError, match="larger power of two"):
        backend.patched([begun], 8)
    other = work("sana")
    backend.begin([other])
    with pytest.raises(BackendError, match="sana cannot step images of several sizes"):
        backend.patched([other], 64)
    with pytest.raises(BackendError, match="a batch has one model"):
        backend.patched([begun, other], 64)
