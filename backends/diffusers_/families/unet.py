"""What SD1.5 and SDXL share: a UNet, and a ControlNet that copies its first half.

SDXL's inputs also hold ``text_embeds`` and ``time_ids``, pooled text and image size, which both networks add to the
timestep.
"""

from __future__ import annotations

from typing import Any

import torch

from backends.diffusers_.addons.residuals import Residuals, StepInput
from backends.diffusers_.families.base import Steering


def predict(pipe: Any, step: StepInput, residuals: Residuals | None) -> torch.Tensor:
    """See Family.predict."""
    extra: dict[str, Any] = {}
    if residuals is not None:
        extra["down_block_additional_residuals"] = residuals.blocks
        extra["mid_block_additional_residual"] = residuals.rest[0]
    predicted: torch.Tensor = pipe.unet(step.x, step.t, **_conditions(step), return_dict=False, **extra)[0]
    return predicted


def _hint(pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
    return pixels.to(device=net.device, dtype=net.dtype)


def _run(net: Any, step: StepInput, hint: torch.Tensor, scale: float) -> Residuals:
    given = {"controlnet_cond": hint, "conditioning_scale": scale, "return_dict": False}
    down, mid = net(step.x, step.t, **_conditions(step), **given)
    return Residuals(tuple(down), (mid,))


def _conditions(step: StepInput) -> dict[str, Any]:
    added = {name: step.inputs[name] for name in ("text_embeds", "time_ids") if name in step.inputs}
    return {"encoder_hidden_states": step.inputs["hidden"], "added_cond_kwargs": added or None}


steering = Steering(_hint, _run)
