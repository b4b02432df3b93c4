"""Residuals that ControlNets add to the denoiser at a step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch


@dataclass(frozen=True, slots=True)
class Residuals:
    """Tensors added to the denoiser's activations.

    Attributes:
        blocks: one per down block of a UNet, or per joint block of SD3 and FLUX.
        rest: of a UNet's mid block or FLUX's single blocks. SD3 has none.
    """

    blocks: tuple[torch.Tensor, ...]
    rest: tuple[torch.Tensor, ...] = ()


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
    inputs: Mapping[str, torch.Tensor]


ResidualSource = Callable[[StepInput], Residuals]


def summed(answers: Sequence[Residuals]) -> Residuals:
    """Add up the residuals of one or more ControlNets, in their order."""
    blocks, rest = zip(*((each.blocks, each.rest) for each in answers), strict=True)
    return Residuals(*(tuple(reduce(add, same) for same in zip(*part, strict=True)) for part in (blocks, rest)))
