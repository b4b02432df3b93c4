"""SwiftDiffusion on a real pipeline: ControlNets beside the encoder, LoRAs merged in place between two steps.

The oracle is the stock way: inline ControlNets, LoRAs attached and fused by PEFT.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("peft")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.diffusers_ import build  # noqa: E402
from mezzotint.backends.diffusers_.addons.controlnet import (  # noqa: E402
    Control,
    RemoteControlNets,
    control,
    inline,
    random_controlnet,
)
from mezzotint.backends.diffusers_.addons.lora import Loras, read_lora, write_random_lora  # noqa: E402

STEPS = 4
BOUND = 2
"""Levels of 255 by which a pixel may differ from that of the stock way."""

PICTURE = np.arange(64 * 64 * 3, dtype=np.uint32).reshape(64, 64, 3).astype(np.uint8)


@pytest.fixture(params=["sd15", "sdxl"])
def own(request: pytest.FixtureRequest, tiny: dict[str, Any]) -> Any:
    return build(replace(tiny[request.param].spec))


def _controls(model: Any, nets: int, guided: bool, width: int = 64) -> list[Control]:
    return [control(model, random_controlnet(model, seed=seed), [PICTURE], width, 64, guided) for seed in range(nets)]


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
