"""The device at hand: checks that it exists and that a model fits on it, and a stopwatch."""

import gc
from time import perf_counter, process_time

import psutil
import torch

from mezzotint.backends.base import BackendError


def usable_device(device: str | torch.device) -> torch.device:
    """Return ``device`` as torch has it. Raises BackendError if there is no such device."""
    try:
        place = torch.device(device)
    except RuntimeError as unknown:
        raise BackendError(f"no device is called {device!r}; use 'cpu' or 'cuda'") from unknown
    if place.type == "cuda" and not (place.index or 0) < torch.cuda.device_count():
        raise BackendError(f"device {device} is not there ({torch.cuda.device_count()} GPUs are seen); use 'cpu'")
    return place


def available_bytes(device: torch.device) -> int:
    """Return the free bytes of a GPU's memory, or of the host's for another device."""
    return int(torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available)


def ensure_fits(what: str, needed_bytes: int, device: torch.device) -> None:
    """Raise BackendError if the weights of ``what`` need more bytes than are free."""
    free = available_bytes(device)
    if needed_bytes > free:
        said = f"{what} needs at least {needed_bytes / 2**30:.2f} GiB for its weights"
        remedy = "free the model that is loaded, use dtype 'bfloat16' or 'float16', a smaller variant, or scale 'tiny'"
        raise BackendError(f"{said} and {device} has {free / 2**30:.2f} GiB; {remedy}")


def tensor_bytes(*networks: torch.nn.Module) -> int:
    """Return the bytes of all weights and buffers of ``networks``."""
    return sum(tensor.nbytes for network in networks for tensor in (*network.parameters(), *network.buffers()))


def free_memory(device: torch.device) -> None:
    """Collect garbage and return cached memory to the device."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


class Stopwatch:
    """Measures work on ``device`` from lap to lap.

    On a GPU it waits for the device at each lap, so that queued kernels are counted, and reads the wall clock. On a
    CPU it reads the processor time of this process, all its threads together, without the turns of other programs.
    """

    __slots__ = ("_clock", "_device", "_last")

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._clock = process_time if device.type == "cpu" else perf_counter
        self._last = 0.0
        self.lap()

    def lap(self) -> float:
        """Return the seconds since the last lap, or since the watch was made."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = self._clock()
        elapsed, self._last = now - self._last, now
        return elapsed
