"""NVIDIA's management library, which every driver brings: energy, clocks, driver version.

Called through ctypes, so that a bare GPU image measures energy too, whatever Python packages it lacks.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

_SM_CLOCK = 1  # nvmlClockType_t: NVML_CLOCK_SM
_TEXT_BYTES = 80  # NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE


@dataclass(slots=True)
class Nvml:
    """One GPU as the driver sees it. What it does not report is None, never an error."""

    library: Any
    handle: Any

    def energy_j(self) -> float | None:
        """Joules drawn since the driver was loaded (a counter; differences are what counts)."""
        millijoules = ctypes.c_ulonglong()
        status = self.library.nvmlDeviceGetTotalEnergyConsumption(self.handle, ctypes.byref(millijoules))
        return None if status else millijoules.value / 1000

    def clock_mhz(self) -> int | None:
        """Clock of the streaming multiprocessors now."""
        megahertz = ctypes.c_uint()
        status = self.library.nvmlDeviceGetClockInfo(self.handle, _SM_CLOCK, ctypes.byref(megahertz))
        return None if status else int(megahertz.value)

    def driver(self) -> str | None:
        """Version of the driver."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        status = self.library.nvmlSystemGetDriverVersion(text, ctypes.c_uint(_TEXT_BYTES))
        return None if status else text.value.decode()


def open_nvml(uuid: str, library: Any = None) -> Nvml | None:
    """Find a GPU by its ``uuid`` as torch gives it (without ``GPU-``); None where it cannot be found.

    Args:
        library: stands in for the driver's, in tests.
    """
    if library is None:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return None
    handle = ctypes.c_void_p()
    if library.nvmlInit_v2():
        return None
    if library.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode(), ctypes.byref(handle)):
        return None
    return Nvml(library, handle)
