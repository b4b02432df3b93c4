"""`mezzotint plan`: its options, its files and its exit status."""

import json
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.plan import traffic
from tests.conftest import ClosedPipe

PLAN = ("plan", "log.csv", "--model", "sdxl-mlperf", "--gpu", "l40s", "--target", "p95<10s", "--design", "vanilla")


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a log of 400 prompts."""
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"{6 * row},a red fox in the snow {row % 7}" for row in range(400))
    (tmp_path / "log.csv").write_text(f"arrival_s,prompt\n{rows}\n")


def test_plan_from_a_csv_of_prompts_with_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN]) == 0
    expected = "1 x l40s with vanilla serves log.csv at its own times with p95<10s for $0.86 per hour"
    assert expected in capsys.readouterr().out
    content = json.loads(Path("results/plan/plan.json").read_text())
    assert content["ranked"][0]["count"] == content["ranked"][0]["replications"] == 1
    repeated = "mezzotint plan log.csv --target 'p95<10s' --gpu l40s --design vanilla --model sdxl-mlperf"
    assert content["command"] == repeated


def test_plan_is_written_before_it_is_printed() -> None:
    with redirect_stdout(ClosedPipe()):
        assert main([*PLAN, "trace.requests=50"]) == 141
    assert {path.name for path in Path("results/plan").iterdir()} >= {"plan.html", "plan.json", "plan.png"}


@pytest.mark.parametrize("name", ["plan.json", "plan.html"])
def test_file_of_the_users_is_not_replaced(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_text("[]")
    assert main([*PLAN, "-o", "."]) == 2
    assert f"{name}: is not " in capsys.readouterr().err
    assert Path(name).read_text() == "[]"


def test_steady_load_replays_the_first_requests_of_a_long_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "STEADY_ROWS", 300)
    words = [*PLAN, "--rate-rpm", "20", "--rank", "1", "--replications", "2"]
    assert main(words) == 0
    assert "of log.csv (the first 300 requests) with" in capsys.readouterr().out
    assert main([*words, "trace.requests=350"]) == 0
    assert "of log.csv with" in capsys.readouterr().out


def test_plan_whose_candidates_are_all_refused_is_written_with_the_refusals(capsys: pytest.CaptureFixture[str]) -> None:
    """The profile has one size, and requests bring others."""
    rows = "".join(f"{10 * at},a cat,{512 + 64 * (at % 3)},512\n" for at in range(30))
    Path("log.csv").write_text(f"ts,prompt,width,height\n{rows}")
    assert main([*PLAN, "shapes=trace", "--replications=1"]) == 1
    printed = capsys.readouterr().out
    assert "No candidate could run: vanilla on l40s: profile of" in printed
    assert "refused: vanilla with sdxl-mlperf on l40s: " in printed
    (unranked,) = json.loads(Path("results/plan/plan.json").read_text())["not_ranked"]
    assert unranked["kind"] == "refused"
    assert "outside the measured grid" in unranked["reason"]
    assert "Cannot run" in Path("results/plan/plan.html").read_text()
    assert not Path("results/plan/plan.png").exists(), "nothing ran, so there is nothing to draw"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "sdxl", "--rate-rpm", "9"], "--target: found none"),
        (["--target", "p95<9s", "--rate-rpm", "9"], "--model: found none"),
        (["--target", "p95<9s", "--model", "sdxl"], "--rate-rpm: found none"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "inf"], "--rate-rpm"),
        (["log.txt", "--target", "p95<9s", "--model", "sdxl"], "log.txt: is no file"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "--prices", "no.yaml"], "--prices no.yaml"),
        (["--target", "p95<9s", "--model", "sdxl", "--rate-rpm", "9", "arrivals=day"], "--rate-rpm: found beside"),
        (["a.csv", "b.csv", "--target", "p95<9s", "--model", "sdxl"], "found a.csv and b.csv, expected one file"),
        ([*PLAN[1:], "--replications", "3"], "the times of log.csv are the same for every seed"),
    ],
)
def test_unusable_option_is_refused_with_its_name(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    assert message in capsys.readouterr().err
