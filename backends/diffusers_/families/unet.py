"""What SD1.5 and SDXL share: a UNet, and a ControlNet that copies its first half.

SDXL's inputs also hold ``text_embeds`` and ``time_ids``, pooled text and image size, which both networks add to the
timestep.
"""

from dataclasses import dataclass
from typing import Any

import torch

from backends.diffusers_.addons.residuals import Residuals, StepInput
from backends.diffusers_.families.base import Halves, Steering


def predict(pipe: Any, step: StepInput, residuals: Residuals | None) -> torch.Tensor:
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


@dataclass(frozen=True, slots=True)
class Half:
    """What a UNet's encoder hands its decoder: the middle block's output, the skip connections of the down blocks, and
    what every block reads beside them."""

    middle: torch.Tensor
    skips: tuple[torch.Tensor, ...]
    time: torch.Tensor
    text: torch.Tensor


def encode(pipe: Any, step: StepInput) -> Half:
    """See Halves.encode: what UNet2DConditionModel.forward does up to where ControlNets are added."""
    unet, given = pipe.unet, _conditions(step)
    time = unet.time_embedding(unet.get_time_embed(sample=step.x, timestep=step.t))
    text, added = given["encoder_hidden_states"], given["added_cond_kwargs"]
    extra = unet.get_aug_embed(emb=time, encoder_hidden_states=text, added_cond_kwargs=added)
    time = time if extra is None else time + extra
    text = unet.process_encoder_hidden_states(encoder_hidden_states=text, added_cond_kwargs=added)
    x = unet.conv_in(step.x)
    skips = [x]
    for block in unet.down_blocks:
        x, left = block(hidden_states=x, temb=time, **_reads(block, text))
        skips += left
    return Half(unet.mid_block(x, time, **_reads(unet.mid_block, text)), tuple(skips), time, text)


def decode(pipe: Any, half: Half, residuals: Residuals | None) -> torch.Tensor:
    unet, x, skips = pipe.unet, half.middle, half.skips
    if residuals is not None:
        skips = tuple(a + b for a, b in zip(skips, residuals.blocks, strict=True))
        x = x + residuals.rest[0]
    for block in unet.up_blocks:
        taken = len(block.resnets)
        own, skips = skips[-taken:], skips[:-taken]
        # where a size is no multiple of what the blocks halve, the next skip connection says how large it is to be
        size = skips[-1].shape[2:] if skips else None
        x = block(
            hidden_states=x, temb=half.time, res_hidden_states_tuple=own, upsample_size=size, **_reads(block, half.text)
        )
    predicted: torch.Tensor = unet.conv_out(unet.conv_act(unet.conv_norm_out(x)))
    return predicted


def _reads(block: Any, text: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"encoder_hidden_states": text} if getattr(block, "has_cross_attention", False) else {}


halves = Halves(encode, decode)
