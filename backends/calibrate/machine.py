"""The device at hand: what it is called, what runs on it, and what it reports of itself."""

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pynvml
import torch

from backends.diffusers_.device.memory import usable_device

PACKAGES = ("torch", "diffusers", "transformers", "peft")
_MAKERS = {"nvidia", "amd", "tesla", "geforce", "quadro", "instinct", "radeon"}


@dataclass(frozen=True, slots=True)
class Nvml:
    """One GPU as NVIDIA's driver sees it. What the driver does not report is None, never an error."""

    handle: Any

    def energy_j(self) -> float | None:
        """Joules drawn since the driver was loaded."""
        millijoules = _reported(pynvml.nvmlDeviceGetTotalEnergyConsumption, self.handle)
        return None if millijoules is None else millijoules / 1000

    def clock_mhz(self) -> int | None:
        """Clock of the streaming multiprocessors now."""
        clock: int | None = _reported(pynvml.nvmlDeviceGetClockInfo, self.handle, pynvml.NVML_CLOCK_SM)
        return clock


def open_nvml(uuid: str) -> Nvml | None:
    """Find a GPU by its ``uuid`` as torch gives it (without ``GPU-``); None where it or the driver is not there."""
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
    """A device and what decides its times besides the model: its name as it reports it (of a CPU with torch's threads),
    versions of packages, CUDA or ROCm and the driver, and the driver's meters where there are any."""

    device: torch.device
    name: str
    versions: dict[str, str]
    nvml: Nvml | None


def machine(device: str | torch.device) -> Machine:
    """Look at ``device``. Raises LiveError where there is no such device."""
    place = usable_device(device)
    versions = {package: version(package) for package in PACKAGES}
    if place.type != "cuda":
        threads = torch.get_num_threads()
        return Machine(place, f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}", versions, None)
    toolkits = {"cuda": torch.version.cuda, "rocm": torch.version.hip}
    versions |= {toolkit: found for toolkit, found in toolkits.items() if found is not None}
    properties = torch.cuda.get_device_properties(place)
    nvml = open_nvml(str(properties.uuid)) if torch.version.cuda is not None else None
    if nvml is not None and (driver := _reported(pynvml.nvmlSystemGetDriverVersion)) is not None:
        versions["driver"] = driver
    return Machine(place, properties.name, versions, nvml)


def short_name(device: str) -> str:
    """How profile files spell a GPU: ``NVIDIA H100 80GB HBM3`` is ``h100``, anything on a CPU is ``cpu``. Raises
    LiveError where there is no such device."""
    place = usable_device(device)
    return spelled(torch.cuda.get_device_properties(place).name) if place.type == "cuda" else "cpu"


def spelled(name: str) -> str:
    """The chip in a GPU's full name: its first word of letters and digits, or else all that is left."""
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
