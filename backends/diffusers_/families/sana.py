"""SANA: a linear-attention transformer on 32x compressed latents, prompts read by Gemma 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from backends.diffusers_.conditioning import Tensors
from backends.diffusers_.errors import LiveError
from backends.diffusers_.residuals import Residuals


class Sana:
    """Adapter of ``SanaPipeline`` (Xie et al., 2024, arXiv 2410.10629).

    Prompts are encoded without the paper's instruction to the language model ("complex human instruction"),
    and latents are kept in float32, as the stock pipeline does.
    """

    denoiser = "transformer"
    pixel_multiple = 32
    upcasts_vae = False

    def latent_channels(self, pipe: Any) -> int:
        return int(pipe.transformer.config.in_channels)

    def latent_dtype(self, pipe: Any) -> torch.dtype:
        return torch.float32

    def guided(self, guidance: float) -> bool:
        return guidance > 1.0

    def sigmas(self, steps: int) -> np.ndarray | None:
        return None

    def tokens(self, pipe: Any, latents: torch.Tensor) -> int:
        return int(latents.shape[-1] * latents.shape[-2])

    def encode(
        self,
        pipe: Any,
        prompts: Sequence[str],
        negatives: Sequence[str] | None,
        guided: bool,
        text_tokens: int,
    ) -> tuple[Tensors, Tensors | None]:
        hidden, mask, no_hidden, no_mask = pipe.encode_prompt(
            list(prompts),
            guided,
            negative_prompt="" if negatives is None else list(negatives),
            device=pipe.device,
            max_sequence_length=text_tokens,
        )
        positive = {"hidden": hidden, "mask": mask}
        return positive, {"hidden": no_hidden, "mask": no_mask} if guided else None

    def inputs(
        self, pipe: Any, rows: Mapping[str, torch.Tensor], latents: torch.Tensor, guidance: float
    ) -> dict[str, torch.Tensor]:
        return {**rows, "hidden": rows["hidden"].to(pipe.transformer.dtype)}

    def predict(
        self,
        pipe: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        residuals: Residuals | None,
    ) -> torch.Tensor:
        if residuals is not None:
            raise LiveError("SANA runs without ControlNets here; use sd15, sdxl, sd3 or flux")
        predicted: torch.Tensor = pipe.transformer(
            x.to(pipe.transformer.dtype),
            encoder_hidden_states=inputs["hidden"],
            encoder_attention_mask=inputs["mask"],
            timestep=t.expand(x.shape[0]) * pipe.transformer.config.timestep_scale,
            return_dict=False,
        )[0].float()
        return predicted[:, : x.shape[1]]  # some variants also predict a variance

    def hint(self, pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
        raise LiveError("SANA runs without ControlNets here; use sd15, sdxl, sd3 or flux")

    def control(
        self,
        net: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        hint: torch.Tensor,
        scale: float,
    ) -> Residuals:
        raise LiveError("SANA runs without ControlNets here; use sd15, sdxl, sd3 or flux")
