"""Stable Diffusion 3 and 3.5: a joint transformer over image and text tokens, trained by flow matching."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from backends.diffusers_.autoencoder import to_latents
from backends.diffusers_.conditioning import Tensors
from backends.diffusers_.residuals import Residuals


class SD3:
    """Adapter of ``StableDiffusion3Pipeline`` (Esser et al., 2024, arXiv 2403.03206)."""

    denoiser = "transformer"
    pixel_multiple = 16
    upcasts_vae = False

    def latent_channels(self, pipe: Any) -> int:
        return int(pipe.transformer.config.in_channels)

    def latent_dtype(self, pipe: Any) -> torch.dtype:
        dtype: torch.dtype = pipe.transformer.dtype
        return dtype

    def guided(self, guidance: float) -> bool:
        return guidance > 1.0

    def sigmas(self, steps: int) -> np.ndarray | None:
        return None

    def tokens(self, pipe: Any, latents: torch.Tensor) -> int:
        patch = pipe.transformer.config.patch_size
        return int((latents.shape[-1] // patch) * (latents.shape[-2] // patch))

    def encode(
        self,
        pipe: Any,
        prompts: Sequence[str],
        negatives: Sequence[str] | None,
        guided: bool,
        text_tokens: int,
    ) -> tuple[Tensors, Tensors | None]:
        chosen = None if negatives is None else list(negatives)
        hidden, no_hidden, pooled, no_pooled = pipe.encode_prompt(
            list(prompts),
            None,
            None,
            device=pipe.device,
            do_classifier_free_guidance=guided,
            negative_prompt=chosen,
            max_sequence_length=text_tokens,
        )
        positive = {"hidden": hidden, "pooled": pooled}
        return positive, {"hidden": no_hidden, "pooled": no_pooled} if guided else None

    def inputs(
        self, pipe: Any, rows: Mapping[str, torch.Tensor], latents: torch.Tensor, guidance: float
    ) -> dict[str, torch.Tensor]:
        return dict(rows)

    def predict(
        self,
        pipe: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        residuals: Residuals | None,
    ) -> torch.Tensor:
        predicted: torch.Tensor = pipe.transformer(
            hidden_states=x,
            timestep=t.expand(x.shape[0]),
            encoder_hidden_states=inputs["hidden"],
            pooled_projections=inputs["pooled"],
            block_controlnet_hidden_states=None if residuals is None else residuals.blocks,
            return_dict=False,
        )[0]
        return predicted

    def hint(self, pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
        latents = to_latents(pipe.vae, pixels * 2 - 1)
        if net.config.force_zeros_for_pooled_projection:  # these were trained on latents without the shift
            latents = latents + pipe.vae.config.shift_factor * pipe.vae.config.scaling_factor
        return latents.to(device=net.device, dtype=net.dtype)

    def control(
        self,
        net: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        hint: torch.Tensor,
        scale: float,
    ) -> Residuals:
        pooled = inputs["pooled"]
        if net.config.force_zeros_for_pooled_projection:
            pooled = torch.zeros_like(pooled)
        blocks = net(
            hidden_states=x,
            timestep=t.expand(x.shape[0]),
            encoder_hidden_states=inputs["hidden"],
            pooled_projections=pooled,
            controlnet_cond=hint,
            conditioning_scale=scale,
            return_dict=False,
        )[0]
        return Residuals(tuple(blocks))
