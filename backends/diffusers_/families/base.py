"""What an adapter of a model family provides to the denoise loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from backends.diffusers_.conditioning import Tensors
from backends.diffusers_.residuals import Residuals


class Family(Protocol):
    """The family's side of the loop. Adapters hold no state; ``pipe`` is the stock pipeline with the
    networks.

    Attributes:
        denoiser: pipeline slot of the network that runs at every step.
        pixel_multiple: width and height must be multiples of this.
        upcasts_vae: whether the autoencoder overflows in float16 and runs in float32 instead.
    """

    denoiser: str
    pixel_multiple: int
    upcasts_vae: bool

    def latent_channels(self, pipe: Any) -> int:
        """Channels of a latent."""

    def latent_dtype(self, pipe: Any) -> torch.dtype:
        """The dtype that latents are kept in between steps."""

    def guided(self, guidance: float) -> bool:
        """Whether ``guidance`` means a second, unconditional pass at every step."""

    def sigmas(self, steps: int) -> np.ndarray | None:
        """(T,) noise levels handed to the solver, or None where it makes its own."""

    def tokens(self, pipe: Any, latents: torch.Tensor) -> int:
        """Tokens of an image as the transformer sees it."""

    def encode(
        self,
        pipe: Any,
        prompts: Sequence[str],
        negatives: Sequence[str] | None,
        guided: bool,
        text_tokens: int,
    ) -> tuple[Tensors, Tensors | None]:
        """Encode prompts and, if ``guided``, negative prompts; None stands for the family's empty prompt."""

    def inputs(
        self, pipe: Any, rows: Mapping[str, torch.Tensor], latents: torch.Tensor, guidance: float
    ) -> dict[str, torch.Tensor]:
        """What stays the same over all steps of a run: encoded rows, sizes, position ids."""

    def predict(
        self,
        pipe: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        residuals: Residuals | None,
    ) -> torch.Tensor:
        """Run the denoiser once. ``x`` and the result are (rows, c, h, w)."""

    def hint(self, pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
        """Turn a control image, (n, 3, height, width) in 0..1, into what the ControlNet ``net`` reads."""

    def control(
        self,
        net: Any,
        x: torch.Tensor,
        t: torch.Tensor,
        inputs: Mapping[str, torch.Tensor],
        hint: torch.Tensor,
        scale: float,
    ) -> Residuals:
        """Run a ControlNet once; ``hint`` has as many rows as ``x``."""
