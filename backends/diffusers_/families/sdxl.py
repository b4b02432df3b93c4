"""Stable Diffusion XL: a UNet conditioned on two CLIP text encoders and on the image size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from backends.diffusers_.conditioning import Tensors
from backends.diffusers_.families.unet import run_controlnet, run_unet
from backends.diffusers_.residuals import Residuals


class SDXL:
    """Adapter of ``StableDiffusionXLPipeline`` (Podell et al., 2023, arXiv 2307.01952)."""

    denoiser = "unet"
    pixel_multiple = 8
    upcasts_vae = True

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
        hidden, no_hidden, pooled, no_pooled = pipe.encode_prompt(
            list(prompts),
            device=pipe.device,
            num_images_per_prompt=1,
            do_classifier_free_guidance=guided,
            negative_prompt=chosen,
        )
        positive = {"hidden": hidden, "pooled": pooled}
        return positive, {"hidden": no_hidden, "pooled": no_pooled} if guided else None

    def inputs(
        self, pipe: Any, rows: Mapping[str, torch.Tensor], latents: torch.Tensor, guidance: float
    ) -> dict[str, torch.Tensor]:
        height, width = (side * pipe.vae_scale_factor for side in latents.shape[-2:])
        size = torch.tensor([height, width, 0, 0, height, width])
        pooled = rows["pooled"]
        sizes = size.to(device=pooled.device, dtype=pooled.dtype).repeat(pooled.shape[0], 1)
        return {**rows, "time_ids": sizes}

    def predict(
        self,
        pipe: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        residuals: Residuals | None,
    ) -> torch.Tensor:
        return run_unet(pipe.unet, x, t, inputs["hidden"], _added(inputs), residuals)

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
        return run_controlnet(net, x, t, inputs["hidden"], _added(inputs), hint, scale)


def _added(inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"text_embeds": inputs["pooled"], "time_ids": inputs["time_ids"]}
