"""Stable Diffusion 1.x and 2.x: a UNet conditioned on one CLIP text encoder."""

from typing import Any

from backends.diffusers_.conditioning import Tensors
from backends.diffusers_.families.base import Family, Prompts
from backends.diffusers_.families.unet import halves, predict, steering
from backends.diffusers_.patches import unet as patches


def encode(pipe: Any, prompts: Prompts) -> tuple[Tensors, Tensors | None]:
    positive, negative = pipe.encode_prompt(prompts.texts, pipe.device, 1, prompts.guided)
    return {"hidden": positive}, {"hidden": negative} if prompts.guided else None


SD15 = Family("unet", 8, encode, predict, steering, predict_patched=patches.predict, halves=halves)
"""``StableDiffusionPipeline`` (Rombach et al., 2022, arXiv 2112.10752)."""
