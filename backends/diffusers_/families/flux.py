"""FLUX.1: a joint transformer on 2x2 packed latents, guidance fed in as an embedding (one pass a step).

Latents stay (n, c, h, w) between steps, so that their size can be read off them; packing is a reordering and commutes
with the solver's arithmetic.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mezzotint.backends.diffusers_.addons.residuals import Residuals, StepInput
from mezzotint.backends.diffusers_.autoencoder import to_latents
from mezzotint.backends.diffusers_.conditioning import Tensors
from mezzotint.backends.diffusers_.families.base import Family, Inputs, Steering


def encode(pipe: Any, prompts: list[str], guided: bool, tokens: int) -> tuple[Tensors, Tensors | None]:
    hidden, pooled, _ = pipe.encode_prompt(prompts, None, device=pipe.device, max_sequence_length=tokens)
    return {"hidden": hidden, "pooled": pooled}, None


def inputs(pipe: Any, rows: Mapping[str, torch.Tensor], latents: torch.Tensor, guidance: float) -> Inputs:
    batch, _, height, width = latents.shape
    hidden = rows["hidden"]
    ids = torch.zeros(height // 2, width // 2, 3, device=hidden.device, dtype=hidden.dtype)
    ids[..., 1] += torch.arange(height // 2, device=hidden.device)[:, None]
    ids[..., 2] += torch.arange(width // 2, device=hidden.device)[None, :]
    return {
        **rows,
        "txt_ids": torch.zeros(hidden.shape[1], 3, device=hidden.device, dtype=hidden.dtype),
        "img_ids": ids.reshape(-1, 3),
        "guidance": torch.full((batch,), guidance, device=hidden.device, dtype=torch.float32),
    }


def predict(pipe: Any, step: StepInput, residuals: Residuals | None) -> torch.Tensor:
    predicted: torch.Tensor = pipe.transformer(
        **_arguments(pipe.transformer, step),
        controlnet_block_samples=None if residuals is None else residuals.blocks or None,
        controlnet_single_block_samples=None if residuals is None else residuals.rest or None,
    )[0]
    return _unpacked(predicted, step.x.shape[-2], step.x.shape[-1])


def _hint(pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
    if net.input_hint_block is not None:  # this kind of ControlNet reads pixels
        return (pixels * 2 - 1).to(device=net.device, dtype=net.dtype)
    return _packed(to_latents(pipe.vae, pixels * 2 - 1)).to(device=net.device, dtype=net.dtype)


def _run(net: Any, step: StepInput, hint: torch.Tensor) -> Residuals:
    blocks, singles = net(**_arguments(net, step), controlnet_cond=hint)
    return Residuals(tuple(blocks or ()), tuple(singles or ()))


def _arguments(net: Any, step: StepInput) -> dict[str, Any]:
    x, inputs = step.x, step.inputs
    return {
        "hidden_states": _packed(x),
        "timestep": step.t.expand(x.shape[0]).to(x.dtype) / 1000,
        "guidance": inputs["guidance"] if net.config.guidance_embeds else None,
        "pooled_projections": inputs["pooled"],
        "encoder_hidden_states": inputs["hidden"],
        "txt_ids": inputs["txt_ids"],
        "img_ids": inputs["img_ids"],
        "return_dict": False,
    }


def _packed(latents: torch.Tensor) -> torch.Tensor:
    batch, channels, height, width = latents.shape
    patches = latents.view(batch, channels, height // 2, 2, width // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return patches.reshape(batch, (height // 2) * (width // 2), channels * 4)


def _unpacked(tokens: torch.Tensor, height: int, width: int) -> torch.Tensor:
    batch, _, features = tokens.shape
    patches = tokens.view(batch, height // 2, width // 2, features // 4, 2, 2).permute(0, 3, 1, 4, 2, 5)
    return patches.reshape(batch, features // 4, height, width)


FLUX = Family(
    "transformer",
    16,
    encode,
    predict,
    Steering(_hint, _run),
    inputs,
    sigmas=lambda steps: np.linspace(1.0, 1 / steps, steps),
    two_passes=False,
    packs=2,
)
"""``FluxPipeline`` (Black Forest Labs, 2024, model card of FLUX.1-dev)."""
