"""What a ControlNet hands the denoiser at a step, wherever it was computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch


@dataclass(frozen=True, slots=True)
class Residuals:
    """Tensors added to the denoiser's activations.

    Attributes:
        blocks: one per block (a UNet's down blocks; the joint blocks of SD3 and FLUX).
        rest: a UNet's mid block; FLUX's single blocks; empty for SD3.
    """

    blocks: tuple[torch.Tensor, ...]
    rest: tuple[torch.Tensor, ...] = ()

    def __add__(self, other: Residuals) -> Residuals:
        return Residuals(
            tuple(a + b for a, b in zip(self.blocks, other.blocks, strict=True)),
            tuple(a + b for a, b in zip(self.rest, other.rest, strict=True)),
        )

    def to(self, device: torch.device) -> Residuals:
        """The same on ``device``."""
        return Residuals(tuple(a.to(device) for a in self.blocks), tuple(a.to(device) for a in self.rest))

    @property
    def nbytes(self) -> int:
        """Bytes that travel when the ControlNet runs apart."""
        return sum(each.nbytes for each in (*self.blocks, *self.rest))


@dataclass(frozen=True, slots=True)
class StepInput:
    """All that a ControlNet needs of one step, and all that has to be sent to one that runs apart.

    Attributes:
        step: index of the step about to run, of the first rows where they stand at several.
        x: (rows, c, h, w) scaled latents, rows doubled under classifier-free guidance.
        t: timestep, a scalar or one for each row.
        inputs: the family's conditioning, rows doubled alike.
    """

    step: int
    x: torch.Tensor
    t: torch.Tensor
    inputs: Mapping[str, torch.Tensor]

    def to(self, device: torch.device) -> StepInput:
        """The same on ``device``."""
        inputs = {name: each.to(device) for name, each in self.inputs.items()}
        return StepInput(self.step, self.x.to(device), self.t.to(device), inputs)


ResidualSource = Callable[[StepInput], Residuals]


@runtime_checkable
class Beside(Protocol):
    """What runs a step's denoiser itself, in halves, its ControlNets beside the first."""

    def predict(self, pipe: Any, step: StepInput) -> torch.Tensor:
        """The denoiser's output with what the ControlNets add, (rows, c, h, w)."""
