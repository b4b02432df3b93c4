"""What the denoise loop has to know of a model family."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from backends.diffusers_.addons.residuals import Residuals, StepInput
from backends.diffusers_.conditioning import Tensors
from backends.diffusers_.errors import LiveError

Inputs = dict[str, torch.Tensor]


class Steering(NamedTuple):
    """A family's ControlNets.

    Attributes:
        hint: (pipeline, net, control pictures (n, 3, height, width) in 0..1) -> what the net reads.
        run: (net, step, hint of as many rows) -> what it adds to the denoiser.
    """

    hint: Callable[[Any, Any, torch.Tensor], torch.Tensor]
    run: Callable[[Any, StepInput, torch.Tensor], Residuals]


class Halves(NamedTuple):
    """A denoiser in two, so that its ControlNets can run beside the first (SwiftDiffusion, 4.1).

    Attributes:
        encode: (pipe, step) -> what the second half goes on from: the down blocks and the middle block.
        decode: (pipe, that, residuals of its ControlNets) -> the denoiser's output, (rows, c, h, w).
    """

    encode: Callable[[Any, StepInput], Any]
    decode: Callable[[Any, Any, Residuals | None], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Family:
    """The family's side of the loop; ``pipe`` is the stock pipeline with the networks.

    Attributes:
        denoiser: pipeline slot of the network that runs at every step.
        pixel_multiple: width and height must be multiples of this.
        encode: (pipe, prompts, whether the empty prompt is encoded too for classifier-free guidance, tokens of the
            longest prompt where the encoder has no such length) -> tensors, a row a prompt, and of the negative ones.
        predict: (pipe, step, residuals of its ControlNets) -> the denoiser's output, (rows, c, h, w).
        steering: its ControlNets; None where they are not supported.
        inputs: (pipe, encoded rows, latents, guidance) -> what stays the same over all steps of a run: encoded
            rows, sizes, position ids.
        sigmas: steps -> (T,) noise levels handed to the solver; None where it makes its own.
        two_passes: whether a guidance scale over 1 means a second, unconditional pass at every step.
        packs: side of the squares of latents that the denoiser reads as one.
        float32_latents: whether latents are kept in float32 between steps rather than in the denoiser's dtype.
        predict_patched: (pipe, the step of each size, side of a patch in latents) -> the denoiser's output for each,
            all from one pass; None where it has no such pass.
        upcasts_vae: whether the autoencoder overflows in float16 and runs in float32 instead.
        halves: the same as ``predict`` in two; None where ControlNets add to every block.
    """

    denoiser: str
    pixel_multiple: int
    encode: Callable[[Any, list[str], bool, int], tuple[Tensors, Tensors | None]]
    predict: Callable[[Any, StepInput, Residuals | None], torch.Tensor]
    steering: Steering | None = None
    inputs: Callable[[Any, Mapping[str, torch.Tensor], torch.Tensor, float], Inputs] = lambda _, rows, *__: dict(rows)
    sigmas: Callable[[int], np.ndarray | None] = lambda steps: None
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
        """Whether ``guidance`` means a second, unconditional pass at every step."""
        return self.two_passes and guidance > 1.0

    def tokens(self, pipe: Any, latents: torch.Tensor) -> int:
        """Tokens of an image as a transformer sees it."""
        side = self.packs * self._network(pipe).config.get("patch_size", 1)
        return int((latents.shape[-1] // side) * (latents.shape[-2] // side))

    def _network(self, pipe: Any) -> Any:
        return getattr(pipe, self.denoiser)
