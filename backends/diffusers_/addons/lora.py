"""LoRAs on a live model: attached and fused as adapters, or merged in place, also during a run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from mezzotint.backends.base import BackendError
from mezzotint.backends.diffusers_.device import Stopwatch
from mezzotint.backends.diffusers_.model import LiveModel
from mezzotint.networks.quiet import quiet

ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")
DOWN, UP = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True, slots=True)
class LoraWeights:
    """A LoRA in host memory: its name as an adapter, the tensors of its file, and the seconds to read it."""

    name: str
    tensors: Mapping[str, torch.Tensor]
    read_s: float


def read_lora(path: Path, name: str) -> LoraWeights:
    """Read a LoRA file (safetensors) into host memory. Raises BackendError if there is none."""
    if not path.is_file():
        raise BackendError(f"no LoRA file {path}; give the path of a .safetensors file")
    watch = Stopwatch(torch.device("cpu"))
    try:
        tensors = load_file(str(path))
    except Exception as broken:
        raise BackendError(f"{path} is not a readable safetensors file ({broken}); fetch it anew") from broken
    return LoraWeights(name, tensors, watch.lap())


def write_random_lora(model: LiveModel, path: Path, rank: int, seed: int, std: float = 0.02) -> None:
    """Write a LoRA file for the denoiser's attention layers: both factors, of ``rank``, drawn from a normal."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, layer in model.denoiser.named_modules():
        name = name.removesuffix(".base_layer")  # another LoRA may be attached already
        if isinstance(layer, torch.nn.Linear) and name.endswith(ATTENTION):
            stem = f"{model.family.denoiser}.{name}"
            down = torch.randn(rank, layer.in_features, generator=generator) * std
            up = torch.randn(layer.out_features, rank, generator=generator) * std
            tensors[stem + DOWN] = down.to(layer.weight.dtype).contiguous()
            tensors[stem + UP] = up.to(layer.weight.dtype).contiguous()
    save_file(tensors, str(path))


@dataclass(slots=True)
class Loras:
    """The LoRAs on one model's denoiser. Methods return the seconds they took, device included.

    An attached LoRA works as side branches, which cost time at every step. Fusing folds it into the weights and saves
    that cost. Unfusing subtracts it again, so weights return up to rounding; ``clear`` also removes the layers.

    A merged LoRA creates and replaces no layer (SwiftDiffusion, 4.2). Original weights are kept on the same device, so
    ``restore`` is a copy and exact to the bit.

    Attributes:
        attached, fused, merged: names of LoRAs.
    """

    model: LiveModel
    attached: list[str] = field(default_factory=list)
    fused: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    _kept: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)

    def attach(self, weights: LoraWeights) -> float:
        """Put a LoRA on the device and activate it with the present ones; none may be fused.

        Raises:
            BackendError: it does not fit the model.
        """
        pipe, watch = self.model.pipe, Stopwatch(self.model.device)
        try:
            with quiet("diffusers.loaders.lora_base"):  # says that the text encoders have no LoRA
                pipe.load_lora_weights(dict(weights.tensors), adapter_name=weights.name)
        except (ValueError, RuntimeError, KeyError, IndexError) as misfit:
            if not self.attached:
                pipe.unload_lora_weights()
            raise BackendError(f"LoRA {weights.name!r} does not fit {self.model.spec.family}: {misfit}") from misfit
        if weights.name not in pipe.get_list_adapters().get(self.model.family.denoiser, ()):
            raise self._changes_nothing(weights)
        self.attached.append(weights.name)
        pipe.set_adapters(list(self.attached))
        return watch.lap()

    def fuse(self) -> float:
        """Fold every attached LoRA into the weights, once."""
        watch = Stopwatch(self.model.device)
        self.model.pipe.fuse_lora(components=[self.model.family.denoiser], adapter_names=list(self.attached))
        self.fused = list(self.attached)
        return watch.lap()

    def unfuse(self) -> float:
        """Take the fused LoRAs out of the weights; they stay attached."""
        watch = Stopwatch(self.model.device)
        self.model.pipe.unfuse_lora(components=[self.model.family.denoiser])
        self.fused = []
        return watch.lap()

    def patch(self, weights: Iterable[LoraWeights]) -> float:
        """Attach and fuse in one go, as between two steps of a run (SwiftDiffusion, section 4.2)."""
        return sum(self.attach(lora) for lora in weights) + self.fuse()

    def merge(self, weights: Sequence[LoraWeights]) -> float:
        """Add all LoRAs to their layers in place, or none on an error. None may be merged already.

        Raises:
            BackendError: a LoRA changes no layer, or one that the denoiser lacks in that shape.
        """
        changes = [list(self._changes(lora)) for lora in weights]
        watch = Stopwatch(self.model.device)
        with torch.no_grad():
            for name, layer, down, up in chain.from_iterable(changes):
                near = {"device": layer.weight.device, "dtype": layer.weight.dtype}
                if name not in self._kept:
                    self._kept[name] = layer.weight.detach().clone()
                layer.weight.addmm_(up.to(**near), down.to(**near))
        self.merged += [lora.name for lora in weights]
        return watch.lap()

    def restore(self) -> float:
        """Take all merged LoRAs out."""
        watch = Stopwatch(self.model.device)
        with torch.no_grad():
            for name, weight in self._kept.items():
                self.model.denoiser.get_submodule(name).weight.copy_(weight)
        self._kept.clear()
        self.merged.clear()
        return watch.lap()

    def clear(self) -> None:
        """Take everything out of the weights, and detach it."""
        if self.merged:
            self.restore()
        if self.fused:
            self.unfuse()
        if self.attached:
            self.model.pipe.unload_lora_weights()
            self.attached = []

    def _changes(self, weights: LoraWeights) -> Iterator[tuple[str, Any, torch.Tensor, torch.Tensor]]:
        prefix = f"{self.model.family.denoiser}."
        stems = [key.removesuffix(DOWN) for key in weights.tensors if key.endswith(DOWN)]
        if not stems:
            raise self._changes_nothing(weights)
        layers = dict(self.model.denoiser.named_modules())
        for stem in stems:
            down, up = weights.tensors[stem + DOWN], weights.tensors.get(stem + UP)
            name = stem.removeprefix(prefix)
            layer = layers.get(name)
            if layer is None or up is None or layer.weight.shape != (up.shape[0], down.shape[1]):
                raise BackendError(f"LoRA {weights.name!r} does not fit {self.model.spec.family}: its layer {stem}")
            yield name, layer, down, up

    def _changes_nothing(self, weights: LoraWeights) -> BackendError:
        return BackendError(f"LoRA {weights.name!r} changes no layer of {self.model.spec.family}; check its family")
