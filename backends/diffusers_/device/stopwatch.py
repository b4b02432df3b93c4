"""A stopwatch for work on a device; a GPU works asynchronously, so laps synchronise it."""

from time import perf_counter, process_time

import torch


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
