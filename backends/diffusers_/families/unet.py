"""Stable Diffusion 1.x, 2.x and XL: a UNet, and a ControlNet that copies its first half.

SD1.x and 2.x are conditioned on one CLIP text encoder, SDXL on two and on the image size: its inputs also hold
``text_embeds`` and ``time_ids``, which both networks add to the timestep.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mezzotint.backends.diffusers_.families.base import Family, Residuals, StepInput, Tensors
from mezzotint.backends.diffusers_.patches import arrange, read_patches


def inputs(pipe: Any, rows: Tensors, latents: torch.Tensor, guidance: float) -> Tensors:
    """Original size, crop and target size are those of an image that was never cropped."""
    height, width = (side * pipe.vae_scale_factor for side in latents.shape[-2:])
    pooled = rows["text_embeds"]
    size = torch.tensor([height, width, 0, 0, height, width]).to(device=pooled.device, dtype=pooled.dtype)
    return {**rows, "time_ids": size.repeat(pooled.shape[0], 1)}


def predict(pipe: Any, step: StepInput, residuals: Residuals | None) -> torch.Tensor:
    extra: dict[str, Any] = {}
    if residuals is not None:
        extra["down_block_additional_residuals"] = residuals.blocks
        extra["mid_block_additional_residual"] = residuals.rest[0]
    predicted: torch.Tensor = pipe.unet(step.x, step.t, **_conditions(step), return_dict=False, **extra)[0]
    return predicted


def _run_controlnet(net: Any, step: StepInput, hint: torch.Tensor) -> Residuals:
    down, mid = net(step.x, step.t, **_conditions(step), controlnet_cond=hint, return_dict=False)
    return Residuals(tuple(down), (mid,))


def _conditions(step: StepInput) -> dict[str, Any]:
    added = {name: step.inputs[name] for name in ("text_embeds", "time_ids") if name in step.inputs}
    return {"encoder_hidden_states": step.inputs["hidden"], "added_cond_kwargs": added or None}


def predict_patched(pipe: Any, steps: Sequence[StepInput], side: int) -> list[torch.Tensor]:
    """Return the UNet's output for latents of each size, (rows, c, h, w), run as patches of ``side`` latents.

    Args:
        steps: the rows of each size, doubled under classifier-free guidance, as in Family.predict.
    """
    cut = arrange([(x.shape[0], *x.shape[-2:]) for x in (step.x for step in steps)], side, steps[0].x.device)
    times = torch.cat([step.t.expand(step.x.shape[0]) for step in steps])
    rows = {name: torch.cat([step.inputs[name] for step in steps]) for name in steps[0].inputs}
    # Time, size and pooled text are added pixel by pixel, so each patch has its image's; attention reads them by image.
    conditions = {name: tensor if name == "hidden" else tensor[cut.image] for name, tensor in rows.items()}
    with read_patches(pipe.unet, cut):
        patches = StepInput(cut.split([step.x for step in steps]), times[cut.image], conditions)
        return cut.join(predict(pipe, patches, None))


SD15 = Family(
    "StableDiffusionPipeline",
    "sd15",
    denoiser="unet",
    pixel_multiple=8,
    encoded=("hidden", "-hidden"),
    predict=predict,
    run_controlnet=_run_controlnet,
    predict_patched=predict_patched,
)
"""Rombach et al., 2022, arXiv 2112.10752."""

SDXL = Family(
    "StableDiffusionXLPipeline",
    "sdxl",
    denoiser="unet",
    pixel_multiple=8,
    encoded=("hidden", "-hidden", "text_embeds", "-text_embeds"),
    predict=predict,
    run_controlnet=_run_controlnet,
    inputs=inputs,
    predict_patched=predict_patched,
    upcasts_vae=True,
)
"""Podell et al., 2023, arXiv 2307.01952."""
