"""The model that is on a device now: loaded, switched and freed for real, with the seconds that took."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Literal

import torch

from backends.diffusers_.device.memory import usable_device
from backends.diffusers_.device.stopwatch import Stopwatch
from backends.diffusers_.errors import LiveError
from backends.diffusers_.model import LiveModel
from backends.diffusers_.networks.build import build
from backends.diffusers_.networks.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Load:
    """One switch of models.

    Attributes:
        seconds: until the model could serve, freeing the previous one included.
        how: ``kept`` (it was there), ``host`` (copied from host memory), ``read`` (from a folder) or
            ``drawn`` (random weights made on the device, which says nothing about a disk).
    """

    seconds: float
    how: Literal["kept", "host", "read", "drawn"]


@dataclass(slots=True)
class Resident:
    """A device that holds one model at a time.

    Attributes:
        device: the device.
        keep_on_host: whether a model that makes room waits in host memory, as a server would keep it, rather
            than being read anew. Off a GPU both memories are one and the copy is free.
        current: the model on the device.
    """

    device: torch.device
    keep_on_host: bool = False
    current: LiveModel | None = None
    _parked: dict[ModelSpec, LiveModel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.device = usable_device(self.device)

    def load(self, spec: ModelSpec) -> Load:
        """Make ``spec`` the model on the device, freeing the one before.

        Raises:
            LiveError: it cannot be built; the device is empty then.
        """
        watch = Stopwatch(self.device)
        if self.current is not None and self.current.spec == spec:
            return Load(watch.lap(), "kept")
        self._make_room()
        waiting = self._parked.pop(spec, None)
        if waiting is not None:
            _move(waiting, self.device)
            self.current = waiting
            return Load(watch.lap(), "host")
        self.current = build(spec, self.device)
        return Load(watch.lap(), "drawn" if spec.weights == "random" else "read")

    def model(self) -> LiveModel:
        """The model on the device.

        Raises:
            LiveError: there is none.
        """
        if self.current is None:
            raise LiveError(f"no model is on {self.device}; load one first")
        return self.current

    def free(self) -> float:
        """Empty the device and the host copies; seconds it took."""
        watch = Stopwatch(self.device)
        self.current = None
        self._parked.clear()
        self._collect()
        return watch.lap()

    def _make_room(self) -> None:
        if self.current is not None and self.keep_on_host:
            _move(self.current, torch.device("cpu"))
            self._parked[self.current.spec] = self.current
        self.current = None
        self._collect()

    def _collect(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _move(model: LiveModel, device: torch.device) -> None:
    for each in model.pipe.components.values():
        if isinstance(each, torch.nn.Module):
            each.to(device)
