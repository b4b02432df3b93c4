"""ControlNets: build or read them, give them a picture, run them inline or beside the denoiser's encoder."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import diffusers
import numpy as np
import torch

from mezzotint.backends.base import BackendError
from mezzotint.backends.diffusers_ import autoencoder
from mezzotint.backends.diffusers_.device import Stopwatch, ensure_fits, tensor_bytes
from mezzotint.backends.diffusers_.families.base import Family, Predict, Residuals, StepInput, add_up
from mezzotint.backends.diffusers_.model import LiveModel
from mezzotint.backends.diffusers_.networks.architectures import Part
from mezzotint.backends.diffusers_.networks.build import folder_weight_bytes
from mezzotint.backends.diffusers_.networks.random_weights import build_part, weight_bytes


@dataclass(frozen=True, slots=True)
class ControlNet:
    """A ControlNet for models of ``family``, and the seconds to build or read it."""

    net: Any
    family: Family
    load_s: float

    @property
    def nbytes(self) -> int:
        """Bytes of its weights and buffers."""
        return tensor_bytes(self.net)


@dataclass(frozen=True, slots=True)
class Control:
    """A ControlNet with its picture: a step -> its residuals.

    Attributes:
        hint: the net's input, (rows, ...), with rows doubled under classifier-free guidance.
    """

    controlnet: ControlNet
    hint: torch.Tensor

    def __call__(self, step: StepInput) -> Residuals:
        run = self.controlnet.family.run_controlnet
        assert run is not None
        return run(self.controlnet.net, step, self.hint)


def random_controlnet(model: LiveModel, seed: int = 0) -> ControlNet:
    """Build the usual ControlNet of ``model`` with random weights (none of them zero).

    Raises BackendError if this architecture has no ControlNet, or memory is too small.
    """
    part = _usual(model)
    dtype = model.spec.torch_dtype
    ensure_fits(f"ControlNet {part.name}", weight_bytes([part], dtype), model.device)
    watch = Stopwatch(model.device)
    net = build_part(part, model.device, dtype, seed)
    return ControlNet(net, model.family, watch.lap())


def open_controlnet(model: LiveModel, folder: Path) -> ControlNet:
    """Read a ControlNet for ``model`` from a folder as ``save_pretrained`` writes it.

    Raises:
        BackendError: not such a folder, not this family's kind of ControlNet, or too little memory.
    """
    part = _usual(model)
    if not (folder / "config.json").is_file():
        raise BackendError(f"{folder} is not a ControlNet folder: it has no config.json; point at one that has")
    dtype = model.spec.torch_dtype
    ensure_fits(f"ControlNet {folder}", folder_weight_bytes(folder, dtype), model.device)
    watch = Stopwatch(model.device)
    kind = getattr(diffusers, part.class_name.split(".")[1])
    try:
        net = kind.from_pretrained(str(folder), torch_dtype=dtype, local_files_only=True)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as broken:
        raise BackendError(f"{folder} could not be loaded as {kind.__name__}: {broken}") from broken
    net = net.to(model.device).eval().requires_grad_(False)
    return ControlNet(net, model.family, watch.lap())


def control(
    model: LiveModel, controlnet: ControlNet, images: Sequence[np.ndarray], width: int, height: int, guided: bool
) -> Control:
    """Prepare a ControlNet for a run, guided or not, on ``images``, uint8 (h, w, 3), resized; one per row."""
    pixels = autoencoder.as_pixels(images, width, height, model.device)
    with torch.no_grad():
        hint = controlnet.family.hint(model.pipe, controlnet.net, pixels)
    return Control(controlnet, torch.cat([hint, hint]) if guided else hint)


def inline(controls: Sequence[Control]) -> Predict:
    """Return a step of the denoiser with the residuals of ControlNets that run one after another."""
    family = controls[0].controlnet.family
    return lambda pipe, step: family.predict(pipe, step, add_up([run(step) for run in controls]))


def _usual(model: LiveModel) -> Part:
    """Return the usual ControlNet of the model's architecture. Raises BackendError if it has none."""
    offered = model.architecture.controlnets
    if not offered:
        raise BackendError(f"{model.architecture.variant} has no ControlNet here; use sd15, sdxl, sd3 or flux")
    return offered[0]


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
    """A step of a UNet with ControlNets on other devices, in virtual time.

    On the cluster the encoder and every ControlNet run at the same time (SwiftDiffusion, 4.1). On one device the
    ``parts`` of a step take turns and are timed; the result is the same.

    Raises:
        BackendError: the denoiser is no UNet.
    """

    controls: Sequence[Control]
    parts: list[StepParts] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.controls[0].controlnet.family.denoiser != "unet":
            said = "ControlNets add to every block of this denoiser, so none can run beside"
            raise BackendError(f"{said}; use sd15 or sdxl")

    def __call__(self, pipe: Any, step: StepInput) -> torch.Tensor:
        blocks, watch = list(pipe.unet.up_blocks), Stopwatch(step.x.device)
        seconds: list[float] = []
        skips: list[torch.Tensor] = []

        def receive(block: Any, args: Any, inputs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            # The encoder has ended when the first up block begins: the last instant at which residuals can be added.
            if block is blocks[0]:
                seconds.append(watch.lap())
                answers = []
                for run in self.controls:
                    answers.append(run(step))
                    seconds.append(watch.lap())
                total = add_up(answers)
                seconds.append(watch.lap())
                skips.extend(total.blocks)
                inputs["hidden_states"] = inputs["hidden_states"] + total.rest[0]
            residuals = [skips.pop() for _ in block.resnets][::-1]
            pairs = zip(inputs["res_hidden_states_tuple"], residuals, strict=True)
            inputs["res_hidden_states_tuple"] = tuple(skip + residual for skip, residual in pairs)
            return args, inputs

        hooks = [block.register_forward_pre_hook(receive, with_kwargs=True) for block in blocks]
        try:
            predicted = self.controls[0].controlnet.family.predict(pipe, step, None)
        finally:
            for hook in hooks:
                hook.remove()
        encoder_s, *controlnet_s, receive_s = seconds
        self.parts.append(StepParts(encoder_s, tuple(controlnet_s), receive_s, watch.lap()))
        return predicted
