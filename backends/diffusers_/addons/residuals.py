"""What a ControlNet hands the denoiser at a step, wherever it was computed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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

    def __add__(self, other: "Residuals") -> "Residuals":
        return Residuals(
            tuple(a + b for a, b in zip(self.blocks, other.blocks, strict=True)),
            tuple(a + b for a, b in zip(self.rest, other.rest, strict=True)),
        )

    def to(self, device: torch.device) -> "Residuals":
        """The same on ``device``."""
        return Residuals(tuple(a.to(device) for a in self.blocks), tuple(a.to(device) for a in self.rest))


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

    def to(self, device: torch.device) -> "StepInput":
        """The same on ``device``."""
        inputs = {name: each.to(device) for name, each in self.inputs.items()}
        return StepInput(self.step, self.x.to(device), self.t.to(device), inputs)


ResidualSource = Callable[[StepInput], Residuals]


def summed(answers: Sequence[Residuals], device: torch.device) -> Residuals:
    """Bring the residuals of several ControlNets to ``device`` and add them up."""
    total = answers[0].to(device)
    for answer in answers[1:]:
        total = total + answer.to(device)
    return total
