"""What MLPerf's runs say of the shipped profiles: the server's batches, an image alone, and the known error."""

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.backends.profile import Profile, shipped, within
from mezzotint.sim.papers.hardware.mlperf import STEPS, Replay, Submission
from mezzotint.sim.papers.hardware.study import SUBMISSIONS as FILE
from mezzotint.sim.papers.rows import read_rows

ROWS = {row.name: row for row in read_rows(FILE, Submission)}
SUBMISSIONS = json.loads((Path(__file__).parents[3] / "results" / "hardware.json").read_text())["submissions"]
PROFILES = [profile for profile in within(shipped()) if profile.model == "sdxl-mlperf"]
SERVED = [profile for profile in PROFILES if any(point.batch == 8 for point in profile.step)]
NO_SERVER = [profile for profile in PROFILES if profile.gpu in ("b200", "rtx-pro-6000", "l4")]
IDENTITY = {"ids": lambda each: each.gpu if isinstance(each, Profile) else None}


def replayed(name: str) -> dict[str, Any]:
    (found,) = (each for each in SUBMISSIONS if each["name"] == name)
    return found  # type: ignore[no-any-return]


def full_s(name: str) -> float:
    """Seconds of a batch of 8 of a submission, fitted on its mean latency."""
    return float(8 * replayed(name)["fitted"]["image_s"])


@cache
def errors() -> dict[str, list[float]]:
    """Return seconds per image of the server run over those of the offline run, less one, by GPU."""
    found = defaultdict(list)
    for each in SUBMISSIONS:
        ratio = each["fitted"]["image_s"] / each["unfitted"]["image_s"]
        found[each["accelerator"].removeprefix("Virtualized ")].append(ratio - 1)
    return found


def error_bound(errors: list[float]) -> float:
    """Return the error that 90 % of the systems stay within."""
    return float(np.quantile(np.abs(errors), 0.9, method="inverted_cdf"))


@cache
def fixed_s() -> float:
    """Fixed seconds of a batch: the median over the systems whose fastest request was in a batch of 2."""
    found = [(8 * row.measured["min"] - 2 * full_s(name)) / 6 for name, row in ROWS.items() if "GH200" in name]
    return float(np.median(found))


def standalone_s(batch: int, seconds: float) -> float:
    """Seconds of an image alone, where a batch takes fixed seconds and the rest in proportion to its images."""
    return fixed_s() + (seconds - fixed_s()) / batch


@pytest.mark.parametrize("profile", [each for each in PROFILES if each.device in errors()], **IDENTITY)
def test_known_error_is_that_of_the_servers_of_its_gpu(profile: Profile) -> None:
    assert profile.service_error == pytest.approx(error_bound(errors()[str(profile.device)]), abs=5e-4)


@pytest.mark.parametrize("profile", NO_SERVER, **IDENTITY)
def test_known_error_without_a_server_run_is_that_of_all_gpus(profile: Profile) -> None:
    assert profile.service_error == pytest.approx(
        error_bound([each for found in errors().values() for each in found]), abs=5e-4
    )


@pytest.mark.parametrize("profile", SERVED, **IDENTITY)
def test_server_batch_time_is_the_fitted_one(profile: Profile) -> None:
    name = profile.source.removeprefix("MLPerf Inference ").partition(" (SDXL")[0]
    alone, batch, *_ = profile.step
    assert STEPS * batch.seconds == pytest.approx(full_s(name), rel=1e-4)
    assert STEPS * alone.seconds == pytest.approx(standalone_s(8, full_s(name)), rel=1e-4)
    assert f"fixed {fixed_s():.3f} s" in str(alone.source)
    assert "server run" in str(batch.source)


@pytest.mark.parametrize("profile", NO_SERVER, **IDENTITY)
def test_standalone_time_without_a_server_run_follows_from_the_offline_batch(profile: Profile) -> None:
    alone, batch = profile.step
    assert STEPS * alone.seconds == pytest.approx(standalone_s(batch.batch, STEPS * batch.seconds), rel=1e-4)
    assert f"fixed {fixed_s():.3f} s" in str(alone.source)


@pytest.mark.parametrize("row", [row for name, row in ROWS.items() if "GH200" in name], ids=lambda row: row.name)
def test_fastest_request_of_a_gh200_was_in_an_unqueued_batch_of_two(row: Submission, tmp_path: Path) -> None:
    """By the arrivals, which are made again from the logged seed."""
    replay = Replay(row, tmp_path)
    seconds = replay.latencies_s(replayed(row.name)["fitted"]["image_s"] / replay.base_s)
    assert seconds[0] == pytest.approx(full_s(row.name) * 2 / 8)
    assert row.measured["min"] > seconds[0] * 1.15, "the share of a batch is too little"


def test_fixed_seconds_predict_the_fastest_requests_of_two_other_systems() -> None:
    """An H100 NVL served an image alone at once; the image on an H100 PCIe had waited 1.415 s for a GPU."""
    nvl, pcie = (next(name for name in ROWS if part in name) for part in ("DL380a_H100_NVL", "C245M8_H100_PCIe"))
    assert standalone_s(8, full_s(nvl)) == pytest.approx(ROWS[nvl].measured["min"], rel=0.01)
    assert standalone_s(8, full_s(pcie)) + 1.415 == pytest.approx(ROWS[pcie].measured["min"], rel=0.01)
