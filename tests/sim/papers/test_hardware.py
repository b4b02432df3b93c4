"""Published runs of real machines, replayed by the engine: a part of the scorecard, and its checks."""

import csv
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.hardware import page, replay, results, routing
from mezzotint.sim.papers.hardware.page import draw
from mezzotint.sim.papers.hardware.rows import QUANTILES, RoutedRun, Submission, packaged_file, routed, submissions
from mezzotint.traces.arrivals.loadgen import LoadGen
from tests.sim.scheduling.batching.test_mlperf import finished

ROWS = submissions(packaged_file("mlperf-sdxl-server.csv"))
ROUTED = routed(packaged_file("llmd-routing.csv"))


PART = ROWS[:: 2 * results.PART]
"""Half of what --quick replays: every twelfth submission, whatever its result."""


@cache
def part() -> Sequence[tuple[dict[str, Any], np.ndarray]]:
    return [replay.replay_submission(row, with_sensitivity=False) for row in PART]


def recursion(row: Submission, image_s: float) -> np.ndarray:
    """Return latencies, ascending, by a recursion that shares nothing with the engine."""
    process = LoadGen(
        seed=row.schedule_rng_seed,
        rate_rpm=60 * row.target_qps,
        least_requests=row.min_query_count,
        least_s=row.min_duration_s,
    )
    times = process.schedule(np.zeros(20_000), np.random.default_rng(0)).times
    done = finished(times.tolist(), row.gpus, row.max_batch, row.batch_timeout_s, image_s)
    return np.sort(np.array(done) - times)


def test_subset_of_the_submissions_is_within_the_stated_error() -> None:
    """A change that makes the median error of p99 larger than 2 % fails here."""
    errors = results.facts_of("a part", part(), [])["errors"]
    assert all(abs(run["fitted"]["error"]["mean"]) < 1e-3 for run, _ in part())
    assert max(errors["p50"]["median"], errors["p90"]["median"]) <= 0.012
    assert errors["p99"]["median"] <= results.LIMIT
    rates = [run["scheduled_qps"] for run, _ in part()]
    assert all(f"{rate['ours']:.2f}" == f"{rate['logged']:.2f}" for rate in rates)


def test_engine_matches_the_recursion() -> None:
    for row, (run, latencies_s) in zip(PART, part(), strict=True):
        assert latencies_s == pytest.approx(recursion(row, run["fitted"]["image_s"]), rel=1e-9)


def test_committed_hardware_page_is_within_its_stated_error() -> None:
    measured = json.loads((Path(__file__).parents[3] / "results" / "hardware.json").read_text())
    assert measured["form"] == "in full"
    assert len(measured["submissions"]) == len(ROWS)
    errors = measured["errors"]
    assert max(errors["p50"]["median"], errors["p90"]["median"]) <= 0.008
    assert errors["p99"]["median"] <= 0.015
    assert errors["p99"]["p90"] <= 0.04
    named = {run["name"]: run for run in measured["submissions"]}
    for run, _ in part():  # and the committed figures are the code's
        assert named[run["name"]]["fitted"]["latency_s"] == pytest.approx(run["fitted"]["latency_s"], rel=1e-6)


def test_sensitivity_matches_reruns(tmp_path: Path) -> None:
    """At a load of 1, a service 3 % slower moves p99 many times further than at 0.8."""
    spans = {}
    for row, factor in ((ROWS[7], 1.0), (ROWS[14], 1.07)):  # four H100 NVL, a GH200
        moved = replay.Replay(row, tmp_path).predict(factor, with_sensitivity=True)["p99_with_service_moved_s"]
        base_s = factor * row.gpus / (row.offline_images_per_s or 0.0)
        for share, p99 in moved.items():
            latencies = recursion(row, base_s * (1 + float(share.removesuffix("%")) / 100))
            assert p99 == pytest.approx(np.quantile(latencies, 0.99, method="inverted_cdf"), rel=1e-9)
        spans[row.name] = max(moved.values()) / min(moved.values()) - 1
    low, high = spans.values()
    assert high > 3 * low


@pytest.mark.parametrize("row", ROUTED[:3], ids=lambda row: f"{row.rate_per_s}")
def test_least_declared_cost_is_near_the_band_of_random_ties(row: RoutedRun) -> None:
    found = routing.replay_routing(row, 20, with_sensitivity=False)
    for name in results.BANDED:
        low_s, high_s = found["nine_in_ten_draws_s"][name]
        assert low_s < found["predicted_s"][name] < high_s
        assert abs(found["outside"][name] or 0.0) <= results.MAX_OUTSIDE


@pytest.mark.parametrize(("measured", "outside"), [(1.0, 1.0), (2.0, 0.0), (3.0, 0.0), (8.0, -0.5), (None, None)])
def test_distance_outside_the_band_is_relative_to_measured_value(measured: float | None, outside: float | None) -> None:
    assert routing.outside(measured, 2.0, 4.0) == outside


def test_planned_router_has_a_band_over_random_ties() -> None:
    """No planned router's ties are on record, so each has a band."""
    found = routing.replay_routing(RoutedRun("C", 0.64, "least-requests", {}), 10, with_sensitivity=False)
    low_s, high_s = found["nine_in_ten_draws_s"]["mean"]
    assert low_s < high_s


def test_hardware_page_shows_unfitted_p99_with_its_band() -> None:
    made = results.make(ROWS[14:16], [RoutedRun("A", 0.5, "least-declared-cost", {"mean": 3.0})], quick=True)
    measured = json.loads(json.dumps(made, allow_nan=False))
    text = page.render(measured, "hardware.svg")
    assert "not verified by MLCommons" in text
    (run,) = measured["submissions"]
    assert run["name"] in text
    for replayed in (run["fitted"], run["unfitted"]):
        moved = replayed["p99_with_service_moved_s"]
        assert list(moved) == ["-3%", "-2%", "-1%", "+1%", "+2%", "+3%"]
        assert list(moved.values()) == sorted(moved.values())
        assert moved["-1%"] < replayed["latency_s"]["p99"] < moved["+1%"]
        assert f"{moved['-3%']:.2f} to {moved['+3%']:.2f}" in text
    assert draw(measured) is not None


HEAD = (
    "round,division,submitter,system,accelerator,gpus,max_batch,batch_timeout_s,offline_images_per_s,schedule_rng_seed"
)
HEAD += ",target_qps,min_query_count,min_duration_s,scheduled_qps,mean_s,p99_s"
GOOD = ["v9", "open", "me", "mine", "a chip", "2", "4", "1.5", "3.0", "77", "2.0", "50", "60", "", "2.4", ""]


def table(tmp_path: Path, **changes: str) -> Path:
    row = dict(zip(HEAD.split(","), GOOD, strict=True)) | changes
    file = tmp_path / "runs.csv"
    with file.open("w", newline="") as out:
        csv.writer(out).writerows([list(row), list(row.values())])
    return file


def test_user_submissions_are_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another accelerator, no profile, some figures not logged."""
    file = table(tmp_path)
    assert main(["reproduce", "hardware", "--runs", str(file), "-o", str(tmp_path / "out")]) == 0
    assert "1 submissions" in capsys.readouterr().out
    measured = json.loads((tmp_path / "out" / "hardware.json").read_text())
    assert measured["submissions"][0]["fitted"]["latency_s"]["mean"] == pytest.approx(2.4, rel=1e-3)
    assert {entry.name for entry in (tmp_path / "out").iterdir()} == {
        f"hardware.{kind}" for kind in ("md", "json", "svg")
    }
    assert main(["reproduce", "hardware", "--runs", str(file), "--check"]) == 0
    table(tmp_path, offline_images_per_s="", p99_s="5")
    assert main(["reproduce", "hardware", "--runs", str(file), "-o", str(tmp_path / "out")]) == 0
    again = json.loads((tmp_path / "out" / "hardware.json").read_text())["submissions"][0]
    assert again["unfitted"] is None
    assert again["fitted"]["image_s"] == pytest.approx(measured["submissions"][0]["fitted"]["image_s"], rel=1e-4)


def test_hardware_check_fails_where_p99_is_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "hardware", "--runs", str(table(tmp_path, p99_s="30")), "--check"]) == 1
    assert "median error of p99" in capsys.readouterr().err


def test_hardware_check_fails_where_a_user_routed_run_is_outside_its_band(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(routing, "DRAWS", 5)
    file = tmp_path / "routes.csv"
    file.write_text("workload,rate_per_s,routing,mean_s\nC,0.25,least-declared-cost,4.4\n")
    words = ["reproduce", "hardware", "--routing", str(file), "--check"]
    assert main(words) == 0
    file.write_text("workload,rate_per_s,routing,mean_s\nC,0.25,least-declared-cost,5\n")
    assert main(words) == 1
    error = capsys.readouterr().err
    assert (
        "mix C at 0.25/s, least-declared-cost, mean: no longer within tolerance: expected 5 s at most 3% outside"
        in error
    )
    assert "found 4." in error


def test_hardware_check_fails_where_a_committed_verdict_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a submission, and of a routed run."""
    monkeypatch.setattr(routing, "DRAWS", 5)
    monkeypatch.setattr("mezzotint.sim.papers.hardware.rows.packaged_file", lambda name: tmp_path / name)
    routes, out = tmp_path / "llmd-routing.csv", tmp_path / "out"
    table(tmp_path).rename(tmp_path / "mlperf-sdxl-server.csv")
    routes.write_text("workload,rate_per_s,routing,mean_s\nC,0.25,least-declared-cost,4.4\n")
    words = ["reproduce", "hardware", "-o", str(out)]
    assert main([*words, "--check"]) == 2
    assert f"{out / 'hardware.json'}: cannot be read (No such file or directory)" in capsys.readouterr().err
    assert main(words) == 0
    measured = json.loads((out / "hardware.json").read_text())
    p99_s = measured["submissions"][0]["fitted"]["latency_s"]["p99"]
    table(tmp_path, p99_s=repr(p99_s)).rename(tmp_path / "mlperf-sdxl-server.csv")
    assert main(words) == 0
    assert main([*words, "--check"]) == 0
    assert "2 of 2 rows within tolerance, 0 lost" in capsys.readouterr().out

    table(tmp_path, p99_s=repr(p99_s / 1.06)).rename(tmp_path / "mlperf-sdxl-server.csv")
    routes.write_text("workload,rate_per_s,routing,mean_s\nC,0.25,least-declared-cost,5\n")
    assert main([*words, "--check"]) == 1
    first, second, _ = capsys.readouterr().err.splitlines()
    assert first.startswith("mezzotint: v9, open, me, mine, p99: no longer within tolerance: expected ")
    assert first.endswith(f"found {p99_s:.4g} s, before {p99_s:.4g} s")
    assert second.startswith(
        "mezzotint: mix C at 0.25/s, least-declared-cost, mean: no longer within tolerance: expected 5 s"
    )


def test_machine_much_slower_than_offline_is_fitted(tmp_path: Path) -> None:
    """The mean is that of a service five times as long, and needs more than the first bracket."""
    (row,) = submissions(table(tmp_path))
    slow = replay.Replay(row, tmp_path)
    mean_s = float(slow.latencies_s(5.0).mean())
    (row,) = submissions(table(tmp_path, mean_s=repr(mean_s)))
    assert replay.Replay(row, tmp_path).fit() == pytest.approx(5.0, rel=1e-3)


def test_routed_runs_alone_have_a_page_and_no_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figure of an earlier scorecard is removed."""
    file, out = tmp_path / "routes.csv", tmp_path / "out"
    file.write_text("workload,rate_per_s,routing,mean_s\nC,0.5,least-requests,3\n")
    out.mkdir()
    (out / "hardware-quick.svg").write_bytes(b"of an earlier one")
    assert main(["reproduce", "hardware", "--routing", str(file), "--quick", "-o", str(out)]) == 0
    assert capsys.readouterr().out.startswith("no submissions; routed, nothing fitted: 0 of 1 measured means and p99")
    assert sorted(path.name for path in out.iterdir()) == ["hardware-quick.json", "hardware-quick.md"]
    assert json.loads((out / "hardware-quick.json").read_text())["distribution"] is None
    text = (out / "hardware-quick.md").read_text(encoding="utf-8")
    assert "## Routing on three H100" in text
    assert "MLPerf Inference, SDXL" not in text
    assert "![" not in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": "-1"}, "row 1, column gpus: found '-1'"),
        ({"mean_s": ""}, "row 1, column mean_s: missing"),
        ({"target_qps": "1e9"}, "expected at most 1,000,000"),
        ({"mean_s": "1e-6"}, "no seconds per image that give a mean"),
    ],
)
def test_malformed_submission_row_is_refused(
    tmp_path: Path, changes: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "hardware", "--runs", str(table(tmp_path, **changes)), "--check"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_unknown_router_or_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "routes.csv"
    file.write_text("workload,rate_per_s,routing,mean_s\nC,0.5,fortune,3\n")
    assert main(["reproduce", "hardware", "--routing", str(file), "--check"]) == 2
    assert "found 'fortune' among the measured runs, expected one of by-addons, least-de" in capsys.readouterr().err
    assert main(["reproduce", "hardware", "--runs", "nowhere.csv"]) == 2

    file.write_text("")
    with pytest.raises(ConfigError, match="no rows"):
        routed(file)


def test_quantiles_are_order_statistics() -> None:
    found = replay.summary(np.arange(1.0, 101.0))
    assert [found[name] for name in QUANTILES] == [50, 90, 95, 97, 99, 100]
