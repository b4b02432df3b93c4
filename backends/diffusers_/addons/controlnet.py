"""ControlNets in the denoise loop: built or read, given a picture, and run one after another."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch

from backends.diffusers_ import autoencoder
from backends.diffusers_.addons.residuals import Residuals, ResidualSource, StepInput, summed
from backends.diffusers_.device.memory import ensure_fits, usable_device, weight_bytes
from backends.diffusers_.device.stopwatch import Stopwatch
from backends.diffusers_.errors import LiveError
from backends.diffusers_.families.base import Steering
from backends.diffusers_.model import LiveModel
from backends.diffusers_.networks.architectures import Part
from backends.diffusers_.networks.checkpoint import folder_weight_bytes
from backends.diffusers_.networks.components import with_random_weights


@dataclass(frozen=True, slots=True)
class ControlNet:
    """A ControlNet on a device, and the seconds it took to build."""

    net: Any
    steering: Steering
    device: torch.device
    load_s: float

    @property
    def nbytes(self) -> int:
        """Bytes of its weights and buffers."""
        return sum(each.nbytes for each in (*self.net.parameters(), *self.net.buffers()))


@dataclass(frozen=True, slots=True)
class Control:
    """A ControlNet with the picture it steers by: the residuals of each step, computed where the net is.

    Attributes:
        hint: (rows, ...) what the net reads, rows doubled under classifier-free guidance.
        scale: factor on its residuals.
    """

    controlnet: ControlNet
    hint: torch.Tensor
    scale: float = 1.0

    def __call__(self, step: StepInput) -> Residuals:
        """Residuals for one step, on the ControlNet's device."""
        near = step.to(self.controlnet.device)
        with torch.no_grad():  # the setting is per thread, so the loop's own does not reach a service
            return self.controlnet.steering.run(self.controlnet.net, near, self.hint, self.scale)


def random_controlnet(
    model: LiveModel, name: str | None = None, seed: int = 0, device: str | torch.device | None = None
) -> ControlNet:
    """Build a ControlNet for ``model`` from its configuration, with random weights (none of them zero).

    Args:
        name: which one; None takes the usual one of the model's variant.
        device: where it runs; None puts it beside the model.

    Raises:
        LiveError: this architecture has no such ControlNet, or too little memory.
    """
    part = _part(model, name)
    place = model.device if device is None else usable_device(device)
    dtype = model.spec.torch_dtype
    ensure_fits(f"ControlNet {part.name}", weight_bytes([part], dtype), place)
    watch = Stopwatch(place)
    net = with_random_weights(part, place, dtype, seed)
    return ControlNet(net, _steering(model), place, watch.lap())


def open_controlnet(model: LiveModel, folder: Path, device: str | torch.device | None = None) -> ControlNet:
    """Read a ControlNet for ``model`` from a folder as ``save_pretrained`` writes it.

    Raises:
        LiveError: not such a folder, not this family's kind of ControlNet, or too little memory.
    """
    part = _part(model, None)
    place = model.device if device is None else usable_device(device)
    if not (folder / "config.json").is_file():
        raise LiveError(f"{folder} is not a ControlNet folder: it has no config.json; point at one that has")
    dtype = model.spec.torch_dtype
    ensure_fits(f"ControlNet {folder}", folder_weight_bytes(folder, dtype), place)
    watch = Stopwatch(place)
    kind = getattr(diffusers, part.class_name.split(".")[1])
    try:
        net = kind.from_pretrained(str(folder), torch_dtype=dtype, local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as broken:
        raise LiveError(f"{folder} could not be loaded as {kind.__name__}: {broken}") from broken
    net = net.to(place).eval().requires_grad_(False)
    return ControlNet(net, _steering(model), place, watch.lap())


def control(
    model: LiveModel,
    controlnet: ControlNet,
    images: Sequence[np.ndarray],
    width: int,
    height: int,
    guided: bool,
    scale: float = 1.0,
) -> Control:
    """Prepare a ControlNet for a run.

    Args:
        images: control pictures, uint8 (h, w, 3), one per request of the batch; resized to the image's size.
        guided: whether the run's conditioning is guided (``Conditioning.guided``).
    """
    pixels = autoencoder.as_pixels(images, width, height, model.device)
    with torch.no_grad():
        hint = controlnet.steering.hint(model.pipe, controlnet.net, pixels).to(controlnet.device)
    return Control(controlnet, torch.cat([hint, hint]) if guided else hint, scale)


def inline(controls: Sequence[Control]) -> ResidualSource:
    """Several ControlNets one after another in the denoise loop, their residuals summed on its device.

    Raises:
        LiveError: no ControlNet.
    """
    if not controls:
        raise LiveError("no ControlNet to run in line; give at least one, or residuals=None")

    def residuals(step: StepInput) -> Residuals:
        return summed([each(step) for each in controls], step.x.device)

    return residuals


def _steering(model: LiveModel) -> Steering:
    if model.family.steering is None:
        raise LiveError(f"{model.spec.family} runs without ControlNets here; use sd15, sdxl, sd3 or flux")
    return model.family.steering


def _part(model: LiveModel, name: str | None) -> Part:
    offered = model.architecture.controlnets
    for each in offered:
        if name is None or each.name == name:
            return each
    names = ", ".join(each.name for each in offered) or "none"
    raise LiveError(f"{model.architecture.variant} has no ControlNet {name or ''!r}; it has: {names}")
