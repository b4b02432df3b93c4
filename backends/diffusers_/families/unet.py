"""Stable Diffusion 1.x, 2.x and XL: a UNet, and a ControlNet that copies its first half.

SD1.x and 2.x are conditioned on one CLIP text encoder, SDXL on two and on the image size: its inputs also hold
``text_embeds`` and ``time_ids``, which both networks add to the timestep.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mezzotint.backends.diffusers_.addons.residuals import Residuals, StepInput
from mezzotint.backends.diffusers_.conditioning import Tensors
from mezzotint.backends.diffusers_.families.base import Family, Halves, Inputs, Steering
from mezzotint.backends.diffusers_.patches.layout import layout
from mezzotint.backends.diffusers_.patches.operators import patched


def encode_one(pipe: Any, prompts: list[str], guided: bool, tokens: int) -> tuple[Tensors, Tensors | None]:
    positive, negative = pipe.encode_prompt(prompts, pipe.device, 1, guided)
    return {"hidden": positive}, {"hidden": negative} if guided else None


def encode_two(pipe: Any, prompts: list[str], guided: bool, tokens: int) -> tuple[Tensors, Tensors | None]:
    options = {"device": pipe.device, "num_images_per_prompt": 1, "do_classifier_free_guidance": guided}
    hidden, no_hidden, pooled, no_pooled = pipe.encode_prompt(prompts, **options)
    positive = {"hidden": hidden, "text_embeds": pooled}
    return positive, {"hidden": no_hidden, "text_embeds": no_pooled} if guided else None


def inputs(pipe: Any, rows: Mapping[str, torch.Tensor], latents: torch.Tensor, guidance: float) -> Inputs:
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


def _hint(pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
    return pixels.to(device=net.device, dtype=net.dtype)


def _run(net: Any, step: StepInput, hint: torch.Tensor) -> Residuals:
    down, mid = net(step.x, step.t, **_conditions(step), controlnet_cond=hint, return_dict=False)
    return Residuals(tuple(down), (mid,))


def _conditions(step: StepInput) -> dict[str, Any]:
    added = {name: step.inputs[name] for name in ("text_embeds", "time_ids") if name in step.inputs}
    return {"encoder_hidden_states": step.inputs["hidden"], "added_cond_kwargs": added or None}


steering = Steering(_hint, _run)


Half = tuple[torch.Tensor, tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor]
"""Output of a UNet's encoder: of the middle block, skip connections of the down blocks, embeddings of time and text."""


def encode(pipe: Any, step: StepInput) -> Half:
    """Do what UNet2DConditionModel.forward does up to where ControlNets are added."""
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
    return unet.mid_block(x, time, **_reads(unet.mid_block, text)), tuple(skips), time, text


def decode(pipe: Any, half: Half, residuals: Residuals | None) -> torch.Tensor:
    unet, (x, skips, time, text) = pipe.unet, half
    if residuals is not None:
        skips = tuple(a + b for a, b in zip(skips, residuals.blocks, strict=True))
        x = x + residuals.rest[0]
    for block in unet.up_blocks:
        taken = len(block.resnets)
        own, skips = skips[-taken:], skips[:-taken]
        # where a size is no multiple of what the blocks halve, the next skip connection says how large it is to be
        size = skips[-1].shape[2:] if skips else None
        given = {"res_hidden_states_tuple": own, "upsample_size": size, **_reads(block, text)}
        x = block(hidden_states=x, temb=time, **given)
    predicted: torch.Tensor = unet.conv_out(unet.conv_act(unet.conv_norm_out(x)))
    return predicted


def _reads(block: Any, text: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"encoder_hidden_states": text} if getattr(block, "has_cross_attention", False) else {}


halves = Halves(encode, decode)


def predict_patched(pipe: Any, steps: Sequence[StepInput], side: int) -> list[torch.Tensor]:
    """Return the UNet's output for latents of each size, (rows, c, h, w), run as patches of ``side`` latents.

    Args:
        steps: the rows of each size, doubled under classifier-free guidance, as in Family.predict.
    """
    cut = layout([(x.shape[0], *x.shape[-2:]) for x in (step.x for step in steps)], side, steps[0].x.device)
    times = torch.cat([step.t.expand(step.x.shape[0]) for step in steps])
    rows = {name: torch.cat([step.inputs[name] for step in steps]) for name in steps[0].inputs}
    # Time, size and pooled text are added pixel by pixel, so each patch has its image's; attention reads them by image.
    added = {name: rows[name][cut.image] for name in ("text_embeds", "time_ids") if name in rows}
    with patched(pipe.unet, cut):
        made = pipe.unet(
            cut.split([step.x for step in steps]),
            times[cut.image],
            encoder_hidden_states=rows["hidden"],
            added_cond_kwargs=added or None,
            return_dict=False,
        )[0]
    return cut.join(made)


SD15 = Family("unet", 8, encode_one, predict, steering, predict_patched=predict_patched, halves=halves)
"""``StableDiffusionPipeline`` (Rombach et al., 2022, arXiv 2112.10752)."""

SDXL = Family(
    "unet", 8, encode_two, predict, steering, inputs, upcasts_vae=True, predict_patched=predict_patched, halves=halves
)
"""``StableDiffusionXLPipeline`` (Podell et al., 2023, arXiv 2307.01952)."""
