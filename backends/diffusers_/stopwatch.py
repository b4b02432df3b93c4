"""Seconds of work on a device, which runs behind the host unless it is waited for."""

from __future__ import annotations

from time import perf_counter

import torch


class Stopwatch:
    """Measures from lap to lap, waiting for the device at each so that queued kernels are counted.

    Args:
        device: the device whose work is timed; only CUDA is asynchronous and waited for.
    """

    __slots__ = ("_device", "_last")

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._last = 0.0
        self.lap()

    def lap(self) -> float:
        """Seconds since the last lap (or since the watch was made)."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        now = perf_counter()
        elapsed, self._last = now - self._last, now
        return elapsed
