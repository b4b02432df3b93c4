"""Stable Diffusion XL: a UNet conditioned on two CLIP text encoders and on the image size."""

from collections.abc import Mapping
from typing import Any

import torch

from backends.diffusers_.conditioning import Tensors
from backends.diffusers_.families.base import Family, Inputs, Prompts
from backends.diffusers_.families.unet import halves, predict, steering
from backends.diffusers_.patches import unet as patches


def encode(pipe: Any, prompts: Prompts) -> tuple[Tensors, Tensors | None]:
    hidden, no_hidden, pooled, no_pooled = pipe.encode_prompt(
        prompts.texts,
        device=pipe.device,
        num_images_per_prompt=1,
        do_classifier_free_guidance=prompts.guided,
    )
    positive = {"hidden": hidden, "text_embeds": pooled}
    return positive, {"hidden": no_hidden, "text_embeds": no_pooled} if prompts.guided else None


def inputs(pipe: Any, rows: Mapping[str, torch.Tensor], latents: torch.Tensor, guidance: float) -> Inputs:
    """Original size, crop and target size are those of an image that was never cropped."""
    height, width = (side * pipe.vae_scale_factor for side in latents.shape[-2:])
    pooled = rows["text_embeds"]
    size = torch.tensor([height, width, 0, 0, height, width]).to(device=pooled.device, dtype=pooled.dtype)
    return {**rows, "time_ids": size.repeat(pooled.shape[0], 1)}


SDXL = Family(
    "unet", 8, encode, predict, steering, inputs, upcasts_vae=True, predict_patched=patches.predict, halves=halves
)
"""``StableDiffusionXLPipeline`` (Podell et al., 2023, arXiv 2307.01952)."""
