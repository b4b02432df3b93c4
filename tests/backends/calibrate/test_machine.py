"""What a device is called, and what its meters say."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("diffusers")

from backends.calibrate import Cell
from backends.calibrate.bench import Bench
from backends.calibrate.machine import machine, short_name, spelled
from backends.calibrate.nvml import Nvml, open_nvml
from backends.calibrate.session import complete


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("AMD Instinct MI210", "mi210"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ],
)
def test_a_gpu_is_spelled_as_profile_files_spell_it(device: str, name: str) -> None:
    assert spelled(device) == name


def test_a_cpu_says_how_many_threads() -> None:
    here = machine("cpu")
    assert short_name("cpu") == "cpu"
    assert here.name.endswith("1 thread")
    assert here.nvml is None
    assert {"torch", "diffusers"} <= set(here.versions)


class Driver:
    """A management library whose device draws 1.5 J between any two readings; ``refuses`` names what it lacks."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.readings = count(1)

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        return 0 if uuid == b"GPU-12ab" else 6

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any, millijoules: Any) -> int:
        millijoules._obj.value = 1500 * next(self.readings)
        return 3 if self.refuses == "energy" else 0

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, megahertz: Any) -> int:
        megahertz._obj.value = 1980
        return 3 if self.refuses == "clock" else 0

    def nvmlSystemGetDriverVersion(self, text: Any, length: ctypes.c_uint) -> int:
        text.value = b"570.86.15"
        return 0


def test_the_driver_is_asked_in_its_own_units() -> None:
    nvml = open_nvml("12ab", Driver())
    assert nvml is not None
    assert (nvml.energy_j(), nvml.clock_mhz(), nvml.driver()) == (1.5, 1980, "570.86.15")
    assert open_nvml("elsewhere", Driver()) is None
    lacking = open_nvml("12ab", Driver("energy"))
    assert lacking is not None
    assert lacking.energy_j() is None


def test_energy_per_step_is_what_the_counter_rose_by(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.calibrate.bench.ENERGY_WINDOW_S", 0.0)
    wanted = plan("sana", shapes=((64, 64, 1),), repeats=2, steps_timed=2)
    metered = replace(machine("cpu"), nvml=Nvml(Driver(), None))
    monkeypatch.setattr("backends.calibrate.session.machine", lambda device: metered)
    profile = complete(wanted, tmp_path, progress=False).profile
    assert profile.energy[0].joules == pytest.approx(1.5 / 6), "two rounds of a dropped step and two timed ones"
    assert profile.power_w is not None
    assert profile.notes is not None
    assert "1980" in profile.notes
    assert "drew" in (tmp_path / "cpu_sana-tiny.md").read_text()


def test_a_short_cell_is_run_on_until_the_counter_has_moved(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backends.calibrate.bench.ENERGY_WINDOW_S", 0.3)
    wanted = plan("sana", repeats=1, steps_timed=1)
    bench = Bench(wanted, replace(machine("cpu"), nvml=Nvml(Driver(), None)))
    got = bench(Cell(operation="step", width=64, height=64, batch=1))
    assert got.power_w is not None
    assert got.power_w <= 1.5 / 0.3
    assert len(got.seconds["seconds"]) == 1, "what is run on for the energy is no further sample"
    silent = Bench(replace(wanted, energy="off"), bench.machine, bench.model)
    assert silent(Cell(operation="step", width=64, height=64, batch=1)).energy_j is None
