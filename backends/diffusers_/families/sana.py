"""SANA: a linear-attention transformer on 32x compressed latents, prompts read by Gemma 2.

Prompts are encoded without the paper's instruction to the language model ("complex human instruction"), and latents
are kept in float32, as the stock pipeline does.
"""

from collections.abc import Mapping
from typing import Any

import torch

from mezzotint.backends.diffusers_.addons.residuals import Residuals, StepInput
from mezzotint.backends.diffusers_.conditioning import Tensors
from mezzotint.backends.diffusers_.families.base import Family, Inputs


def encode(pipe: Any, prompts: list[str], guided: bool, tokens: int) -> tuple[Tensors, Tensors | None]:
    encoded = pipe.encode_prompt(prompts, guided, device=pipe.device, max_sequence_length=tokens)
    hidden, mask, no_hidden, no_mask = encoded
    return {"hidden": hidden, "mask": mask}, {"hidden": no_hidden, "mask": no_mask} if guided else None


def inputs(pipe: Any, rows: Mapping[str, torch.Tensor], latents: torch.Tensor, guidance: float) -> Inputs:
    return {**rows, "hidden": rows["hidden"].to(pipe.transformer.dtype)}


def predict(pipe: Any, step: StepInput, residuals: Residuals | None) -> torch.Tensor:
    predicted: torch.Tensor = pipe.transformer(
        step.x.to(pipe.transformer.dtype),
        encoder_hidden_states=step.inputs["hidden"],
        encoder_attention_mask=step.inputs["mask"],
        timestep=step.t.expand(step.x.shape[0]) * pipe.transformer.config.timestep_scale,
        return_dict=False,
    )[0].float()
    return predicted[:, : step.x.shape[1]]  # some variants also predict a variance


SANA = Family("transformer", 32, encode, predict, inputs=inputs, float32_latents=True)
"""``SanaPipeline`` (Xie et al., 2024, arXiv 2410.10629)."""
