"""Checks that a device exists and that a model fits on it."""

import gc
from collections.abc import Iterable

import psutil
import torch

from mezzotint.backends.diffusers_.errors import LiveError
from mezzotint.backends.diffusers_.networks.architectures import Part
from mezzotint.backends.diffusers_.networks.components import on_meta


def usable_device(device: str | torch.device) -> torch.device:
    """Return ``device`` as torch has it. Raises LiveError if there is no such device."""
    try:
        place = torch.device(device)
    except RuntimeError as unknown:
        raise LiveError(f"no device is called {device!r}; use 'cpu' or 'cuda'") from unknown
    if place.type == "cuda" and not (place.index or 0) < torch.cuda.device_count():
        raise LiveError(f"device {device} is not there ({torch.cuda.device_count()} GPUs are seen); use 'cpu'")
    return place


def weight_bytes(parts: Iterable[Part], dtype: torch.dtype) -> int:
    """Return the bytes of the weights of ``parts`` in ``dtype``, a lower bound without activations."""

    def parameters(part: Part) -> float:
        published = part.parameters_millions
        return published * 1e6 if published is not None else sum(each.numel() for each in on_meta(part).parameters())

    return sum(round(parameters(part) * dtype.itemsize) for part in parts)


def available_bytes(device: torch.device) -> int:
    """Return the free bytes of a GPU's memory, or of the host's for another device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return int(psutil.virtual_memory().available)


def ensure_fits(what: str, needed_bytes: int, device: torch.device) -> None:
    """Raise LiveError if the weights of ``what`` need more bytes than are free."""
    free = available_bytes(device)
    if needed_bytes > free:
        said = f"{what} needs at least {needed_bytes / 2**30:.2f} GiB for its weights"
        remedy = "free the model that is loaded, use dtype 'bfloat16' or 'float16', a smaller variant, or scale 'tiny'"
        raise LiveError(f"{said} and {device} has {free / 2**30:.2f} GiB; {remedy}")


def free_memory(device: torch.device) -> None:
    """Collect garbage and return cached memory to the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
