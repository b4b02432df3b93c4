"""Stable Diffusion 3 and 3.5, FLUX.1 and SANA: transformers trained by flow matching.

SD3 and FLUX join image and text tokens. FLUX reads 2x2 packed latents and its guidance as an embedding (one pass a
step). Its latents stay (n, c, h, w) between steps, so that their size can be read off them; packing is a reordering and
commutes with the solver's arithmetic. SANA has linear attention on 32x compressed latents, and Gemma 2 reads its
prompts: here without the paper's instruction to the language model ("complex human instruction").
"""

from typing import Any

import numpy as np
import torch

from mezzotint.backends.diffusers_.autoencoder import to_latents
from mezzotint.backends.diffusers_.families.base import Family, Residuals, StepInput, Tensors


def _predict_sd3(pipe: Any, step: StepInput, residuals: Residuals | None) -> torch.Tensor:
    blocks = None if residuals is None else residuals.blocks
    predicted: torch.Tensor = pipe.transformer(**_read_sd3(step), block_controlnet_hidden_states=blocks)[0]
    return predicted


def _hint_sd3(pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
    latents = to_latents(pipe.vae, pixels * 2 - 1)
    if net.config.force_zeros_for_pooled_projection:  # these were trained on latents without the shift
        latents = latents + pipe.vae.config.shift_factor * pipe.vae.config.scaling_factor
    return latents.to(device=net.device, dtype=net.dtype)


def _run_controlnet_sd3(net: Any, step: StepInput, hint: torch.Tensor) -> Residuals:
    arguments = _read_sd3(step)
    if net.config.force_zeros_for_pooled_projection:
        arguments["pooled_projections"] = torch.zeros_like(arguments["pooled_projections"])
    return Residuals(tuple(net(**arguments, controlnet_cond=hint)[0]))


def _read_sd3(step: StepInput) -> dict[str, Any]:
    return {
        "hidden_states": step.x,
        "timestep": step.t.expand(step.x.shape[0]),
        "encoder_hidden_states": step.inputs["hidden"],
        "pooled_projections": step.inputs["pooled"],
        "return_dict": False,
    }


def _inputs_flux(pipe: Any, rows: Tensors, latents: torch.Tensor, guidance: float) -> Tensors:
    batch, _, height, width = latents.shape
    hidden = rows["hidden"]
    ids = torch.zeros(height // 2, width // 2, 3, device=hidden.device, dtype=hidden.dtype)
    ids[..., 1] += torch.arange(height // 2, device=hidden.device)[:, None]
    ids[..., 2] += torch.arange(width // 2, device=hidden.device)[None, :]
    return {
        **rows,
        "txt_ids": torch.zeros(hidden.shape[1], 3, device=hidden.device, dtype=hidden.dtype),
        "img_ids": ids.reshape(-1, 3),
        "guidance": torch.full((batch,), guidance, device=hidden.device, dtype=torch.float32),
    }


def _predict_flux(pipe: Any, step: StepInput, residuals: Residuals | None) -> torch.Tensor:
    tokens = pipe.transformer(
        **_read_flux(pipe.transformer, step),
        controlnet_block_samples=None if residuals is None else residuals.blocks or None,
        controlnet_single_block_samples=None if residuals is None else residuals.rest or None,
    )[0]
    height, width = step.x.shape[-2:]
    patches: torch.Tensor = tokens.unflatten(1, (height // 2, width // 2)).unflatten(3, (-1, 2, 2))
    return patches.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


def _hint_flux(pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
    if net.input_hint_block is not None:  # this kind of ControlNet reads pixels
        return (pixels * 2 - 1).to(device=net.device, dtype=net.dtype)
    return _pack(to_latents(pipe.vae, pixels * 2 - 1)).to(device=net.device, dtype=net.dtype)


def _run_controlnet_flux(net: Any, step: StepInput, hint: torch.Tensor) -> Residuals:
    blocks, singles = net(**_read_flux(net, step), controlnet_cond=hint)
    return Residuals(tuple(blocks or ()), tuple(singles or ()))


def _read_flux(net: Any, step: StepInput) -> dict[str, Any]:
    return {
        "hidden_states": _pack(step.x),
        "timestep": step.t.expand(step.x.shape[0]).to(step.x.dtype) / 1000,
        "guidance": step.inputs["guidance"] if net.config.guidance_embeds else None,
        "pooled_projections": step.inputs["pooled"],
        "encoder_hidden_states": step.inputs["hidden"],
        "txt_ids": step.inputs["txt_ids"],
        "img_ids": step.inputs["img_ids"],
        "return_dict": False,
    }


def _pack(latents: torch.Tensor) -> torch.Tensor:
    """Return the squares of 2x2 latents (n, c, h, w) as tokens, (n, h * w / 4, 4 * c)."""
    squares = latents.unflatten(3, (-1, 2)).unflatten(2, (-1, 2))
    return squares.permute(0, 2, 4, 1, 3, 5).flatten(3, 5).flatten(1, 2)


def _inputs_sana(pipe: Any, rows: Tensors, latents: torch.Tensor, guidance: float) -> Tensors:
    return {**rows, "hidden": rows["hidden"].to(pipe.transformer.dtype)}


def _predict_sana(pipe: Any, step: StepInput, residuals: Residuals | None) -> torch.Tensor:
    predicted: torch.Tensor = pipe.transformer(
        step.x.to(pipe.transformer.dtype),
        encoder_hidden_states=step.inputs["hidden"],
        encoder_attention_mask=step.inputs["mask"],
        timestep=step.t.expand(step.x.shape[0]) * pipe.transformer.config.timestep_scale,
        return_dict=False,
    )[0].float()
    return predicted[:, : step.x.shape[1]]  # some variants also predict a variance


SD3 = Family(
    "StableDiffusion3Pipeline",
    "sd35_large",
    denoiser="transformer",
    pixel_multiple=16,
    encoded=("hidden", "-hidden", "pooled", "-pooled"),
    predict=_predict_sd3,
    run_controlnet=_run_controlnet_sd3,
    hint=_hint_sd3,
)
"""Esser et al., 2024, arXiv 2403.03206."""

FLUX = Family(
    "FluxPipeline",
    "flux_dev",
    denoiser="transformer",
    pixel_multiple=16,
    encoded=("hidden", "pooled"),
    predict=_predict_flux,
    run_controlnet=_run_controlnet_flux,
    hint=_hint_flux,
    inputs=_inputs_flux,
    sigmas=lambda steps: np.linspace(1.0, 1 / steps, steps),
    two_passes=False,
    packs=2,
)
"""Black Forest Labs, 2024, model card of FLUX.1-dev."""

SANA = Family(
    "SanaPipeline",
    "sana_1600m",
    denoiser="transformer",
    pixel_multiple=32,
    encoded=("hidden", "mask", "-hidden", "-mask"),
    predict=_predict_sana,
    inputs=_inputs_sana,
    float32_latents=True,  # as the stock pipeline does
)
"""Xie et al., 2024, arXiv 2410.10629."""
