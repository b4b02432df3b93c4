"""ControlNets on other devices, in virtual time: they run while the denoiser's encoder does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from mezzotint.backends.diffusers_.addons.residuals import Residuals, StepInput, summed
from mezzotint.backends.diffusers_.device.stopwatch import Stopwatch
from mezzotint.backends.diffusers_.errors import LiveError
from mezzotint.backends.diffusers_.families.base import Family


class StepParts(NamedTuple):
    """Seconds of the parts of one step.

    Attributes:
        encoder_s, decoder_s: of the denoiser.
        controlnet_s: of each ControlNet.
        receive_s: adding up the residuals of all ControlNets.
    """

    encoder_s: float
    controlnet_s: tuple[float, ...]
    receive_s: float
    decoder_s: float

    @property
    def elsewhere_s(self) -> float:
        """Seconds of the step outside the denoiser."""
        return sum(self.controlnet_s) + self.receive_s


@dataclass(slots=True)
class RemoteControlNets:
    """Runs the denoiser with ControlNets on other devices; replaces the residuals in the denoise loop.

    On the cluster the encoder and every ControlNet run at the same time (SwiftDiffusion, 4.1). On one device the
    ``parts`` of a step take turns and are timed; the result is the same.

    Args:
        controls: ControlNets: a step -> its residuals.

    Raises:
        LiveError: the denoiser cannot be split into encoder and decoder.
    """

    family: Family
    controls: Sequence[Callable[[StepInput], Residuals]]
    parts: list[StepParts] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.family.halves is None:
            raise LiveError("ControlNets add to every block of this denoiser, so none can run beside; use sd15 or sdxl")

    def predict(self, pipe: Any, step: StepInput) -> torch.Tensor:
        """Return the denoiser's output with the residuals of the ControlNets, (rows, c, h, w)."""
        halves = self.family.halves
        assert halves is not None
        watch = Stopwatch(step.x.device)
        half = halves.encode(pipe, step)
        encoder_s = watch.lap()
        answers, seconds = [], []
        for each in self.controls:
            answers.append(each(step))
            seconds.append(watch.lap())
        total = summed(answers)
        receive_s = watch.lap()
        predicted = halves.decode(pipe, half, total)
        self.parts.append(StepParts(encoder_s, tuple(seconds), receive_s, watch.lap()))
        return predicted
