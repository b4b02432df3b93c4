"""What --check compares with: the committed files of every study, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers import addons, compositions
from mezzotint.sim.papers.apart import rows
from mezzotint.sim.papers.autoscaling import study as autoscaling
from mezzotint.sim.papers.hardware import results
from mezzotint.sim.papers.stages import replay
from mezzotint.sim.papers.study import Comparison, Comparisons, Results, lost_rows, read_committed
from tests.conftest import REPOSITORY

COMMITTED = {
    "hardware": results.comparisons,
    "swiftdiffusion": replay.comparisons,
    "addons": addons.comparisons,
    "addons-quick": addons.comparisons,
    "apart": rows.comparisons,
    "autoscaling": autoscaling.comparisons,
    "autoscaling-quick": autoscaling.comparisons,
    "compositions": compositions.comparisons,
    "compositions-quick": compositions.comparisons,
}


@pytest.mark.parametrize("name", COMMITTED)
def test_every_committed_file_has_verdicts_that_can_be_lost(name: str) -> None:
    judge: Callable[[Results], Comparisons] = COMMITTED[name]
    found = read_committed(REPOSITORY / "results" / f"{name}.json", judge)
    within = [row for row, each in found.items() if each.within_tolerance]
    assert len(within) >= 5
    for row in within:
        spoiled = dict(found) | {row: Comparison(found[row].expected, "spoiled", False)}
        (line,) = lost_rows(found, spoiled)
        assert line == (
            f"{row}: no longer within tolerance: expected {found[row].expected}, found spoiled, "
            f"before {found[row].ours}"
        )


def test_only_rows_within_tolerance_can_be_lost() -> None:
    within, outside = Comparison("1", "1", True), Comparison("1", "2", False)
    assert lost_rows({"a": outside, "b": within}, {"a": within, "b": within, "c": outside}) == []
    assert lost_rows({"a": outside, "b": within}, {}) == ["b: was within tolerance, and the row is missing now"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": [{}]}', '{"settings": 3}'])
def test_file_of_another_study_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "swiftdiffusion.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"swiftdiffusion.json: found no results of this study and version"):
        read_committed(file, replay.comparisons)


@pytest.mark.parametrize("study", ["", "hardware", "stages", "addons", "apart", "autoscaling", "compositions"])
def test_check_outside_a_clone_is_refused_before_any_run(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *study.split(), "--check"]) == 2
    error = capsys.readouterr().err
    assert "cannot be read (No such file or directory), and --check compares with it" in error
    assert "name the results folder of a clone with -o, or make it once without --check" in error
    assert list(tmp_path.iterdir()) == []
