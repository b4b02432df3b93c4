"""Published runs of real machines, replayed by the engine: a part of the study, and its checks."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.papers.hardware import llmd, study
from mezzotint.sim.papers.hardware.llmd import RoutedRun, outside, replay_routing
from mezzotint.sim.papers.hardware.mlperf import QUANTILES, Replay, Submission, replay_submission, summary
from mezzotint.sim.papers.rows import read_rows
from mezzotint.traces.arrivals.loadgen import LoadGen
from tests.conftest import REPOSITORY
from tests.sim.scheduling.batching.test_mlperf import finished

ROWS = read_rows(study.SUBMISSIONS, Submission)
ROUTED = read_rows(study.ROUTED, RoutedRun)

PART = ROWS[:: 2 * study.PART]
"""Half of what --quick replays: every twelfth submission, whatever its result."""


@cache
def part() -> Sequence[tuple[dict[str, Any], np.ndarray]]:
    return [replay_submission(row, with_sensitivity=False) for row in PART]


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
    errors = study.facts_of("a part", part(), [])["errors"]
    assert all(abs(run["fitted"]["error"]["mean"]) < 1e-3 for run, _ in part())
    assert max(errors["p50"]["median"], errors["p90"]["median"]) <= 0.012
    assert errors["p99"]["median"] <= study.LIMIT
    rates = [run["scheduled_qps"] for run, _ in part()]
    assert all(f"{rate['ours']:.2f}" == f"{rate['logged']:.2f}" for rate in rates)


def test_engine_matches_the_recursion() -> None:
    for row, (run, latencies_s) in zip(PART, part(), strict=True):
        assert latencies_s == pytest.approx(recursion(row, run["fitted"]["image_s"]), rel=1e-9)


def test_committed_results_are_within_their_stated_error_and_the_codes() -> None:
    facts = json.loads((REPOSITORY / "results" / "hardware.json").read_text())
    assert facts["form"] == "in full"
    assert len(facts["submissions"]) == len(ROWS)
    errors = facts["errors"]
    assert max(errors["p50"]["median"], errors["p90"]["median"]) <= 0.008
    assert errors["p99"]["median"] <= 0.015
    assert errors["p99"]["p90"] <= 0.04
    named = {run["name"]: run for run in facts["submissions"]}
    for run, _ in part():
        assert named[run["name"]]["fitted"]["latency_s"] == pytest.approx(run["fitted"]["latency_s"], rel=1e-6)


def test_sensitivity_matches_reruns(tmp_path: Path) -> None:
    """At a load of 1, a service 3 % slower moves p99 many times further than at 0.8."""
    spans = []
    for row, factor in ((ROWS[7], 1.0), (ROWS[14], 1.07)):  # four H100 NVL, a GH200
        facts, _ = Replay(row, tmp_path).predict(factor, with_sensitivity=True)
        changed = facts["p99_with_service_moved_s"]
        assert list(changed) == ["-3%", "-2%", "-1%", "+1%", "+2%", "+3%"]
        assert changed["-1%"] < facts["latency_s"]["p99"] < changed["+1%"]
        base_s = factor * row.gpus / (row.offline_images_per_s or 0.0)
        for share, p99 in changed.items():
            latencies = recursion(row, base_s * (1 + float(share.removesuffix("%")) / 100))
            assert p99 == pytest.approx(np.quantile(latencies, 0.99, method="inverted_cdf"), rel=1e-9)
        spans.append(max(changed.values()) / min(changed.values()) - 1)
    assert spans[1] > 3 * spans[0]


@pytest.mark.parametrize(
    "row", [*ROUTED[:3], RoutedRun("C", 0.64, "least-requests")], ids=lambda row: f"{row.routing}, {row.rate_per_s}"
)
def test_random_ties_give_a_band_near_the_measured_values(row: RoutedRun) -> None:
    facts = replay_routing(row, 20, with_sensitivity=False)
    for name in study.BANDED:
        low_s, high_s = facts["nine_in_ten_draws_s"][name]
        assert low_s < facts["predicted_s"][name] < high_s
        assert abs(facts["outside"][name] or 0.0) <= study.MAX_OUTSIDE


@pytest.mark.parametrize(("measured_s", "distance"), [(1.0, 1.0), (2.0, 0.0), (3.0, 0.0), (8.0, -0.5), (None, None)])
def test_distance_outside_the_band_is_relative_to_measured_value(
    measured_s: float | None, distance: float | None
) -> None:
    assert outside(measured_s, 2.0, 4.0) == distance


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


def routes(tmp_path: Path, mean_s: str, routing: str = "least-declared-cost") -> Path:
    file = tmp_path / "routes.csv"
    file.write_text(f"workload,rate_per_s,routing,mean_s\nc,0.25,{routing},{mean_s}\n")
    return file


def test_user_submissions_are_replayed(tmp_path: Path) -> None:
    """Another accelerator, no profile, some figures not logged, and no offline rate."""
    words = ["reproduce", "hardware", "--runs", str(table(tmp_path))]
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    first = json.loads((tmp_path / "out" / "hardware.json").read_text())["submissions"][0]
    assert first["fitted"]["latency_s"]["mean"] == pytest.approx(2.4, rel=1e-3)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"hardware.{kind}" for kind in ("json", "md", "svg")
    ]
    assert main([*words, "--check"]) == 0
    table(tmp_path, offline_images_per_s="", p99_s="5")
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    again = json.loads((tmp_path / "out" / "hardware.json").read_text())["submissions"][0]
    assert again["unfitted"] is None
    assert again["fitted"]["image_s"] == pytest.approx(first["fitted"]["image_s"], rel=1e-4)


@pytest.mark.parametrize(
    ("option", "p99_s", "mean_s", "lost"),
    [("--runs", "30", "", "median error of p99"), ("--routing", "", "5", "mix C at 0.25/s, least-declared-cost, mean")],
)
def test_check_of_user_runs_fails_where_one_is_outside(
    option: str,
    p99_s: str,
    mean_s: str,
    lost: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(llmd, "DRAWS", 5)
    file = table(tmp_path, p99_s=p99_s) if option == "--runs" else routes(tmp_path, mean_s)
    assert main(["reproduce", "hardware", option, str(file), "--check"]) == 1
    assert f"{lost}: no longer within tolerance" in capsys.readouterr().err
    if option == "--routing":
        assert main(["reproduce", "hardware", option, str(routes(tmp_path, "4.4")), "--check"]) == 0


def test_check_fails_where_a_committed_row_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a submission, and of a routed run."""
    monkeypatch.setattr(llmd, "DRAWS", 5)
    monkeypatch.setattr(study, "SUBMISSIONS", table(tmp_path))
    monkeypatch.setattr(study, "ROUTED", routes(tmp_path, "4.4"))
    words = ["reproduce", "hardware", "-o", str(tmp_path / "out")]
    assert main(words) == 0
    p99_s = json.loads((tmp_path / "out" / "hardware.json").read_text())["submissions"][0]["fitted"]["latency_s"]["p99"]
    table(tmp_path, p99_s=repr(p99_s))
    assert main(words) == 0
    assert main([*words, "--check"]) == 0
    table(tmp_path, p99_s=repr(p99_s / 1.06))
    routes(tmp_path, "5")
    assert main([*words, "--check", "--quick"]) == 1
    lost = [line.partition(": no longer")[0] for line in capsys.readouterr().err.splitlines()]
    assert [line for line in lost if line.startswith("mezzotint: ")] == [
        "mezzotint: v9, open, me, mine, p99",
        "mezzotint: median error of p99",
        "mezzotint: mix C at 0.25/s, least-declared-cost, mean",
    ]


def test_machine_much_slower_than_offline_is_fitted(tmp_path: Path) -> None:
    """The mean is that of a service five times as long, and needs more than the first bracket."""
    (row,) = read_rows(table(tmp_path), Submission)
    mean_s = float(Replay(row, tmp_path).latencies_s(5.0).mean())
    (row,) = read_rows(table(tmp_path, mean_s=repr(mean_s)), Submission)
    assert Replay(row, tmp_path).fit() == pytest.approx(5.0, rel=1e-3)


def test_routed_runs_alone_have_a_page_and_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure of an earlier page is removed."""
    monkeypatch.setattr(llmd, "DRAWS", 5)
    out = tmp_path / "out"
    out.mkdir()
    (out / "hardware-quick.svg").write_bytes(b"of an earlier one")
    assert main(["reproduce", "hardware", "--routing", str(routes(tmp_path, "3")), "--quick", "-o", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == ["hardware-quick.json", "hardware-quick.md"]
    assert json.loads((out / "hardware-quick.json").read_text())["distribution"] is None
    page = (out / "hardware-quick.md").read_text(encoding="utf-8")
    assert "![" not in page
    assert f"From {tmp_path / 'routes.csv'}" in page
    assert not {"MLPerf", "zetxqx"} & set(page.replace("/", " ").split())


def test_routed_run_of_a_trace_of_the_users_own(tmp_path: Path) -> None:
    """A trace of one size on two GPUs, and longer on one."""
    trace = tmp_path / "mine.csv"
    trace.write_text("arrival_s,prompt,size,steps\n" + "".join(f"{at},p,1024x1024,25\n" for at in range(40)))
    run = RoutedRun(str(trace), 0.3, "least-requests", gpus=2)
    two, one = (replay_routing(replace(run, gpus=gpus), 3, with_sensitivity=False)["predicted_s"] for gpus in (2, 1))
    assert two["mean"] < one["mean"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpus": "-1"}, "row 1, column gpus: "),
        ({"mean_s": ""}, "row 1, column mean_s: field required"),
        ({"target_qps": "1e9"}, "expected at most 1,000,000"),
        ({"mean_s": "1e-6"}, "no seconds per image that give a mean"),
    ],
)
def test_malformed_submission_row_is_refused(
    tmp_path: Path, changes: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "hardware", "--runs", str(table(tmp_path, **changes)), "--check"]) == 2
    assert message in capsys.readouterr().err


def test_unknown_router_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = routes(tmp_path, "3", "fortune")
    assert main(["reproduce", "hardware", "--routing", str(file), "--check"]) == 2
    assert "found 'fortune' among the measured runs; expected one of by-addons, by-model" in capsys.readouterr().err


def test_quantiles_are_order_statistics() -> None:
    levels = summary(np.arange(1.0, 101.0))
    assert [levels[name] for name in QUANTILES] == [50, 90, 95, 97, 99, 100]
