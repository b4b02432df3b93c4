"""What every study does: files made from its content, and --check against the committed ones."""

import json
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers import runs
from mezzotint.sim.papers.addons import STUDY as ADDONS
from mezzotint.sim.papers.autoscaling import study as autoscaling
from mezzotint.sim.papers.autoscaling.study import STUDY as AUTOSCALING
from mezzotint.sim.papers.hardware.study import STUDY as HARDWARE
from mezzotint.sim.papers.runs import Runs
from mezzotint.sim.papers.stages import STUDY as STAGES
from mezzotint.sim.papers.study import DATA, Comparison, Study, committed, lost_rows, read_committed
from results.make import STUDIES
from tests.conftest import REPOSITORY, ClosedPipe

WITHIN, OUTSIDE = Comparison("1", "1", True), Comparison("1", "2", False)


@pytest.mark.parametrize("study", [study for study in STUDIES if study.name != "video"], ids=lambda study: study.name)
def test_every_committed_file_has_rows_that_can_be_lost(study: Study) -> None:
    rows = read_committed(REPOSITORY / "results" / f"{study.name}.json", study.comparisons)
    within = [name for name, row in rows.items() if row.within_tolerance]
    assert len(within) >= 3
    for name in within:
        (line,) = lost_rows(rows, {**rows, name: Comparison(rows[name].expected, "spoiled", False)})
        assert line.startswith(f"{name}: no longer within tolerance: expected {rows[name].expected}, found spoiled")


def test_only_rows_within_tolerance_can_be_lost() -> None:
    assert lost_rows({"a": OUTSIDE, "b": WITHIN}, {"a": WITHIN, "b": WITHIN, "c": OUTSIDE}) == []
    assert lost_rows({"a": OUTSIDE, "b": WITHIN}, {}) == ["b: was within tolerance, and the row is missing now"]


def test_check_compares_with_the_file_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rows(facts: dict) -> dict[str, Comparison]:
        return {name: Comparison(**row) for name, row in facts["rows"].items()}

    study = Study("stages", rows)  # by the name of a template
    path = tmp_path / "stages.json"
    path.write_text(json.dumps({"rows": {"a": asdict(WITHIN)}}))
    assert study.reproduce(lambda: {"rows": {"a": asdict(WITHIN)}}, tmp_path, check=True) == 0
    assert "a: expected 1, found 1\n1 of 1 rows within tolerance, 0 lost" in capsys.readouterr().out
    assert study.reproduce(lambda: {"rows": {"a": asdict(OUTSIDE)}}, tmp_path, check=True) == 1
    assert "a: no longer within tolerance: expected 1, found 2, before 1" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize(
    ("study", "part"),
    [(ADDONS, "A"), (AUTOSCALING, "Stable Diffusion beta, 12 August 2022"), (HARDWARE, "v4.1, closed, ASUSTeK")],
    ids=lambda value: value.name if isinstance(value, Study) else "",
)
def test_parts_that_a_command_does_not_make_are_not_replaced(study: Study, part: str) -> None:
    folder = REPOSITORY / "results"
    parts = [*study.parts(json.loads((folder / f"{study.name}.json").read_bytes()))]
    study.refuse_loss(folder, [*parts, "one more"])
    with pytest.raises(ConfigError, match=rf"{study.name}.json: has .*{part}.* does not make; give their file too"):
        study.refuse_loss(folder, [name for name in parts if not name.startswith(part)])


@pytest.mark.parametrize("words", [["autoscaling"], ["hardware", "--runs", "mine.csv"]], ids=lambda words: words[0])
def test_loss_is_refused_before_the_runs(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = (DATA / "mlperf-sdxl-server.csv").read_text().splitlines(keepends=True)
    Path("mine.csv").write_text("".join(rows[:2]))
    file = Path(f"{words[0]}.json")
    file.write_bytes((REPOSITORY / "results" / file).read_bytes())
    assert main(["reproduce", *words, "-o", "."]) == 2
    assert f"{file}: has " in capsys.readouterr().err
    assert file.read_bytes() == (REPOSITORY / "results" / file).read_bytes()


def test_study_is_written_before_it_is_printed(tmp_path: Path) -> None:
    facts = json.loads((REPOSITORY / "results" / "swiftdiffusion.json").read_bytes())
    with redirect_stdout(ClosedPipe()), pytest.raises(BrokenPipeError):
        STAGES.reproduce(lambda: facts, tmp_path)
    assert {"swiftdiffusion.json", "swiftdiffusion.md"} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": [{}]}', '{"settings": 3}'])
def test_file_of_another_study_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "swiftdiffusion.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"swiftdiffusion.json: found no results of this study and version"):
        read_committed(file, STAGES.comparisons)


@pytest.mark.parametrize(
    "study",
    [
        "",
        "hardware",
        "stages",
        "addons",
        "autoscaling",
        "cascade",
        "compositions",
        "disaggregated",
        "elastic",
        "fleets",
    ],
)
def test_check_outside_a_clone_is_refused_before_any_run(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *study.split(), "--check"]) == 2
    assert "cannot be read (No such file or directory), and --check compares with it" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("module", "words"), [(autoscaling, "autoscaling --launcher slurm"), (runs, "cascade"),
                                               (runs, "compositions")])  # fmt: skip
def test_failed_run_is_named_with_its_command_and_nothing_is_written(
    module: ModuleType, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "finish", lambda points, *_: Runs(tuple((point, "no room") for point in points)))
    assert main(["reproduce", *words.split(), "--quick", "-o", str(tmp_path)]) == 2
    command, error = capsys.readouterr().err.splitlines()
    assert command.startswith("mezzotint: mezzotint run ")
    assert error.endswith("a run failed: no room")
    assert not list(tmp_path.iterdir())


def test_outside_of_a_clone_the_folder_is_asked_for() -> None:
    """No wheel has the folder of the tests."""
    with pytest.raises(ConfigError, match=r"^DIR: found none, and tests/none is in a clone .* name a folder of tables"):
        committed("tests/none", "tables", "made by nobody")
