"""What SD1.5 and SDXL share: a UNet, and a ControlNet that copies its first half."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from backends.diffusers_.residuals import Residuals


def run_unet(
    unet: Any,
    x: torch.Tensor,
    t: torch.Tensor,
    hidden: torch.Tensor,
    added: Mapping[str, torch.Tensor] | None,
    residuals: Residuals | None,
) -> torch.Tensor:
    """One pass of a UNet; ``added`` is SDXL's pooled text and size conditioning."""
    extra: dict[str, Any] = {}
    if residuals is not None:
        extra["down_block_additional_residuals"] = residuals.blocks
        extra["mid_block_additional_residual"] = residuals.rest[0]
    predicted: torch.Tensor = unet(
        x, t, encoder_hidden_states=hidden, added_cond_kwargs=added, return_dict=False, **extra
    )[0]
    return predicted


def run_controlnet(
    net: Any,
    x: torch.Tensor,
    t: torch.Tensor,
    hidden: torch.Tensor,
    added: Mapping[str, torch.Tensor] | None,
    hint: torch.Tensor,
    scale: float,
) -> Residuals:
    """One pass of a ControlNet, its residuals scaled by ``scale``."""
    down, mid = net(
        x,
        t,
        encoder_hidden_states=hidden,
        controlnet_cond=hint,
        conditioning_scale=scale,
        added_cond_kwargs=added,
        return_dict=False,
    )
    return Residuals(tuple(down), (mid,))
