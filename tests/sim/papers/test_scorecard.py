"""The scorecard from its experiments to its files: which runs are made and kept, and what a row says."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mezzotint.extras import remedy
from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers import runs as runner
from mezzotint.sim.papers.scorecard.measures.formulas import TargetMeasure, latency_s, reduction
from mezzotint.sim.papers.scorecard.rows import NOT_YET, UNEXPLAINED, Row
from mezzotint.sim.papers.scorecard.scorecard import (
    Scorecard,
    Study,
    comparisons,
    load_study,
    make,
    read_comparisons,
    write,
)
from mezzotint.sim.papers.scorecard.targets import Layers, Target
from mezzotint.sim.papers.study import lost_rows
from mezzotint.sim.run import run_key as key
from mezzotint.sim.run.simulate import Outcome, simulate

COSTS, TABLE2, HITS = "nirvana-figure13", "nirvana-table2", "nirvana-figure15"
SMALL = ("trace.requests=160", "preload=100")

TARGETS = {
    "one": [
        Target(id="A1", what="latency of vanilla [s]", role="predict", value=8.59, rel_tol=0.001),
        Target(id="A2", what="latency of nirvana [s]", role="predict", value=1.0),
        Target(id="A3", what="nirvana is faster", role="order"),
        Target(id="A4", what="latencies of both [s]", role="fit", value=[8.59, 8.0]),
    ],
    "two": [
        Target(id="B1", what="never measured", role="predict", at_most=3.0, needs="another world"),
        Target(id="B2", what="a constant", role="input", value=0.1),
    ],
}
MEASURES = {
    "A1": TargetMeasure((COSTS,), latency_s("vanilla"), "C: a profile"),
    "A2": TargetMeasure((COSTS,), latency_s("nirvana"), "C: a profile"),
    "A3": TargetMeasure((COSTS,), lambda runs: reduction("nirvana", "vanilla", "latency_s", "mean")(runs) > 0, "C"),
    "A4": TargetMeasure(
        (COSTS, HITS), lambda runs: [latency_s(name)(runs) for name in ("vanilla", "nirvana")], "fixed D"
    ),
}
GROUND = Layers(ground={target.id: "for trying out" for listed in TARGETS.values() for target in listed})
STUDY = Study(TARGETS, MEASURES, {}, {COSTS: SMALL, HITS: SMALL}, "for trying out", layers=GROUND)

Counted = Callable[[], int]


@pytest.fixture
def simulations(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Count the simulations."""
    made: list[Any] = []

    def counted(config: dict[str, Any]) -> Outcome:
        made.append(config)
        return simulate(config)

    monkeypatch.setattr(runner, "simulate", counted)
    return lambda: len(made)


def by_id(card: Scorecard) -> dict[str, Row]:
    return {row.id: row for row in card.columns[0].rows}


def test_every_target_is_a_row_with_its_verdict(tmp_path: Path) -> None:
    rows = by_id(make(STUDY, tmp_path / "work"))
    assert [(row.id, row.verdict) for row in rows.values()] == [
        ("A1", "within tolerance"), ("A2", "outside"), ("A3", "within tolerance"), ("A4", "input"),
        ("B1", "not run"), ("B2", "input"),
    ]  # fmt: skip
    assert rows["A1"].ours == pytest.approx(8.59)
    assert rows["A2"].reason == UNEXPLAINED
    assert rows["A3"].paper is rows["A3"].ours is True
    assert isinstance(rows["A4"].error, list)
    assert rows["B1"].reason == f"{NOT_YET}; needs another world"
    assert (rows["B1"].paper, rows["B1"].tolerance) == (3.0, {"at_most": 3.0})
    assert rows["B2"].reason is None
    assert rows["A1"].requests == 60
    assert len(rows["A1"].trace) == 1
    assert rows["A1"].command == "mezzotint run -m experiment=nirvana-figure13 trace.requests=160 preload=100"


def test_known_reason_appears_only_for_rows_outside_tolerance(tmp_path: Path) -> None:
    known = replace(STUDY, reasons={"A1": "never shown", "A2": "the trace is short", "B1": "later"})
    rows = by_id(make(known, tmp_path / "work"))
    assert rows["A1"].reason is None
    assert rows["A2"].reason == "the trace is short"
    assert rows["B1"].reason == f"{NOT_YET}; later; needs another world"


def test_scorecard_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    for jobs in (1, 2):
        write(make(STUDY, tmp_path / f"work{jobs}", jobs), tmp_path / str(jobs), "scorecard")
    for kind in ("json", "md"):
        assert (tmp_path / f"1/scorecard.{kind}").read_bytes() == (tmp_path / f"2/scorecard.{kind}").read_bytes()
    files = {file.name for file in (tmp_path / "1").iterdir()}
    assert files == {"scorecard.json", "scorecard.md", "scorecard-one-ground.svg"}
    rows = json.loads((tmp_path / "1/scorecard.json").read_text())["columns"][0]["rows"]
    keys = "id system what paper ours error tolerance role verdict fixed_by command reason requests trace"
    assert all(set(keys.split()) <= set(row) for row in rows)


def test_runs_of_equal_configuration_are_made_once_and_kept(tmp_path: Path, simulations: Counted) -> None:
    first = make(STUDY, tmp_path / "work")
    assert simulations() == 2, "nirvana of one figure is nirvana of the other"
    assert make(STUDY, tmp_path / "work").columns[0].rows == first.columns[0].rows
    assert simulations() == 2
    longer = replace(STUDY, overrides={COSTS: ("trace.requests=61", "preload=10"), HITS: SMALL})
    make(longer, tmp_path / "work")
    assert simulations() == 4


def test_arithmetic_version_change_reruns_everything(
    tmp_path: Path, simulations: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(STUDY, tmp_path / "work")
    monkeypatch.setattr(key, "arithmetic", lambda: "another")
    make(STUDY, tmp_path / "work")
    assert simulations() == 4


def test_interrupted_scorecard_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def until(stop: int) -> Callable[[dict[str, Any]], Outcome]:
        def interrupted(config: dict[str, Any]) -> Outcome:
            if len(made) == stop:
                raise KeyboardInterrupt
            made.append(config["system"]["name"])
            return simulate(config)

        return interrupted

    monkeypatch.setattr(runner, "simulate", until(1))
    with pytest.raises(KeyboardInterrupt):
        make(STUDY, tmp_path / "work")
    monkeypatch.setattr(runner, "simulate", until(9))
    card = make(STUDY, tmp_path / "work")
    assert sorted(made) == ["nirvana", "vanilla"], "what was finished is not run again"
    assert card.columns[0].rows == make(STUDY, tmp_path / "elsewhere").columns[0].rows


def test_truncated_run_is_made_again(tmp_path: Path, simulations: Counted) -> None:
    first = make(STUDY, tmp_path / "work")
    for summary in (tmp_path / "work").glob("*/summary.json"):
        summary.write_text(summary.read_text()[:100])
    assert make(STUDY, tmp_path / "work").columns[0].rows == first.columns[0].rows
    assert simulations() == 4


def test_failed_experiment_affects_only_its_own_rows(tmp_path: Path) -> None:
    measures = MEASURES | {
        "A2": TargetMeasure(("no-such-figure",), latency_s("nirvana"), ""),
        "A3": TargetMeasure((TABLE2,), lambda runs: latency_s("nirvana")(runs) > 0, ""),
    }
    refused = (*SMALL, "system=nirvana", "cluster=l20", "models=sdxl")
    card = make(replace(STUDY, measures=measures, overrides={COSTS: SMALL, HITS: SMALL, TABLE2: refused}), tmp_path)
    rows = by_id(card)
    assert rows["A1"].verdict == "within tolerance"
    assert "no-such-figure" in (rows["A2"].reason or "")
    assert "no profile of sdxl on l20" in (rows["A3"].reason or "")
    assert sum(map(len, card.failed.values())) == 2


def test_missing_summary_key_is_the_reason(tmp_path: Path) -> None:
    measures = MEASURES | {
        "A2": TargetMeasure((COSTS,), lambda runs: runs.where(system="vanilla").mean("cache", "hits"), "")
    }
    assert by_id(make(replace(STUDY, measures=measures), tmp_path))["A2"].reason == (
        "the summary of vanilla has no cache.hits"
    )


def test_lost_verdict_is_reported(tmp_path: Path) -> None:
    card = make(STUDY, tmp_path / "work")
    write(card, tmp_path, "before")
    before = tmp_path / "before.json"
    was = read_comparisons(before, STUDY)
    assert was == comparisons(card.columns)
    column = card.columns[0]
    two = replace(column, rows=[row for row in column.rows if row.system == "two"])
    assert read_comparisons(before, replace(STUDY, targets={"two": TARGETS["two"]})) == comparisons([two])
    slower, *others = column.rows
    worse = replace(column, rows=[replace(slower, verdict="outside", ours=9.5, reason="slower"), *others])
    (line,) = lost_rows(was, comparisons([worse]))
    expected = "expected latency of vanilla [s]: 8.59, found 9.5 (slower), before 8.59"
    assert line == f"synthetic: A1: no longer within tolerance: {expected}"
    with pytest.raises(ConfigError, match="make it once without --check"):
        read_comparisons(tmp_path / "absent.json", STUDY)
    write(replace(card, columns=[replace(card.columns[0], name="log")]), tmp_path, "before")
    with pytest.raises(
        ConfigError, match="found the columns log, expected mechanism and synthetic; make it once without --check"
    ):
        read_comparisons(before, STUDY)
    before.write_text('{"columns": [{"id": "A1"}]}')
    with pytest.raises(ConfigError, match="found no scorecard"):
        read_comparisons(before, STUDY)


def test_reproduce_names_what_could_not_be_run_and_what_is_dropped(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows with values are written all the same."""
    asked: list[tuple[str | None, bool]] = []

    def tried(system: str | None, *, quick: bool) -> Study:
        asked.append((system, quick))
        refused = {TABLE2: (*SMALL, "system=nirvana,vanilla", "cluster=l20", "models=sdxl")}
        return replace(STUDY, measures={"A2": TargetMeasure((TABLE2,), latency_s("nirvana"), "")}, overrides=refused)

    monkeypatch.setattr("mezzotint.sim.papers.scorecard.scorecard.load_study", tried)
    card = make(replace(STUDY, measures={}), tmp_path / "work")
    write(replace(card, columns=[replace(card.columns[0], name="log", follows_from="earlier")]), tmp_path, "scorecard")
    words = ["reproduce", "--work", str(tmp_path / "work"), "-o", str(tmp_path)]
    assert main(words) == 2
    printed = capsys.readouterr()
    failed, dropped = printed.err.splitlines()
    command = "cannot run mezzotint run experiment=nirvana-table2 trace.requests=160 preload=100"
    assert failed.startswith(f"mezzotint: {command}")
    assert "(and 1 more): " in failed
    assert "no profile of sdxl on l20" in failed
    assert f"{tmp_path}/scorecard.json: the column log comes from other code or settings" in dropped
    assert printed.out.splitlines()[-1] == "synthetic: 0 of 4 scored rows within tolerance, 0 outside, 4 not run"
    assert [row["verdict"] for row in json.loads((tmp_path / "scorecard.json").read_text())["columns"][0]["rows"]] == [
        "not run", "not run", "not run", "input", "not run", "input",
    ]  # fmt: skip
    assert main([*words, "nirvana", "--quick", "--check"]) == 2, "there is none of the quick form"
    assert asked == [(None, False), ("nirvana", True)]


@pytest.mark.parametrize(
    ("error", "status"), [("no profile of sdxl", 2), (f"search=approximate needs faiss; {remedy('ann')}", 0)]
)
def test_missing_package_leaves_rows_not_run_and_is_no_failure(
    error: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(config: dict[str, Any]) -> Outcome:
        raise ConfigError(error)

    monkeypatch.setattr(runner, "simulate", refused)
    monkeypatch.setattr("mezzotint.sim.papers.scorecard.scorecard.load_study", lambda system, *, quick: STUDY)
    words = ["reproduce", "--work", str(tmp_path / "work"), "-o", str(tmp_path)]
    assert main(words) == status
    printed = capsys.readouterr()
    assert error in printed.err
    assert printed.out.splitlines()[-1] == "synthetic: 0 of 4 scored rows within tolerance, 0 outside, 4 not run"
    assert main([*words, "--check"]) == status


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nirvana", "--sizes", "1,2"], "reproduce: No such option: --sizes"),
        (["nope"], "another study: addons, apart, autoscaling, cascade, compositions, elastic, hardware"),
    ],
)
def test_option_of_another_study_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["reproduce", *words, "-o", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_quick_form_shortens_every_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mezzotint.sim.papers.scorecard.scorecard.read_data", lambda path, form: {COSTS: None, TABLE2: ["preload=1"]}
    )
    with pytest.raises(ConfigError, match=r"scorecard-quick.yaml: .* expected the overrides that make it quick"):
        load_study("nirvana", quick=True)


def test_reproduce_writes_and_checks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Targets without an experiment run nothing."""
    monkeypatch.setattr("mezzotint.sim.papers.scorecard.scorecard.MEASURES", {})
    words = ["reproduce", "swiftdiffusion", "-o", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "mechanism: 0 of 14 scored rows within tolerance, 0 outside, 14 not run"
    assert printed.err == "", "progress is for terminals"
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"scorecard.md", "scorecard.json"}
    assert main([*words, "--check"]) == 0
    path = tmp_path / "out/scorecard.json"
    path.write_text(path.read_text().replace('"verdict": "not run"', '"verdict": "within tolerance"', 1))
    assert main([*words, "--check"]) == 1
    assert "S2: no longer within tolerance: expected " in capsys.readouterr().err
    assert main(["reproduce", "katz"]) == 2
    assert main([*words, "--jobs", "0"]) == 2
    assert main([*words, "-o", str(path)]) == 2
