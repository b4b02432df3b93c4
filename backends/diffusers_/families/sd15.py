"""Stable Diffusion 1.x and 2.x: a UNet conditioned on one CLIP text encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from backends.diffusers_.conditioning import Tensors
from backends.diffusers_.families.unet import run_controlnet, run_unet
from backends.diffusers_.residuals import Residuals


class SD15:
    """Adapter of ``StableDiffusionPipeline`` (Rombach et al., 2022, arXiv 2112.10752)."""

    denoiser = "unet"
    pixel_multiple = 8
    upcasts_vae = False

    def latent_channels(self, pipe: Any) -> int:
        return int(pipe.unet.config.in_channels)

    def latent_dtype(self, pipe: Any) -> torch.dtype:
        dtype: torch.dtype = pipe.unet.dtype
        return dtype

    def guided(self, guidance: float) -> bool:
        return guidance > 1.0

    def sigmas(self, steps: int) -> np.ndarray | None:
        return None

    def tokens(self, pipe: Any, latents: torch.Tensor) -> int:
        return int(latents.shape[-1] * latents.shape[-2])

    def encode(
        self,
        pipe: Any,
        prompts: Sequence[str],
        negatives: Sequence[str] | None,
        guided: bool,
        text_tokens: int,
    ) -> tuple[Tensors, Tensors | None]:
        chosen = None if negatives is None else list(negatives)
        positive, negative = pipe.encode_prompt(list(prompts), pipe.device, 1, guided, chosen)
        return {"hidden": positive}, {"hidden": negative} if guided else None

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
        return run_unet(pipe.unet, x, t, inputs["hidden"], None, residuals)

    def hint(self, pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
        return pixels.to(device=net.device, dtype=net.dtype)

    def control(
        self,
        net: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        hint: torch.Tensor,
        scale: float,
    ) -> Residuals:
        return run_controlnet(net, x, t, inputs["hidden"], None, hint, scale)
