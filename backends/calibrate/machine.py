"""The device at hand: its name, software versions and meters."""

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pynvml
import torch

from mezzotint.backends.diffusers_.device import usable_device

PACKAGES = ("torch", "diffusers", "transformers", "peft")
_MAKERS = {"nvidia", "amd", "tesla", "geforce", "quadro", "instinct", "radeon"}


@dataclass(frozen=True, slots=True)
class Nvml:
    """Meters of one GPU in NVIDIA's driver; a value that it does not report is None, never an error."""

    handle: Any

    def energy_j(self) -> float | None:
        """Return the joules drawn since the driver was loaded."""
        millijoules = _reported(pynvml.nvmlDeviceGetTotalEnergyConsumption, self.handle)
        return None if millijoules is None else millijoules / 1000

    def clock_mhz(self) -> int | None:
        """Return the present clock of the streaming multiprocessors."""
        clock: int | None = _reported(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_SM)
        return clock


def open_nvml(uuid: str) -> Nvml | None:
    """Find a GPU by its ``uuid`` as torch gives it (without ``GPU-``); None if it or the driver is absent."""
    try:
        pynvml.nvmlInit()
        return Nvml(pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
    except pynvml.NVMLError:
        return None


def _reported(ask: Callable[..., Any], *of: Any) -> Any:
    try:
        return ask(*of)
    except pynvml.NVMLError:
        return None


@dataclass(frozen=True, slots=True)
class Machine:
    """A device and the software that its times depend on.

    Attributes:
        name: as the device reports it; of a CPU with torch's threads.
        versions: of packages, CUDA or ROCm, and the driver.
        nvml: the driver's meters; None without any.
    """

    device: torch.device
    name: str
    versions: dict[str, str]
    nvml: Nvml | None


def machine(device: str | torch.device) -> Machine:
    """Describe ``device``. Raises BackendError if there is no such device."""
    place = usable_device(device)
    versions = {package: version(package) for package in PACKAGES}
    if place.type != "cuda":
        threads = torch.get_num_threads()
        return Machine(place, f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}", versions, None)
    toolkits = {"cuda": torch.version.cuda, "rocm": torch.version.hip}
    versions |= {toolkit: number for toolkit, number in toolkits.items() if number is not None}
    properties = torch.cuda.get_device_properties(place)
    nvml = open_nvml(str(properties.uuid)) if torch.version.cuda is not None else None
    if nvml is not None and (driver := _reported(pynvml.nvmlSystemGetDriverVersion)) is not None:
        versions["driver"] = driver
    return Machine(place, properties.name, versions, nvml)


def short_name(device: str) -> str:
    """Return a device's name in profile files: ``h100`` for ``NVIDIA H100 80GB HBM3``, ``cpu`` for any CPU.

    Raises:
        BackendError: there is no such device.
    """
    place = usable_device(device)
    return spelled(torch.cuda.get_device_properties(place).name) if place.type == "cuda" else "cpu"


def spelled(name: str) -> str:
    """Return the chip in a GPU's full name: its first word of letters and digits, or else the whole rest."""
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word and word not in _MAKERS]
    chips = [word for word in words if re.fullmatch(r"[a-z]+\d+[a-z]*", word)]
    return chips[0] if chips else "-".join(words) or "gpu"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        named = re.search(r"^model name\s*:\s*(.+)$", info.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if named:
            return named.group(1).strip()
    return platform.processor() or platform.machine() or "CPU"
