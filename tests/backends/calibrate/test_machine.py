"""Names of devices, and readings of their meters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pynvml = pytest.importorskip("pynvml")
pytest.importorskip("torch")
pytest.importorskip("diffusers")

from mezzotint.backends.calibrate import Cell  # noqa: E402
from mezzotint.backends.calibrate.bench import Bench  # noqa: E402
from mezzotint.backends.calibrate.machine import Machine, machine, open_nvml, short_name, spelled  # noqa: E402
from mezzotint.backends.calibrate.session import complete  # noqa: E402


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ],
)
def test_gpu_is_spelled_as_in_profile_files(device: str, name: str) -> None:
    assert spelled(device) == name


def test_cpu_name_states_its_threads() -> None:
    here = machine("cpu")
    assert short_name("cpu") == "cpu"
    assert here.name.endswith("1 thread")
    assert here.nvml is None
    assert {"torch", "diffusers"} <= set(here.versions)


class Driver:
    """Stub of pynvml for a device that draws 1.5 J between two readings; it does not report ``lacks``."""

    NVMLError = pynvml.NVMLError
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM

    def __init__(self, lacks: str = "") -> None:
        self.lacks = lacks
        self.readings = count(1)

    def nvmlInit(self) -> None:
        if self.lacks == "driver":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != "GPU-12ab":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        if self.lacks == "energy":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 1500 * next(self.readings)

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        assert kind == pynvml.NVML_CLOCK_SM
        return 1980


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """Build a machine whose meters are those of a ``Driver``, as for a GPU."""

    def made(lacks: str = "") -> Machine:
        monkeypatch.setattr("mezzotint.backends.calibrate.machine.pynvml", Driver(lacks))
        return replace(machine("cpu"), nvml=open_nvml("12ab"))

    return made


def test_driver_readings_are_converted_to_joules_and_mhz(metered: Any) -> None:
    nvml = metered().nvml
    assert (nvml.energy_j(), nvml.clock_mhz()) == (1.5, 1980)
    assert open_nvml("elsewhere") is None
    lacking = metered("energy").nvml
    assert (lacking.energy_j(), lacking.clock_mhz()) == (None, 1980)
    assert metered("driver").nvml is None


def test_energy_per_step_is_the_rise_of_the_counter(
    plan: Any, metered: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mezzotint.backends.calibrate.bench.ENERGY_WINDOW_S", 0.0)
    wanted = plan("sana", shapes=((64, 64, 1),), repeats=2, steps_timed=2)
    here = metered()
    monkeypatch.setattr("mezzotint.backends.calibrate.session.machine", lambda device: here)
    profile = complete(wanted, tmp_path, progress=False).profile
    assert profile.energy[0].joules == pytest.approx(1.5 / 6), "two rounds of a dropped step and two timed ones"
    assert profile.power_w is not None
    assert profile.notes is not None
    assert "1980" in profile.notes
    assert "drew" in (tmp_path / "cpu_sana-tiny.md").read_text()


def test_short_cell_repeats_until_the_counter_moves(plan: Any, metered: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzotint.backends.calibrate.bench.ENERGY_WINDOW_S", 0.3)
    wanted = plan("sana", repeats=1, steps_timed=1)
    bench = Bench(wanted, metered())
    got = bench(Cell(operation="step", width=64, height=64, batch=1))
    assert got.power_w is not None
    assert got.power_w <= 1.5 / 0.3
    assert len(got.seconds["seconds"]) == 1, "what is run on for the energy is no further sample"
    silent = Bench(replace(wanted, energy="off"), bench.machine, bench.model)
    assert silent(Cell(operation="step", width=64, height=64, batch=1)).energy_j is None
