"""What MLPerf's runs say of the shipped profiles: the server's batches, an image alone, and the known error."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mezzotint.backends.profile import Profile, shipped, within
from mezzotint.sim.papers.hardware import study
from mezzotint.sim.papers.hardware.mlperf import STEPS, OfflineRun, Replay, Submission, image_s_by_round
from mezzotint.sim.papers.rows import read_rows
from tests.conftest import REPOSITORY

ROWS = {row.name: row for row in read_rows(study.SUBMISSIONS, Submission)}
ROUNDS = image_s_by_round(read_rows(study.OFFLINE, OfflineRun))
SUBMISSIONS = json.loads((REPOSITORY / "results" / "hardware.json").read_text())["submissions"]
PROFILES = [profile for profile in within(shipped()) if profile.model == "sdxl-mlperf"]
NO_SERVER = ("b200", "rtx-pro-6000", "l4")
"""GPUs of no server run."""


def image_s(name: str) -> float:
    """Seconds per image of a submission, fitted on its mean latency."""
    (run,) = (run for run in SUBMISSIONS if run["name"] == name)
    return float(run["fitted"]["image_s"])


def error_bound(device: str | None) -> float:
    """Return the error that 90 % of the systems of a device stay within, or of all: server over offline run, less 1."""
    ratios = [
        run["fitted"]["image_s"] / run["unfitted"]["image_s"]
        for run in SUBMISSIONS
        if device in (None, run["accelerator"].removeprefix("Virtualized "))
    ]
    return float(np.quantile(np.abs(np.array(ratios) - 1), 0.9, method="inverted_cdf"))


@cache
def fixed_s() -> float:
    """Fixed seconds of a batch: the median over the systems whose fastest request was in a batch of 2."""
    rows = [(row.measured["min"], image_s(name)) for name, row in ROWS.items() if "GH200" in name]
    return float(np.median([(8 * min_s - 16 * of_image_s) / 6 for min_s, of_image_s in rows]))


def standalone_s(batch: int, seconds: float) -> float:
    """Seconds of an image alone, where a batch takes fixed seconds and the rest in proportion to its images."""
    return fixed_s() + (seconds - fixed_s()) / batch


DEVICES = {run["accelerator"].removeprefix("Virtualized ") for run in SUBMISSIONS}


@pytest.mark.parametrize(
    "profile",
    [profile for profile in PROFILES if profile.device in DEVICES or profile.gpu in NO_SERVER],
    ids=lambda profile: profile.gpu,
)
def test_known_error_is_that_of_the_servers_of_its_gpu_or_of_all(profile: Profile) -> None:
    bound = error_bound(None if profile.gpu in NO_SERVER else profile.device)
    assert profile.service_error == pytest.approx(max(bound, age_error(profile)), abs=5e-4)


def age_error(profile: Profile) -> float:
    """Return the largest difference between the profile's offline seconds and those of another round, over them."""
    batch = profile.step[-1]
    image_s = STEPS * batch.seconds / batch.batch
    rounds = ROUNDS.get(str(profile.device), {})
    return max(
        (abs(other_s / image_s - 1) for name, other_s in rounds.items() if name not in profile.source), default=0
    )


def test_known_error_says_what_two_years_of_software_change() -> None:
    """Five kinds of GPUs have a round of the benchmark 8 to 14 % from their profile's; the profiles say why."""
    aged = [profile for profile in PROFILES if age_error(profile) > 0.075]
    assert {"h100-sxm", "h100-nvl", "gh200-144gb", "gh200-96gb"} <= {profile.gpu for profile in aged}
    for profile in aged:
        assert profile.service_error == pytest.approx(age_error(profile), abs=5e-4)
        assert "of the same benchmark" in str(profile.validation)


def test_committed_rounds_are_those_of_the_offline_runs() -> None:
    assert json.loads((REPOSITORY / "results" / "hardware.json").read_text())["rounds"] == ROUNDS


def test_ratio_of_the_server_to_the_offline_run_is_a_constant_of_the_kind_of_gpu() -> None:
    """With the ratio of the other runs of its kind, a run's p99 is predicted five times as well as with none."""
    ratios = {row["accelerator"]: row["ratio"] for row in study.kinds(SUBMISSIONS)}
    assert ratios["NVIDIA GH200 Grace Hopper Superchip 144GB"] == pytest.approx(1.07, abs=0.002)
    assert ratios["NVIDIA H200-SXM-141GB"] == pytest.approx(1.026, abs=0.002)
    errors = json.loads((REPOSITORY / "results" / "hardware.json").read_text())["errors"]["p99"]
    assert 0.03 < errors["by_kind_median"] < 0.05 < 5 * errors["by_kind_median"] < errors["unfitted_median"]


@pytest.mark.parametrize(
    "profile",
    [profile for profile in PROFILES if profile.gpu in NO_SERVER or any(point.batch == 8 for point in profile.step)],
    ids=lambda profile: profile.gpu,
)
def test_standalone_time_follows_from_the_batch_of_the_server_or_offline(profile: Profile) -> None:
    alone, batch, *_ = profile.step
    assert STEPS * alone.seconds == pytest.approx(standalone_s(batch.batch, STEPS * batch.seconds), rel=1e-4)
    assert f"fixed {fixed_s():.3f} s" in str(alone.source)
    if profile.gpu not in NO_SERVER:
        name = profile.source.removeprefix("MLPerf Inference ").partition(" (SDXL")[0]
        assert STEPS * batch.seconds == pytest.approx(8 * image_s(name), rel=1e-4)


@pytest.mark.parametrize("row", [row for name, row in ROWS.items() if "GH200" in name], ids=lambda row: row.name)
def test_fastest_request_of_a_gh200_was_in_an_unqueued_batch_of_two(row: Submission, tmp_path: Path) -> None:
    """By the arrivals, which are made again from the logged seed."""
    replay = Replay(row, tmp_path)
    seconds = replay.latencies_s(image_s(row.name) / replay.base_s)
    assert seconds[0] == pytest.approx(2 * image_s(row.name))
    assert row.measured["min"] > seconds[0] * 1.15, "the share of a batch is too little"


def test_fixed_seconds_predict_the_fastest_requests_of_two_other_systems() -> None:
    """An H100 NVL served an image alone at once; the image on an H100 PCIe had waited 1.415 s for a GPU."""
    nvl, pcie = (next(name for name in ROWS if part in name) for part in ("DL380a_H100_NVL", "C245M8_H100_PCIe"))
    assert standalone_s(8, 8 * image_s(nvl)) == pytest.approx(ROWS[nvl].measured["min"], rel=0.01)
    assert standalone_s(8, 8 * image_s(pcie)) + 1.415 == pytest.approx(ROWS[pcie].measured["min"], rel=0.01)
