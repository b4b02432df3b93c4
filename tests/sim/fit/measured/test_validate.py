"""`mezzotint validate --measured`: the page, its figures, and what it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cli import main
from mezzotint.traces.table.trace import write
from tests.conftest import ORACLES
from tests.sim.fit.measured.lab import MODEL, poisson, profile, served

ARRIVALS = poisson(200, 1.4)
AIPERF = str(ORACLES / "loopback" / "profile_export.jsonl")


def held(folder: Path, *words: str) -> dict[str, Any]:
    """Run the command and return validation.json."""
    assert main(["validate", *MODEL, f"run.dir={folder / 'out'}", *words]) == 0
    facts: dict[str, Any] = json.loads((folder / "out" / "validation.json").read_text())
    return facts


def row(facts: dict[str, Any], what: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in facts["rows"] if each["what"] == what)
    return found


def test_aiperf_is_explained_by_its_own_quiet_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real client against a server of known law: nothing is fitted but the 12 requests that met no other."""
    facts = held(tmp_path, "--measured", AIPERF, "--fit", "quiet", profile(tmp_path, 9.0, 9.0))
    assert facts["fitted"]["quiet_requests"] == 12
    for what, within in {"mean": 0.02, "p50": 0.04, "p90": 0.03, "p95": 0.05, "p99": 0.08, "throughput": 0.01}.items():
        assert abs(row(facts, what)["error"]) < within, what
    assert row(facts, "mean")["inside"]
    printed = capsys.readouterr().out
    assert "| mean [s] | 0.7684 |" in printed
    assert "The spread of a repetition is an assumption" in printed
    assert (tmp_path / "out" / "validation.png").stat().st_size > 10_000
    assert (tmp_path / "out" / "validation.md").read_text().startswith("# A simulation against a measured result\n")
    again = ["run", "--config-path", str(tmp_path / "out" / "simulated"), "--config-name", "config"]
    assert main([*again, f"run.dir={tmp_path / 'again'}"]) == 0
    runs = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("out/simulated", "again")]
    assert runs[0]["latency_s"] == runs[1]["latency_s"]


def test_page_says_what_would_have_to_be_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A constant of 0.3 s: added handling leaves no error, a longer service leaves the tail wrong."""
    write(served(ARRIVALS, np.full(200, 1.0), more_s=0.3), tmp_path / "t.parquet")
    facts = held(tmp_path, "--measured", str(tmp_path / "t.parquet"), profile(tmp_path, 0.05, 0.1))
    scale, handling = facts["needed"]
    assert (scale["change"], handling["change"]) == ("service seconds x", "handling [s]")
    assert handling["value"] == pytest.approx(0.3)
    assert all(abs(error) < 1e-9 for name, error in handling["errors"].items() if name != "throughput")
    assert abs(scale["errors"]["mean"]) < 1e-3 < abs(scale["errors"]["p99"])
    assert "| handling [s] | 0.3 | +0.0 % |" in capsys.readouterr().out


def test_second_file_is_a_repetition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seconds in (("a", 1.0), ("b", 1.05)):
        write(served(ARRIVALS, np.full(200, seconds)), tmp_path / f"{name}.parquet")
    files = [word for name in ("a", "b") for word in ("--measured", str(tmp_path / f"{name}.parquet"))]
    facts = held(tmp_path, *files, profile(tmp_path, 0.05, 0.102))
    mean = row(facts, "mean")
    assert mean["low"] == mean["measured"] < mean["simulated"] < mean["high"]
    assert mean["inside"]
    assert "| measured again |" in capsys.readouterr().out


@pytest.mark.parametrize("outstanding", [1, 4])
def test_aggregates_of_a_closed_loop_follow_from_the_service(outstanding: int, tmp_path: Path) -> None:
    """A serial server with N clients in flight: each waits for N services, and throughput is that of one."""
    aggregates = {"latency_mean": outstanding * 1.0, "throughput_qps": 1.0, "completed_requests": 400}
    (tmp_path / "m.json").write_text(json.dumps({"duration": 400.0, **aggregates}))
    words = ("trace.requests=400", "models.large.width=512", "models.large.height=512", "models.large.steps=10")
    loop = ("arrivals=closed", f"arrivals.outstanding={outstanding}")
    own = profile(tmp_path, 0.05, 0.1)
    facts = held(tmp_path, "--measured", str(tmp_path / "m.json"), *words, *loop, own)
    assert abs(row(facts, "mean")["error"]) < 0.01
    assert abs(row(facts, "throughput")["error"]) < 0.01
    assert facts["spread"] is None  # no seed changes it


def test_closed_loop_of_requests_is_named_and_can_be_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two clients of a server of 1.2 s. Replayed arrivals follow its answers; the loop shows that 1.0 s is too fast."""
    answer_s = 1.2 * np.arange(1, 101)
    arrival_s = np.concatenate((np.zeros(2), answer_s[:98] + 1e-6))
    write(served(arrival_s, np.full(100, 1.2)), tmp_path / "t.parquet")
    words = ("--measured", str(tmp_path / "t.parquet"), profile(tmp_path, 0.05, 0.1))
    assert held(tmp_path, *words)["clients"] == 2
    assert "arrivals=closed arrivals.outstanding=2" in capsys.readouterr().out
    facts = held(tmp_path, *words, "arrivals=closed", "arrivals.outstanding=2")
    assert not facts["paired"]
    assert row(facts, "mean")["error"] == pytest.approx(1.0 / 1.2 - 1, abs=0.01)
    assert row(facts, "throughput")["error"] == pytest.approx(1.2 - 1, abs=0.01)


def test_drawn_arrivals_are_compared_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """vLLM-Omni's aggregates do not say when its requests arrived: one drawn stream would be no prediction."""
    size = ("models.large.width=512", "models.large.height=512", "models.large.steps=16")
    arrivals = ("arrivals=poisson", "arrivals.rate_rpm=180", "trace.requests=60")
    result = str(ORACLES / "loopback" / "vllm_omni_metrics.json")
    facts = held(tmp_path, "--measured", result, *size, *arrivals, profile(tmp_path, 0.005, 0.01513))
    assert facts["spread"] == "seeds"
    assert all(each["inside"] for each in facts["rows"])
    assert "the average of 10 seeds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("client", "words", "expected"),
    [
        ({"max_concurrency": 4}, ["arrivals=closed", "arrivals.outstanding=4"], []),
        ({"max_concurrency": 4}, ["arrivals=closed"], ["have 1 in flight: compare with .*outstanding=4"]),
        ({"max_concurrency": 4}, ["arrivals=poisson"], ["at most 4 .* no such bound: compare .*outstanding=4"]),
        ({"request_rate": 0.5}, ["arrivals.rate_rpm=30"], []),
        (
            {"request_rate": 0.5},
            ["arrivals.rate_rpm=10"],
            ["sent 30 requests a .* are 10 a minute: .*rate_rpm=30"],
        ),
        ({"request_rate": 0.5}, ["arrivals=closed"], ["sent 30 requests a minute .* have no rate: .*arrivals=poisson"]),
        (
            {"request_rate": "inf"},
            ["arrivals=poisson"],
            ["at once .*arrivals=saturation arrivals.gap_s=0"],
        ),
        ({"request_rate": "inf", "max_concurrency": 1}, ["arrivals=closed"], []),
    ],
)
def test_arrivals_that_contradict_the_client_are_said(
    client: dict[str, Any], words: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.json").write_text(json.dumps({"latency_mean": 0.5, **client}))
    own, size = profile(tmp_path, 0.05, 0.1), ("models.large.width=512", "models.large.height=512")
    facts = held(tmp_path, "--measured", str(tmp_path / "m.json"), "trace.requests=10", *size, own, *words)
    assert len(facts["contradictions"]) == len(expected)
    printed = capsys.readouterr().out
    for said, pattern in zip(facts["contradictions"], expected, strict=True):
        assert re.search(pattern, said)
        assert said in printed


def test_own_arrivals_of_a_result_contradict_nothing(tmp_path: Path) -> None:
    lists = {"start_times": ARRIVALS.tolist(), "e2els": [0.5] * 200}
    (tmp_path / "m.json").write_text(json.dumps({"max_concurrency": 4, "duration": 1000, **lists}))
    size = ("models.large.width=512", "models.large.height=512", "shapes=model")
    words = ("--measured", str(tmp_path / "m.json"), *size, profile(tmp_path, 0.05, 0.1))
    assert held(tmp_path, *words)["contradictions"] == []
    assert held(tmp_path, *words, "arrivals=closed")["contradictions"] != []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--fit", "scale"], "--fit scale: has no result to fit to; name one with --measured FILE"),
        (["--measured", "nowhere.json"], "nowhere.json: no such file"),
        (["--measured", AIPERF, "trace=synthetic"], "trace: the arrivals come from"),
        (["--measured", AIPERF, "trace.requests=5"], "trace.requests: the arrivals come from"),
        (["--measured", "m.json", "--fit", "quiet"], "--fit quiet: the result has aggregates alone"),
    ],
)
def test_command_refuses(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.json").write_text('{"latency_mean": 1.0}')
    assert main(["validate", *words, *MODEL, "run.dir=out"]) == 2
    assert message in capsys.readouterr().err
