"""Whether a device is there and a model fits on it."""

import gc
from collections.abc import Iterable

import psutil
import torch

from backends.diffusers_.errors import LiveError
from backends.diffusers_.networks.architectures import Part
from backends.diffusers_.networks.components import on_meta


def usable_device(device: str | torch.device) -> torch.device:
    """``device`` as torch has it.

    Raises:
        LiveError: there is no such device here.
    """
    try:
        place = torch.device(device)
    except RuntimeError as unknown:
        raise LiveError(f"no device is called {device!r}; use 'cpu' or 'cuda'") from unknown
    if place.type == "cuda" and not (place.index or 0) < torch.cuda.device_count():
        raise LiveError(f"device {device} is not there ({torch.cuda.device_count()} GPUs are seen); use 'cpu'")
    return place


def weight_bytes(parts: Iterable[Part], dtype: torch.dtype) -> int:
    """Bytes of the weights of ``parts`` in ``dtype``: a lower bound, activations come on top."""
    return sum(round(_parameters(part) * dtype.itemsize) for part in parts)


def available_bytes(device: torch.device) -> int:
    """Bytes free on ``device`` now: of the GPU's memory, or of the host's for any other device."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return int(psutil.virtual_memory().available)


def ensure_fits(what: str, needed_bytes: int, device: torch.device) -> None:
    """Refuse to build what cannot fit.

    Args:
        what: name for the message.
        needed_bytes: weights alone.

    Raises:
        LiveError: more bytes are needed than are free.
    """
    free = available_bytes(device)
    if needed_bytes > free:
        raise LiveError(
            f"{what} needs at least {needed_bytes / 2**30:.2f} GiB for its weights and {device} has "
            f"{free / 2**30:.2f} GiB; free the model that is loaded, use dtype 'bfloat16' or 'float16', a "
            "smaller variant, or scale 'tiny'"
        )


def free_memory(device: torch.device) -> None:
    """Give back the memory of what nobody holds any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _parameters(part: Part) -> float:
    if part.parameters_millions is not None:
        return part.parameters_millions * 1e6
    return float(sum(each.numel() for each in on_meta(part).parameters()))
