"""The ControlNets and LoRAs of a live model, under the names that a trace gives them."""

import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from mezzotint.backends.base import BackendError
from mezzotint.backends.diffusers_.addons.controlnet import (
    Control,
    ControlNet,
    control,
    open_controlnet,
    random_controlnet,
)
from mezzotint.backends.diffusers_.addons.lora import Loras, LoraWeights, read_lora, write_random_lora
from mezzotint.backends.diffusers_.model import LiveModel

LORA_RANK = 64
"""Default rank in ``mezzotint calibrate``."""


@dataclass(slots=True)
class AddOns:
    """The add-ons of ``model``.

    Traces contain only names of add-ons. Each name stands for one of the usual architecture, with random weights seeded
    by the name.

    Attributes:
        store: a folder for them, so that loading one reads a disk; None draws ControlNets anew and reads LoRAs from a
            temporary folder.
        used: True if any was used.
        in_line: numbers of inline ControlNets that ran so far.
        stepped_remote: True if remote ControlNets ran so far.
        lora_rank: of the LoRAs used so far; None without any.
    """

    model: LiveModel
    store: Path | None = None
    used: bool = field(init=False, default=False)
    in_line: set[int] = field(init=False, default_factory=set)
    stepped_remote: bool = field(init=False, default=False)
    lora_rank: int | None = field(init=False, default=None)
    _scratch: TemporaryDirectory[str] | None = field(init=False, default=None)
    _nets: dict[str, ControlNet] = field(init=False, default_factory=dict)
    _read: dict[str, LoraWeights] = field(init=False, default_factory=dict)
    _loras: Loras = field(init=False)

    def __post_init__(self) -> None:
        self._loras = Loras(self.model)

    def load_controlnet(self, name: str) -> float:
        """Load ControlNet ``name``, again if it is there; return the seconds."""
        self._nets.pop(name, None)
        return self.controlnet(name).load_s

    def controlnet(self, name: str) -> ControlNet:
        """Return ControlNet ``name``, loaded if needed. Raises BackendError if it cannot be loaded."""
        if name not in self._nets:
            try:
                self._nets[name] = self._loaded(name)
            except BackendError:
                if not self._nets:
                    raise
                self._nets.clear()  # on the cluster they have other GPUs; on one device they take turns
                self._nets[name] = self._loaded(name)
        return self._nets[name]

    def hint(self, name: str, width: int, height: int, seed: int) -> torch.Tensor:
        """Return the input of ControlNet ``name``, (1, ...), for a picture drawn from ``seed``."""
        picture = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        return control(self.model, self.controlnet(name), [picture], width, height, guided=False).hint

    def controls(
        self, names: Sequence[str], hints: Sequence[Mapping[str, torch.Tensor]], guided: bool
    ) -> list[Control]:
        """Return the ControlNets ``names`` for a batch with ``hints`` by row."""
        rows = {name: [row[name] for row in hints] for name in names}
        return [
            Control(self.controlnet(name), torch.cat([*rows[name], *rows[name]] if guided else rows[name]))
            for name in names
        ]

    def load_lora(self, name: str) -> float:
        """Read LoRA ``name`` and patch it into the model instead of the present ones; return the seconds of both."""
        seconds = self.read_lora(name)
        self._loras.clear()
        return seconds + self._loras.patch([self._read[name]])

    def read_lora(self, name: str) -> float:
        """Read LoRA ``name`` into host memory, again if it is there; return the seconds."""
        weights = self._read[name] = read_lora(self._lora_file(name), _stem(name))
        return weights.read_s

    def create_lora(self, name: str, beside: Sequence[str]) -> float:
        """Attach LoRA ``name`` to layers with exactly those of ``beside``, and fuse all; return the seconds of both."""
        if self._loras.merged or self._loras.attached != [_stem(lora) for lora in beside]:
            self._loras.clear()
            for lora in beside:
                self._loras.attach(self._weights(lora))
        if self._loras.fused:
            self._loras.unfuse()
        return self._loras.attach(self._weights(name)) + self._loras.fuse()

    def merge(self, names: Sequence[str]) -> float:
        """Merge exactly the LoRAs ``names`` into the weights in place; return the seconds of that alone."""
        weights = [self._weights(name) for name in dict.fromkeys(names)]
        self._loras.clear()
        return self._loras.merge(weights)

    def restore(self, names: Sequence[str]) -> float:
        """Take the merged LoRAs ``names`` out of the weights; return the seconds."""
        if sorted(self._loras.merged) != sorted({_stem(name) for name in names}):
            self.merge(names)  # another simulated worker had them merged
        return self._loras.restore()

    def lora_bytes(self, name: str) -> int:
        return self._lora_file(name).stat().st_size

    def patch(self, names: Sequence[str]) -> None:
        """Merge exactly the LoRAs ``names`` into the model's weights if they are not there."""
        wanted = sorted({_stem(name) for name in names})
        if sorted([*self._loras.fused, *self._loras.merged]) != wanted:
            self.merge(names)

    def _weights(self, name: str) -> LoraWeights:
        if name not in self._read:
            self.read_lora(name)
        return self._read[name]

    def _loaded(self, name: str) -> ControlNet:
        self.used = True
        seed = zlib.crc32(name.encode())
        if self.store is None:
            return random_controlnet(self.model, seed=seed)
        folder = self.store / f"controlnet-{_stem(name)}"
        if not (folder / "config.json").is_file():
            random_controlnet(self.model, seed=seed).net.save_pretrained(str(folder))
        return open_controlnet(self.model, folder)

    def _lora_file(self, name: str) -> Path:
        self.used, self.lora_rank = True, LORA_RANK
        if self.store is None and self._scratch is None:
            self._scratch = TemporaryDirectory(prefix="mezzotint-")
        folder = self.store or Path(self._scratch.name if self._scratch else "")
        file = folder / f"{_stem(name)}.safetensors"
        if not file.is_file():
            write_random_lora(self.model, file, LORA_RANK, seed=zlib.crc32(name.encode()))
        return file


def _stem(name: str) -> str:
    """Return a name for files and adapters; names in traces may hold slashes and dots."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]
