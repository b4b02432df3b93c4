"""Conversion between pixels and latents: the VAE of SD, SDXL, SD3 and FLUX, and SANA's deterministic autoencoder."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch


def to_latents(vae: Any, pixels: torch.Tensor) -> torch.Tensor:
    """Encode ``pixels``, (n, 3, height, width) in -1..1, into latents as the denoiser scales them.

    A VAE's mean is taken rather than a sample of it, so that the same image gives the same latent.
    """
    encoded = vae.encode(pixels.to(device=vae.device, dtype=vae.dtype))
    raw = encoded.latent_dist.mode() if hasattr(encoded, "latent_dist") else encoded.latent
    scaled: torch.Tensor = (raw - _shift(vae)) * vae.config.scaling_factor
    return scaled


def to_pixels(vae: Any, latents: torch.Tensor) -> torch.Tensor:
    """Decode scaled ``latents``, (n, c, h, w), into (n, 3, height, width), nominally in -1..1."""
    raw = latents.to(device=vae.device, dtype=vae.dtype) / vae.config.scaling_factor + _shift(vae)
    pixels: torch.Tensor = vae.decode(raw, return_dict=False)[0]
    return pixels


def as_images(pixels: torch.Tensor) -> np.ndarray:
    """Convert (n, 3, height, width) in -1..1 to uint8 (n, height, width, 3)."""
    unit = (pixels.float() / 2 + 0.5).clamp(0, 1)
    images: np.ndarray = (unit * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
    return images


def as_pixels(images: Sequence[np.ndarray], width: int, height: int, device: torch.device) -> torch.Tensor:
    """Convert images, each uint8 (h, w, 3), to (n, 3, height, width) in 0..1, resized (bilinear) if needed."""
    resized = []
    for image in images:
        unit = torch.from_numpy(np.ascontiguousarray(image)).to(device).permute(2, 0, 1)[None].float() / 255
        if unit.shape[-2:] != (height, width):
            unit = torch.nn.functional.interpolate(
                unit, size=(height, width), mode="bilinear", antialias=True, align_corners=False
            )
        resized.append(unit)
    return torch.cat(resized)


def _shift(vae: Any) -> float:
    return float(vae.config.get("shift_factor") or 0.0)
