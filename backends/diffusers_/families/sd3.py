"""Stable Diffusion 3 and 3.5: a joint transformer over image and text tokens, trained by flow matching."""

from typing import Any

import torch

from mezzotint.backends.diffusers_.addons.residuals import Residuals, StepInput
from mezzotint.backends.diffusers_.autoencoder import to_latents
from mezzotint.backends.diffusers_.conditioning import Tensors
from mezzotint.backends.diffusers_.families.base import Family, Steering


def encode(pipe: Any, prompts: list[str], guided: bool, tokens: int) -> tuple[Tensors, Tensors | None]:
    options = {"device": pipe.device, "do_classifier_free_guidance": guided, "max_sequence_length": tokens}
    hidden, no_hidden, pooled, no_pooled = pipe.encode_prompt(prompts, None, None, **options)
    positive = {"hidden": hidden, "pooled": pooled}
    return positive, {"hidden": no_hidden, "pooled": no_pooled} if guided else None


def predict(pipe: Any, step: StepInput, residuals: Residuals | None) -> torch.Tensor:
    blocks = None if residuals is None else residuals.blocks
    predicted: torch.Tensor = pipe.transformer(**_arguments(step), block_controlnet_hidden_states=blocks)[0]
    return predicted


def _hint(pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
    latents = to_latents(pipe.vae, pixels * 2 - 1)
    if net.config.force_zeros_for_pooled_projection:  # these were trained on latents without the shift
        latents = latents + pipe.vae.config.shift_factor * pipe.vae.config.scaling_factor
    return latents.to(device=net.device, dtype=net.dtype)


def _run(net: Any, step: StepInput, hint: torch.Tensor) -> Residuals:
    arguments = _arguments(step)
    if net.config.force_zeros_for_pooled_projection:
        arguments["pooled_projections"] = torch.zeros_like(arguments["pooled_projections"])
    return Residuals(tuple(net(**arguments, controlnet_cond=hint)[0]))


def _arguments(step: StepInput) -> dict[str, Any]:
    return {
        "hidden_states": step.x,
        "timestep": step.t.expand(step.x.shape[0]),
        "encoder_hidden_states": step.inputs["hidden"],
        "pooled_projections": step.inputs["pooled"],
        "return_dict": False,
    }


SD3 = Family("transformer", 16, encode, predict, Steering(_hint, _run))
"""``StableDiffusion3Pipeline`` (Esser et al., 2024, arXiv 2403.03206)."""
