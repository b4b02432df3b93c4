"""Devices: those that are not there, models that do not fit, and the stopwatch."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from mezzotint.backends.base import BackendError  # noqa: E402
from mezzotint.backends.diffusers_ import ModelSpec, build  # noqa: E402
from mezzotint.backends.diffusers_.device import Stopwatch  # noqa: E402


def test_stopwatch_excludes_waiting_on_a_cpu() -> None:
    watch = Stopwatch(torch.device("cpu"))
    time.sleep(0.2)
    assert watch.lap() < 0.05


@pytest.mark.parametrize("device", ["cuda:99", "abacus"])
def test_unknown_device_is_named(device: str) -> None:
    with pytest.raises(BackendError, match=device):
        build(ModelSpec("sd15", scale="tiny"), device)


def test_too_little_memory_is_refused_before_building(
    tiny: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny["sd15"].save(tmp_path)
    monkeypatch.setattr("mezzotint.backends.diffusers_.device.available_bytes", lambda device: 16 * 2**20)
    with pytest.raises(BackendError, match=r"full flux_dev in bfloat16 needs at least 31\.42 GiB.*cpu has 0\.02 GiB"):
        build(ModelSpec("flux", dtype="bfloat16"))
    monkeypatch.setattr("mezzotint.backends.diffusers_.device.available_bytes", lambda device: 1000)
    with pytest.raises(BackendError, match="needs at least"):
        build(ModelSpec("sd15", weights=str(tmp_path)))
