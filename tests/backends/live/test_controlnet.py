"""ControlNets in the loop steer the image; the stock pipelines are the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.diffusers_.addons.controlnet import (  # noqa: E402
    Control,
    control,
    inline,
    open_controlnet,
    random_controlnet,
)

STEPS = 5
PICTURE = np.arange(64 * 64 * 3, dtype=np.uint32).reshape(64, 64, 3).astype(np.uint8)


def _control(model: Any, guided: bool, seed: int, batch: int = 1) -> Control:
    return control(model, random_controlnet(model, seed=seed), [PICTURE] * batch, 64, 64, guided)


@pytest.mark.parametrize("family", ["sd15", "sdxl", "sd3", "flux"])
def test_controlnet_order_does_not_change_the_latents(tiny: dict[str, Any], family: str) -> None:
    model = tiny[family]
    conditioning, start = model.encode(["a house", "a boat"]), model.noise(64, 64, [1, 2], STEPS)
    nets = [_control(model, conditioning.guided, seed, 2) for seed in range(3)]
    some, one, other, without = (
        model.denoise(conditioning, start, STEPS, predict=inline(chosen) if chosen else None).latents
        for chosen in (nets[:1], nets, nets[::-1], [])
    )
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(one, some, atol=1e-3)
    assert not torch.allclose(some, without, atol=1e-3)


@pytest.mark.parametrize("family", ["sd15", "sdxl"])
def test_inline_controlnet_equals_the_stock_pipeline(tiny: dict[str, Any], family: str) -> None:
    model = tiny[family]
    steered = _control(model, guided=True, seed=3)
    stock = {
        "sd15": "StableDiffusionControlNetPipeline",
        "sdxl": "StableDiffusionXLControlNetPipeline",
    }[family]
    pipe = getattr(diffusers, stock)(**model.pipe.components, controlnet=steered.controlnet.net)
    pipe.set_progress_bar_config(disable=True)
    pipe.scheduler.set_timesteps(STEPS)
    start = model.noise(64, 64, [5], STEPS)
    theirs = pipe(
        "a house",
        image=torch.from_numpy(PICTURE).permute(2, 0, 1)[None].float() / 255,
        width=64,
        height=64,
        num_inference_steps=STEPS,
        guidance_scale=model.architecture.guidance,
        latents=start / pipe.scheduler.init_noise_sigma,
        output_type="latent",
    ).images
    ours = model.denoise(model.encode(["a house"]), start, STEPS, predict=inline([steered])).latents
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_resume_with_a_controlnet_equals_the_full_run(tiny: dict[str, Any]) -> None:
    model = tiny["sdxl"]
    conditioning = model.encode(["a house"])
    source = inline([_control(model, True, 0)])
    full = model.denoise(conditioning, model.noise(64, 64, [1], STEPS), STEPS, capture=(2,), predict=source)
    rest = model.denoise(conditioning, full.captured[2], STEPS, 2, predict=source)
    assert torch.equal(rest.latents, full.latents)


@pytest.mark.parametrize("family", ["sd15", "flux"])
def test_saved_controlnet_round_trips(tiny: dict[str, Any], tmp_path: Path, family: str) -> None:
    model = tiny[family]
    made = random_controlnet(model, seed=2)
    made.net.save_pretrained(str(tmp_path))
    read = open_controlnet(model, tmp_path)
    conditioning, start = model.encode(["a house"]), model.noise(64, 64, [1], STEPS)
    ours, theirs = (
        model.denoise(
            conditioning,
            start,
            STEPS,
            predict=inline([control(model, net, [PICTURE], 64, 64, conditioning.guided)]),
        ).latents
        for net in (made, read)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    with pytest.raises(BackendError, match="no config"):
        open_controlnet(model, tmp_path / "absent")


def test_family_without_controlnets_is_refused(tiny: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match="has no ControlNet here"):
        random_controlnet(tiny["sana"])
