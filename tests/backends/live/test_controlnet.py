"""ControlNets steer the image, inline or beside the encoder, with LoRAs merged in place between two steps.

The oracle is the stock way: diffusers' pipelines, inline ControlNets, and LoRAs attached and fused by PEFT.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.diffusers_ import build  # noqa: E402
from mezzotint.backends.diffusers_.addons.controlnet import (  # noqa: E402
    Control,
    RemoteControlNets,
    control,
    inline,
    open_controlnet,
    random_controlnet,
)
from mezzotint.backends.diffusers_.addons.lora import Loras, read_lora, write_random_lora  # noqa: E402

STEPS = 5
BOUND = 2
"""Levels of 255 by which a pixel may differ from that of the stock way."""
PICTURE = np.arange(64 * 64 * 3, dtype=np.uint32).reshape(64, 64, 3).astype(np.uint8)


def _control(model: Any, guided: bool, seed: int, batch: int = 1, width: int = 64) -> Control:
    return control(model, random_controlnet(model, seed=seed), [PICTURE] * batch, width, 64, guided)


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


@pytest.fixture(params=["sd15", "sdxl"])
def own(request: pytest.FixtureRequest, tiny: dict[str, Any]) -> Any:
    return build(replace(tiny[request.param].spec))


def _controls(model: Any, nets: int, guided: bool, width: int = 64) -> list[Control]:
    return [_control(model, guided, seed, width=width) for seed in range(nets)]


def _lora(model: Any, folder: Path, seed: int) -> Any:
    path = folder / f"style{seed}.safetensors"
    write_random_lora(model, path, rank=4, seed=seed, std=0.3)
    return read_lora(path, f"style{seed}")


def _image(model: Any, latents: Any) -> np.ndarray:
    return model.decode(latents)[0].astype(np.int16)


@pytest.mark.parametrize(("nets", "width"), [(1, 64), (3, 64), (1, 104)])
def test_remote_controlnets_give_the_inline_image(own: Any, nets: int, width: int) -> None:
    """Covers a size that is no multiple of the factor by which the blocks downsample."""
    conditioning, start = own.encode(["a house"]), own.noise(width, 64, [1], STEPS)
    controls = _controls(own, nets, conditioning.guided, width)
    in_line = own.denoise(conditioning, start, STEPS, predict=inline(controls)).latents
    remote = RemoteControlNets(controls)
    remotely = own.denoise(conditioning, start, STEPS, predict=remote).latents
    torch.testing.assert_close(remotely, in_line, rtol=1e-5, atol=1e-5)
    assert np.abs(_image(own, remotely) - _image(own, in_line)).max() <= BOUND
    assert len(remote.parts) == STEPS
    assert all(len(parts.controlnet_s) == nets and parts.elsewhere_s > 0 for parts in remote.parts)
    assert not torch.allclose(remotely, own.denoise(conditioning, start, STEPS).latents, atol=1e-3)


def test_lora_merged_mid_run_gives_the_image_of_a_fused_one(own: Any, tmp_path: Path) -> None:
    """With a remote ControlNet and two LoRAs; afterwards the weights are the same, to the bit."""
    weights = [_lora(own, tmp_path, seed) for seed in (1, 2)]
    conditioning, start = own.encode(["a fox"]), own.noise(64, 64, [1], STEPS)
    controls = _controls(own, 1, conditioning.guided)
    before = {name: each.clone() for name, each in own.denoiser.state_dict().items()}
    loras, boundary = Loras(own), STEPS // 2

    def run(patch: Any, residuals: Any) -> Any:
        def at(done: int, _: Any) -> None:
            if done == boundary:
                patch()

        return own.denoise(conditioning, start, STEPS, capture=(boundary,), predict=residuals, on_step=at)

    merged = run(lambda: loras.merge(weights), RemoteControlNets(controls))
    assert loras.restore() >= 0
    after = own.denoiser.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    fused = run(lambda: loras.patch(weights), inline(controls))
    loras.clear()
    torch.testing.assert_close(merged.captured[boundary], fused.captured[boundary], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(merged.latents, fused.latents, rtol=1e-3, atol=1e-3)
    assert np.abs(_image(own, merged.latents) - _image(own, fused.latents)).max() <= BOUND
    plain = own.denoise(conditioning, start, STEPS, predict=inline(controls))
    assert not torch.allclose(merged.latents, plain.latents, atol=1e-3)


def test_unsupported_family_or_unfit_lora_is_refused(own: Any, tiny: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="use sd15 or sdxl"):
        RemoteControlNets(_controls(tiny["flux"], 1, guided=False))
    weights, loras = _lora(own, tmp_path, 1), Loras(own)
    other = tiny["sdxl" if own.spec.family == "sd15" else "sd15"]
    before = {name: each.clone() for name, each in own.denoiser.state_dict().items()}
    with pytest.raises(BackendError, match="does not fit"):
        loras.merge([weights, _lora(other, tmp_path, 2)])
    assert all(torch.equal(own.denoiser.state_dict()[name], weight) for name, weight in before.items())
    with pytest.raises(BackendError, match="changes no layer"):
        loras.merge([replace(weights, name="none", tensors={})])
