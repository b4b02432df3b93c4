"""The interface between the denoise loop and a model family."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from inspect import signature
from operator import add
from typing import Any

import numpy as np
import torch

from mezzotint.backends.base import BackendError

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Conditioning:
    """Encoded prompts of a batch, one row each.

    Attributes:
        positive: name to (batch, ...) tensors of the prompts.
        negative: the same of the negative prompts, or None without classifier-free guidance.
        guidance: guidance scale.
        encode_s: seconds of the text encoders.
    """

    positive: Tensors
    negative: Tensors | None
    guidance: float
    encode_s: float

    @property
    def guided(self) -> bool:
        """True if every step runs the denoiser on twice the batch (classifier-free guidance)."""
        return self.negative is not None

    def stack(self) -> dict[str, torch.Tensor]:
        """Return the denoiser's input rows: negative rows first, then positive ones."""
        halves = [self.positive] if self.negative is None else [self.negative, self.positive]
        return _concatenate(halves)

    def select(self, rows: Sequence[int]) -> "Conditioning":
        """Return the rows of these indices, in this order."""

        def pick(half: Tensors) -> Tensors:
            return {name: tensor[list(rows)] for name, tensor in half.items()}

        negative = None if self.negative is None else pick(self.negative)
        return replace(self, positive=pick(self.positive), negative=negative)


def join(parts: Sequence[Conditioning]) -> Conditioning:
    """Concatenate batches encoded by the same model."""
    negatives = [part.negative for part in parts if part.negative is not None]
    return Conditioning(
        positive=_concatenate([part.positive for part in parts]),
        negative=_concatenate(negatives) if negatives else None,
        guidance=parts[0].guidance,
        encode_s=sum(part.encode_s for part in parts),
    )


def _concatenate(batches: Sequence[Tensors]) -> dict[str, torch.Tensor]:
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


@dataclass(frozen=True, slots=True)
class StepInput:
    """Input of the denoiser and of ControlNets at one step.

    Attributes:
        x: (rows, c, h, w) scaled latents, rows doubled under classifier-free guidance.
        t: timestep, a scalar or one for each row.
        inputs: the family's conditioning, rows doubled alike.
    """

    x: torch.Tensor
    t: torch.Tensor
    inputs: Tensors


@dataclass(frozen=True, slots=True)
class Residuals:
    """Tensors that ControlNets add to the denoiser's activations.

    Attributes:
        blocks: one per down block of a UNet, or per joint block of SD3 and FLUX.
        rest: of a UNet's mid block or FLUX's single blocks. SD3 has none.
    """

    blocks: tuple[torch.Tensor, ...]
    rest: tuple[torch.Tensor, ...] = ()


Predict = Callable[[Any, StepInput], torch.Tensor]
"""(Pipeline, step) -> the denoiser's output, (rows, c, h, w)."""


def add_up(answers: Sequence[Residuals]) -> Residuals:
    """Add up the residuals of one or more ControlNets, in their order."""
    blocks, rest = zip(*((answer.blocks, answer.rest) for answer in answers), strict=True)
    return Residuals(*(tuple(reduce(add, same) for same in zip(*part, strict=True)) for part in (blocks, rest)))


def read_pixels(pipe: Any, net: Any, pixels: torch.Tensor) -> torch.Tensor:
    """Return the input of a ControlNet that reads the control pictures as they are."""
    return pixels.to(device=net.device, dtype=net.dtype)


@dataclass(frozen=True, slots=True)
class Family:
    """The denoise loop's view of a model family; ``pipe`` is the stock pipeline with the networks.

    Attributes:
        pipeline: class of the stock pipeline in diffusers.
        default: the usual variant.
        denoiser: pipeline slot of the network that runs at every step.
        pixel_multiple: width and height must be multiples of this.
        encoded: names of the tensors that ``encode_prompt`` of the pipeline returns; those of negative prompts begin
            with ``-``.
        predict: (pipe, step, residuals of ControlNets) -> the denoiser's output, (rows, c, h, w).
        run_controlnet: (net, step, hint of as many rows) -> residuals; None if ControlNets are not supported.
        hint: (pipe, net, control pictures (n, 3, height, width) in 0..1) -> the net's input.
        inputs: (pipe, encoded rows, latents, guidance) -> inputs that are constant over a run: encoded rows, sizes,
            position ids.
        sigmas: steps -> (T,) noise levels for the solver; None if it makes its own.
        two_passes: True if a guidance scale over 1 needs a second, unconditional pass at every step.
        packs: side of the squares of latents that the denoiser reads as one.
        float32_latents: True to keep latents in float32 between steps, not in the denoiser's dtype.
        predict_patched: (pipe, the step of each size, side of a patch in latents) -> the denoiser's output for each
            size from one pass; None if not supported.
        upcasts_vae: True if the autoencoder overflows in float16 and runs in float32 instead.
    """

    pipeline: str
    default: str
    denoiser: str
    pixel_multiple: int
    encoded: tuple[str, ...]
    predict: Callable[[Any, StepInput, Residuals | None], torch.Tensor]
    run_controlnet: Callable[[Any, StepInput, torch.Tensor], Residuals] | None = None
    hint: Callable[[Any, Any, torch.Tensor], torch.Tensor] = read_pixels
    inputs: Callable[[Any, Tensors, torch.Tensor, float], Tensors] = lambda _, rows, *__: rows
    sigmas: Callable[[int], np.ndarray | None] = lambda _: None
    two_passes: bool = True
    packs: int = 1
    float32_latents: bool = False
    predict_patched: Callable[[Any, Sequence[StepInput], int], list[torch.Tensor]] | None = None
    upcasts_vae: bool = False

    def check_size(self, name: str, width: int, height: int) -> None:
        """Raise BackendError for an image that models of this family, called ``name``, cannot make."""
        unit = self.pixel_multiple
        if width < unit or height < unit or width % unit or height % unit:
            raise BackendError(f"{name} makes images whose sides are multiples of {unit}, not {width}x{height}")

    def encode(self, pipe: Any, prompts: list[str], guided: bool, tokens: int) -> tuple[Tensors, Tensors | None]:
        """Return a row of tensors per prompt, and those of empty negative prompts if ``guided``.

        Args:
            tokens: length in tokens that T5 and Gemma prompts are padded to.
        """
        options = {
            "prompt_2": None,
            "prompt_3": None,
            "device": pipe.device,
            "num_images_per_prompt": 1,
            "do_classifier_free_guidance": guided,
            "max_sequence_length": tokens,
        }
        taken = signature(pipe.encode_prompt).parameters
        tensors = pipe.encode_prompt(prompts, **{name: value for name, value in options.items() if name in taken})
        rows = dict(zip(self.encoded, tensors, strict=False))  # FLUX also returns position ids
        positive = {name: tensor for name, tensor in rows.items() if not name.startswith("-")}
        return positive, {name: rows[f"-{name}"] for name in positive} if guided else None

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
