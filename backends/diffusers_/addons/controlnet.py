"""Inline ControlNets: build or read them, give them a picture, run them one after another."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch

from mezzotint.backends.diffusers_ import autoencoder
from mezzotint.backends.diffusers_.addons.residuals import Residuals, ResidualSource, StepInput, summed
from mezzotint.backends.diffusers_.device.memory import ensure_fits, weight_bytes
from mezzotint.backends.diffusers_.device.stopwatch import Stopwatch
from mezzotint.backends.diffusers_.errors import LiveError
from mezzotint.backends.diffusers_.families.base import Steering
from mezzotint.backends.diffusers_.model import LiveModel
from mezzotint.backends.diffusers_.networks.architectures import Part
from mezzotint.backends.diffusers_.networks.checkpoint import folder_weight_bytes
from mezzotint.backends.diffusers_.networks.components import with_random_weights


@dataclass(frozen=True, slots=True)
class ControlNet:
    """A ControlNet, and the seconds to build or read it."""

    net: Any
    steering: Steering
    load_s: float

    @property
    def nbytes(self) -> int:
        """Bytes of its weights and buffers."""
        return sum(each.nbytes for each in (*self.net.parameters(), *self.net.buffers()))


@dataclass(frozen=True, slots=True)
class Control:
    """A ControlNet with its picture: a step -> its residuals.

    Attributes:
        hint: the net's input, (rows, ...), with rows doubled under classifier-free guidance.
    """

    controlnet: ControlNet
    hint: torch.Tensor

    def __call__(self, step: StepInput) -> Residuals:
        return self.controlnet.steering.run(self.controlnet.net, step, self.hint)


def random_controlnet(model: LiveModel, seed: int = 0) -> ControlNet:
    """Build the usual ControlNet of ``model`` with random weights (none of them zero).

    Raises LiveError if this architecture has no ControlNet, or memory is too small.
    """
    part, steering = _usual(model)
    dtype = model.spec.torch_dtype
    ensure_fits(f"ControlNet {part.name}", weight_bytes([part], dtype), model.device)
    watch = Stopwatch(model.device)
    net = with_random_weights(part, model.device, dtype, seed)
    return ControlNet(net, steering, watch.lap())


def open_controlnet(model: LiveModel, folder: Path) -> ControlNet:
    """Read a ControlNet for ``model`` from a folder as ``save_pretrained`` writes it.

    Raises:
        LiveError: not such a folder, not this family's kind of ControlNet, or too little memory.
    """
    part, steering = _usual(model)
    if not (folder / "config.json").is_file():
        raise LiveError(f"{folder} is not a ControlNet folder: it has no config.json; point at one that has")
    dtype = model.spec.torch_dtype
    ensure_fits(f"ControlNet {folder}", folder_weight_bytes(folder, dtype), model.device)
    watch = Stopwatch(model.device)
    kind = getattr(diffusers, part.class_name.split(".")[1])
    try:
        net = kind.from_pretrained(str(folder), torch_dtype=dtype, local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as broken:
        raise LiveError(f"{folder} could not be loaded as {kind.__name__}: {broken}") from broken
    net = net.to(model.device).eval().requires_grad_(False)
    return ControlNet(net, steering, watch.lap())


def control(
    model: LiveModel, controlnet: ControlNet, images: Sequence[np.ndarray], width: int, height: int, guided: bool
) -> Control:
    """Prepare a ControlNet for a run, guided or not, on ``images``, uint8 (h, w, 3), resized; one per row."""
    pixels = autoencoder.as_pixels(images, width, height, model.device)
    with torch.no_grad():
        hint = controlnet.steering.hint(model.pipe, controlnet.net, pixels)
    return Control(controlnet, torch.cat([hint, hint]) if guided else hint)


def inline(controls: Sequence[Control]) -> ResidualSource:
    """Return the summed residuals of ControlNets that run one after another."""
    return lambda step: summed([each(step) for each in controls])


def _usual(model: LiveModel) -> tuple[Part, Steering]:
    """Return the usual ControlNet of the model's architecture, and its family's calls of it."""
    offered, steering = model.architecture.controlnets, model.family.steering
    if not offered or steering is None:
        raise LiveError(f"{model.architecture.variant} has no ControlNet here; use sd15, sdxl, sd3 or flux")
    return offered[0], steering
