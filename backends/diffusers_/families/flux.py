"""FLUX.1: a joint transformer on 2x2 packed latents, guidance fed in as an embedding (one pass a step)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from backends.diffusers_.autoencoder import to_latents
from backends.diffusers_.conditioning import Tensors
from backends.diffusers_.residuals import Residuals


class Flux:
    """Adapter of ``FluxPipeline`` (Black Forest Labs, 2024, model card of FLUX.1-dev).

    Latents stay (n, c, h, w) between steps, so that their size can be read off them; packing is a reordering
    and commutes with the solver's arithmetic.
    """

    denoiser = "transformer"
    pixel_multiple = 16
    upcasts_vae = False

    def latent_channels(self, pipe: Any) -> int:
        return int(pipe.transformer.config.in_channels) // 4

    def latent_dtype(self, pipe: Any) -> torch.dtype:
        dtype: torch.dtype = pipe.transformer.dtype
        return dtype

    def guided(self, guidance: float) -> bool:
        return False

    def sigmas(self, steps: int) -> np.ndarray | None:
        return np.linspace(1.0, 1 / steps, steps)

    def tokens(self, pipe: Any, latents: torch.Tensor) -> int:
        return int((latents.shape[-1] // 2) * (latents.shape[-2] // 2))

    def encode(
        self,
        pipe: Any,
        prompts: Sequence[str],
        negatives: Sequence[str] | None,
        guided: bool,
        text_tokens: int,
    ) -> tuple[Tensors, Tensors | None]:
        hidden, pooled, _ = pipe.encode_prompt(list(prompts), None, device=pipe.device, max_sequence_length=text_tokens)
        return {"hidden": hidden, "pooled": pooled}, None

    def inputs(
        self, pipe: Any, rows: Mapping[str, torch.Tensor], latents: torch.Tensor, guidance: float
    ) -> dict[str, torch.Tensor]:
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

    def predict(
        self,
        pipe: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        residuals: Residuals | None,
    ) -> torch.Tensor:
        predicted: torch.Tensor = pipe.transformer(
            **_arguments(pipe.transformer, x, t, inputs),
            controlnet_block_samples=None if residuals is None else residuals.blocks or None,
            controlnet_single_block_samples=None if residuals is None else residuals.rest or None,
        )[0]
        return _unpacked(predicted, x.shape[-2], x.shape[-1])

    def hint(self, pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
        if net.input_hint_block is not None:  # this kind of ControlNet reads pixels
            return (pixels * 2 - 1).to(device=net.device, dtype=net.dtype)
        return _packed(to_latents(pipe.vae, pixels * 2 - 1)).to(device=net.device, dtype=net.dtype)

    def control(
        self,
        net: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        hint: torch.Tensor,
        scale: float,
    ) -> Residuals:
        blocks, singles = net(**_arguments(net, x, t, inputs), controlnet_cond=hint, conditioning_scale=scale)
        return Residuals(tuple(blocks or ()), tuple(singles or ()))


def _arguments(net: Any, x: torch.Tensor, t: torch.Tensor, inputs: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    return {
        "hidden_states": _packed(x),
        "timestep": t.expand(x.shape[0]).to(x.dtype) / 1000,
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
