"""The interface between the denoise loop and a model family."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from mezzotint.backends.diffusers_.addons.residuals import Residuals, StepInput
from mezzotint.backends.diffusers_.conditioning import Tensors
from mezzotint.backends.diffusers_.errors import LiveError

Inputs = dict[str, torch.Tensor]


class Steering(NamedTuple):
    """A family's ControlNets.

    Attributes:
        hint: (pipeline, net, control pictures (n, 3, height, width) in 0..1) -> the net's input.
        run: (net, step, hint of as many rows) -> residuals for the denoiser.
    """

    hint: Callable[[Any, Any, torch.Tensor], torch.Tensor]
    run: Callable[[Any, StepInput, torch.Tensor], Residuals]


class Halves(NamedTuple):
    """A denoiser in two halves; its ControlNets can run in parallel with the first (SwiftDiffusion, 4.1).

    Attributes:
        encode: (pipe, step) -> output of the down blocks and the middle block.
        decode: (pipe, output of encode, residuals of ControlNets) -> the denoiser's output, (rows, c, h, w).
    """

    encode: Callable[[Any, StepInput], Any]
    decode: Callable[[Any, Any, Residuals | None], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Family:
    """The denoise loop's view of a model family; ``pipe`` is the stock pipeline with the networks.

    Attributes:
        denoiser: pipeline slot of the network that runs at every step.
        pixel_multiple: width and height must be multiples of this.
        encode: (pipe, prompts, guided, max tokens if the encoder has no limit) -> a row of tensors per prompt, and
            those of negative prompts if guided.
        predict: (pipe, step, residuals of ControlNets) -> the denoiser's output, (rows, c, h, w).
        steering: its ControlNets; None if not supported.
        inputs: (pipe, encoded rows, latents, guidance) -> inputs that are constant over a run: encoded rows, sizes,
            position ids.
        sigmas: steps -> (T,) noise levels for the solver; None if it makes its own.
        two_passes: True if a guidance scale over 1 needs a second, unconditional pass at every step.
        packs: side of the squares of latents that the denoiser reads as one.
        float32_latents: True to keep latents in float32 between steps, not in the denoiser's dtype.
        predict_patched: (pipe, the step of each size, side of a patch in latents) -> the denoiser's output for each
            size from one pass; None if not supported.
        upcasts_vae: True if the autoencoder overflows in float16 and runs in float32 instead.
        halves: ``predict`` in two halves; None if ControlNets add to every block.
    """

    denoiser: str
    pixel_multiple: int
    encode: Callable[[Any, list[str], bool, int], tuple[Tensors, Tensors | None]]
    predict: Callable[[Any, StepInput, Residuals | None], torch.Tensor]
    steering: Steering | None = None
    inputs: Callable[[Any, Mapping[str, torch.Tensor], torch.Tensor, float], Inputs] = lambda _, rows, *__: dict(rows)
    sigmas: Callable[[int], np.ndarray | None] = lambda _: None
    two_passes: bool = True
    packs: int = 1
    float32_latents: bool = False
    predict_patched: Callable[[Any, Sequence[StepInput], int], list[torch.Tensor]] | None = None
    upcasts_vae: bool = False
    halves: Halves | None = None

    def check_size(self, name: str, width: int, height: int) -> None:
        """Raise LiveError for an image that models of this family, called ``name``, cannot make."""
        unit = self.pixel_multiple
        if width < unit or height < unit or width % unit or height % unit:
            raise LiveError(f"{name} makes images whose sides are multiples of {unit}, not {width}x{height}")

    def latent_channels(self, pipe: Any) -> int:
        return int(self._network(pipe).config.in_channels) // self.packs**2

    def latent_dtype(self, pipe: Any) -> torch.dtype:
        dtype: torch.dtype = torch.float32 if self.float32_latents else self._network(pipe).dtype
        return dtype

    def guided(self, guidance: float) -> bool:
        """Return True if ``guidance`` needs a second, unconditional pass at every step."""
        return self.two_passes and guidance > 1.0

    def tokens(self, pipe: Any, latents: torch.Tensor) -> int:
        """Return the number of image tokens of a transformer."""
        side = self.packs * self._network(pipe).config.get("patch_size", 1)
        return int((latents.shape[-1] // side) * (latents.shape[-2] // side))

    def _network(self, pipe: Any) -> Any:
        return getattr(pipe, self.denoiser)
