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
from mezzotint.sim.papers.runs import NOT_YET
from mezzotint.sim.papers.scorecard.measures.formulas import Formula, Ordering
from mezzotint.sim.papers.scorecard.rows import UNEXPLAINED, Row, read_columns
from mezzotint.sim.papers.scorecard.scorecard import Scorecard, comparisons, make, read_comparisons, write
from mezzotint.sim.papers.scorecard.study import Entry, Study, load_study
from mezzotint.sim.papers.scorecard.targets import Target
from mezzotint.sim.papers.study import lost_rows
from mezzotint.sim.run import run_key as key
from mezzotint.sim.run.simulate import Outcome, simulate
from mezzotint.traces.table.trace import Trace

COSTS, TABLE2, HITS = "nirvana-figure13", "nirvana-table2", "nirvana-figure15"
SMALL = ("trace.requests=160", "preload=100", "arrivals=closed")

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


def latency_s(system: str) -> Formula:
    return Formula(value="latency_s.mean", of={"system": system})


FASTER = Ordering(larger=[(latency_s("vanilla"), latency_s("nirvana"))])
ENTRIES = {
    "A1": Entry(measure=latency_s("vanilla"), experiments=(COSTS,), ground="trial", reason="never shown"),
    "A2": Entry(measure=latency_s("nirvana"), experiments=(COSTS,), ground="trial", algebra="a sum"),
    "A3": Entry(measure=FASTER, experiments=(COSTS,), ground="trial", unprinted="the weather"),
    "A4": Entry(measure=[latency_s("vanilla"), latency_s("nirvana")], experiments=(COSTS, HITS), ground="trial"),
    "B1": Entry(ground="trial", reason="later"),
    "B2": Entry(ground="trial"),
}
STUDY = Study(TARGETS, ENTRIES, {COSTS: SMALL, HITS: SMALL}, "for trying out")

Count = Callable[[], int]


@pytest.fixture
def simulations(monkeypatch: pytest.MonkeyPatch) -> Count:
    """Count the simulations."""
    configs: list[Any] = []

    def count(config: dict[str, Any], trace: Trace) -> Outcome:
        configs.append(config)
        return simulate(config, trace=trace)

    monkeypatch.setattr(runner, "simulate", count)
    return lambda: len(configs)


def by_id(card: Scorecard) -> dict[str, Row]:
    return {row.id: row for row in card.columns[0].rows}


def test_every_target_is_a_row_with_its_verdict(tmp_path: Path) -> None:
    rows = by_id(make(STUDY, tmp_path / "work"))
    assert [(row.id, row.verdict) for row in rows.values()] == [
        ("A1", "within tolerance"), ("A2", "outside"), ("A3", "within tolerance"), ("A4", "outside"),
        ("B1", "not run"), ("B2", "input"),
    ]  # fmt: skip
    assert rows["A1"].ours == pytest.approx(8.59)
    assert rows["A3"].paper is rows["A3"].ours is True
    assert [row.kind for row in rows.values()] == [
        "predicted", "algebra", "unprinted", "fitted", "predicted", "input",
    ]  # fmt: skip
    assert (rows["A2"].because, rows["A3"].because) == ("a sum", "the weather")
    assert isinstance(rows["A4"].error, list)
    assert (rows["B1"].paper, rows["B1"].tolerance) == (3.0, {"at_most": 3.0})
    assert [row.reason for row in rows.values()] == [
        None, UNEXPLAINED, None, None, f"{NOT_YET}; later; needs another world", None,
    ]  # fmt: skip
    assert (rows["A1"].requests, len(rows["A1"].trace)) == (60, 1)
    assert rows["A1"].command == f"mezzotint run -m experiment=nirvana-figure13 {' '.join(SMALL)}"


def test_scorecard_bytes_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    for jobs in (1, 2):
        write(make(STUDY, tmp_path / f"work{jobs}", jobs).columns, STUDY, tmp_path / str(jobs), "scorecard")
    for kind in ("json", "md"):
        assert (tmp_path / f"1/scorecard.{kind}").read_bytes() == (tmp_path / f"2/scorecard.{kind}").read_bytes()
    files = {file.name for file in (tmp_path / "1").iterdir()}
    pages = {"scorecard.md", "scorecard-one-ground.md", "scorecard-two-ground.md"}
    assert files == {"scorecard.json", "scorecard-one-ground.svg", *pages}


def test_runs_of_equal_configuration_are_made_once_and_kept(
    tmp_path: Path, simulations: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make(STUDY, tmp_path / "work")
    assert simulations() == 2, "nirvana of one figure is nirvana of the other"
    assert make(STUDY, tmp_path / "work").columns == first.columns
    assert simulations() == 2
    longer = replace(STUDY, overrides={COSTS: ("trace.requests=61", "preload=10"), HITS: SMALL})
    make(longer, tmp_path / "work")
    assert simulations() == 4
    for summary in (tmp_path / "work").glob("*/summary.json"):
        summary.write_text(summary.read_text()[:100])
    assert make(STUDY, tmp_path / "work").columns == first.columns
    assert simulations() == 6, "truncated runs are made again"
    monkeypatch.setattr(key, "arithmetic", lambda: "another")
    make(STUDY, tmp_path / "work")
    assert simulations() == 8


def test_interrupted_scorecard_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systems: list[str] = []

    def until(stop: int) -> Callable[[dict[str, Any]], Outcome]:
        def interrupted(config: dict[str, Any], trace: Trace) -> Outcome:
            if len(systems) == stop:
                raise KeyboardInterrupt
            systems.append(config["system"]["name"])
            return simulate(config, trace=trace)

        return interrupted

    monkeypatch.setattr(runner, "simulate", until(1))
    with pytest.raises(KeyboardInterrupt):
        make(STUDY, tmp_path / "work")
    monkeypatch.setattr(runner, "simulate", until(9))
    card = make(STUDY, tmp_path / "work")
    assert sorted(systems) == ["nirvana", "vanilla"], "what was finished is not run again"
    assert card.columns[0].rows == make(STUDY, tmp_path / "elsewhere").columns[0].rows


def test_failed_experiment_affects_only_its_own_rows(tmp_path: Path) -> None:
    entries = ENTRIES | {
        "A2": Entry(measure=latency_s("nirvana"), experiments=("no-such-figure",), ground="trial"),
        "A3": Entry(measure=FASTER, experiments=(TABLE2,), ground="trial"),
        "A4": Entry(
            measure=Formula(value="cache.hits", of={"system": "vanilla"}), experiments=(COSTS,), ground="trial"
        ),
    }
    targets = {"one": [*TARGETS["one"][:3], Target(id="A4", what="hits", role="predict", value=1.0)]}
    refused = (*SMALL, "system=nirvana", "cluster=l20", "models=sdxl")
    study = replace(STUDY, targets=targets, entries=entries, overrides={COSTS: SMALL, TABLE2: refused})
    card = make(study, tmp_path)
    rows = by_id(card)
    assert rows["A1"].verdict == "within tolerance"
    assert "no-such-figure" in (rows["A2"].reason or "")
    assert "no profile of sdxl on l20" in (rows["A3"].reason or "")
    assert rows["A4"].reason == "the summary of vanilla has no cache.hits"
    assert sum(map(len, card.failed.values())) == 2


def test_lost_verdict_is_reported(tmp_path: Path) -> None:
    (column,) = make(STUDY, tmp_path / "work").columns
    write([column], STUDY, tmp_path, "before")
    before = tmp_path / "before.json"
    was = read_comparisons(before, STUDY)
    assert was == comparisons([column])
    two = replace(column, rows=[row for row in column.rows if row.system == "two"])
    assert read_comparisons(before, replace(STUDY, targets={"two": TARGETS["two"]})) == comparisons([two])
    slower, *others = column.rows
    worse = replace(column, rows=[replace(slower, verdict="outside", ours=9.5, reason="slower"), *others])
    (line,) = lost_rows(was, comparisons([worse]))
    assert line.startswith("synthetic: A1: no longer within tolerance: ")
    with pytest.raises(ConfigError, match="make it once without --check"):
        read_comparisons(tmp_path / "absent.json", STUDY)
    write([replace(column, name="log")], STUDY, tmp_path, "before")
    with pytest.raises(ConfigError, match="found the columns log, expected mechanism and synthetic"):
        read_comparisons(before, STUDY)
    before.write_text('{"columns": [{"id": "A1"}]}')
    with pytest.raises(ConfigError, match="found no scorecard"):
        read_comparisons(before, STUDY)


def test_reproduce_names_what_could_not_be_run_and_what_is_older(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows with values are written all the same."""
    refused = (*SMALL, "system=nirvana,vanilla", "cluster=l20", "models=sdxl")
    entries = {name: Entry(ground="trial") for name in ENTRIES}
    entries["A2"] = Entry(measure=latency_s("nirvana"), experiments=(TABLE2,), ground="trial")
    study = replace(STUDY, entries=entries, overrides={TABLE2: refused})
    monkeypatch.setattr("mezzotint.sim.papers.scorecard.study.load_study", lambda system, *, quick: study)
    (column,) = make(replace(STUDY, targets={"two": TARGETS["two"]}), tmp_path / "work").columns
    write([replace(column, name="log", follows_from="earlier")], STUDY, tmp_path, "scorecard")
    words = ["reproduce", "--work", str(tmp_path / "work"), "-o", str(tmp_path)]
    assert main(words) == 2
    printed = capsys.readouterr()
    failed, older = printed.err.splitlines()
    assert failed.startswith("mezzotint: cannot run mezzotint run experiment=nirvana-table2 trace.requests=160")
    assert "(and 1 more): " in failed
    assert "no profile of sdxl on l20" in failed
    assert f"{tmp_path}/scorecard.json: the rows of two in the column log are kept and come from other code" in older
    assert "code and settings earlier: not those of the first column" in (tmp_path / "scorecard.md").read_text()
    assert "synthetic: within tolerance: predicted 0 of 0 (" in printed.out
    rows = json.loads((tmp_path / "scorecard.json").read_text())["columns"][0]["rows"]
    assert [row["verdict"] for row in rows] == ["not run", "not run", "not run", "not run", "not run", "input"]
    assert main([*words, "--quick", "--check"]) == 2, "there is none of the quick form"


@pytest.mark.parametrize(
    ("error", "status"), [("no profile of sdxl", 2), (f"search=approximate needs faiss; {remedy('ann')}", 0)]
)
def test_missing_package_leaves_rows_not_run_and_is_no_failure(
    error: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(config: dict[str, Any], trace: Trace) -> Outcome:
        raise ConfigError(error)

    monkeypatch.setattr(runner, "simulate", refused)
    monkeypatch.setattr("mezzotint.sim.papers.scorecard.study.load_study", lambda system, *, quick: STUDY)
    words = ["reproduce", "--work", str(tmp_path / "work"), "-o", str(tmp_path)]
    assert main(words) == status
    printed = capsys.readouterr()
    assert error in printed.err
    assert "synthetic: within tolerance: predicted 0 of 0 (" in printed.out
    assert main([*words, "--check"]) == status


def test_reproduce_writes_and_checks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Targets without a measure run nothing."""
    study = replace(STUDY, entries={name: Entry(ground="trial") for name in ENTRIES})
    monkeypatch.setattr("mezzotint.sim.papers.scorecard.study.load_study", lambda system, *, quick: study)
    words = ["reproduce", "one", "-o", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    assert main(words) == 0
    assert capsys.readouterr().err == "", "progress is for terminals"
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "scorecard.md", "scorecard.json", "scorecard-one-ground.md", "scorecard-two-ground.md",
    }  # fmt: skip
    assert main([*words, "--check"]) == 0
    path = tmp_path / "out/scorecard.json"
    path.write_text(path.read_text().replace('"verdict": "not run"', '"verdict": "within tolerance"', 1))
    assert main([*words, "--check"]) == 1
    assert "A1: no longer within tolerance: expected " in capsys.readouterr().err
    assert main([*words, "-o", str(path)]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nirvana", "--sizes", "1,2"], "reproduce: No such option: --sizes"),
        (["nope"], "found the system 'nope'; `mezzotint reproduce --help` prints all"),
        (["--jobs", "0"], "--jobs"),
        (["--only-trace"], "add --trace FILE"),
        (["--name", "log"], "without a trace"),
        (["--encoder", "minilm"], "no trace whose prompts"),
        (["--trace", "a.parquet", "--name", "synthetic"], "the columns that need no trace"),
        (["--trace", "a.parquet", "--trace", "b/a.parquet"], "each once"),
        (["--trace", "a.parquet", "--check"], "leave it out"),
        (["--trace", "absent.parquet"], "absent.parquet"),
    ],
)
def test_wrong_option_is_refused_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["reproduce", *words, "-o", str(tmp_path), "--work", str(tmp_path / "work")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_committed_pages_and_figures_follow_from_their_file(tmp_path: Path) -> None:
    kept = Path("results")
    write(read_columns(kept / "scorecard.json"), load_study(None, quick=False), tmp_path, "scorecard")
    pages = sorted(path.name for path in tmp_path.glob("*.md"))
    assert pages == sorted(path.name for path in kept.glob("scorecard*.md"))
    for name in pages:
        assert (tmp_path / name).read_text() == (kept / name).read_text()
    assert {path.name for path in tmp_path.glob("*.svg")} == {path.name for path in kept.glob("scorecard*.svg")}
