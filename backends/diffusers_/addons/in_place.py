"""LoRAs merged into the weights in place: no layer is created or replaced (SwiftDiffusion, 4.2)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from backends.diffusers_.addons.lora import LoraWeights
from backends.diffusers_.device.stopwatch import Stopwatch
from backends.diffusers_.errors import LiveError
from backends.diffusers_.model import LiveModel

DOWN, UP = ".lora_A.weight", ".lora_B.weight"


@dataclass(slots=True)
class InPlace:
    """The LoRAs in one model's denoiser. Both methods return the seconds they took, device included.

    Weights that a LoRA changes are kept as they were on the same device, so that to take LoRAs out is to copy: what is
    there after ``restore`` is what was there before the first ``merge``, to the bit.

    Attributes:
        model: the model they are in.
        merged: their names.
    """

    model: LiveModel
    merged: list[str] = field(default_factory=list)
    _kept: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    def merge(self, weights: Sequence[LoraWeights], scale: float = 1.0) -> float:
        """Add each, times ``scale``, to the layers that it changes; at once, or none at all.

        Raises:
            LiveError: one is merged already, changes no layer, or one that the denoiser does not have in that shape.
        """
        changes = [list(self._changes(each)) for each in weights]
        watch = Stopwatch(self.model.device)
        with torch.no_grad():
            for each, found in zip(weights, changes, strict=True):
                for name, layer, down, up in found:
                    near = {"device": layer.weight.device, "dtype": layer.weight.dtype}
                    if name not in self._kept:
                        self._kept[name] = layer.weight.detach().clone()
                    layer.weight.addmm_(up.to(**near), down.to(**near), alpha=scale)
                self.merged.append(each.name)
        return watch.lap()

    def restore(self) -> float:
        """Take all of them out."""
        watch = Stopwatch(self.model.device)
        with torch.no_grad():
            for name, weight in self._kept.items():
                self.model.denoiser.get_submodule(name).weight.copy_(weight)
        self._kept.clear()
        self.merged.clear()
        return watch.lap()

    def _changes(self, weights: LoraWeights) -> Iterator[tuple[str, Any, torch.Tensor, torch.Tensor]]:
        if weights.name in self.merged:
            raise LiveError(f"LoRA {weights.name!r} is merged already; restore the weights or give another name")
        prefix = f"{self.model.family.denoiser}."
        stems = [key.removesuffix(DOWN) for key in weights.tensors if key.endswith(DOWN)]
        if not stems:
            raise LiveError(f"LoRA {weights.name!r} changes no layer of {self.model.spec.family}; check its family")
        for stem in stems:
            down, up = weights.tensors[stem + DOWN], weights.tensors.get(stem + UP)
            name = stem.removeprefix(prefix)
            try:
                layer = self.model.denoiser.get_submodule(name)
            except AttributeError:
                layer = None
            if layer is None or up is None or layer.weight.shape != (up.shape[0], down.shape[1]):
                raise LiveError(f"LoRA {weights.name!r} does not fit {self.model.spec.family}: its layer {stem}")
            yield name, layer, down, up
