"""What --check compares with: the committed files of every study, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sim.cli import main
from sim.core.errors import ConfigError
from sim.papers.addons import caches
from sim.papers.compositions import designs
from sim.papers.hardware import card
from sim.papers.stages import replay
from sim.papers.verdicts import Judged, RequestColumns, Verdicts, committed, lost
from tests.conftest import REPOSITORY

COMMITTED = {
    "hardware": card.judged, "swiftdiffusion": replay.judged, "addons": caches.judged, "addons-quick": caches.judged,
    "compositions": designs.judged, "compositions-quick": designs.judged,
}  # fmt: skip


@pytest.mark.parametrize("name", COMMITTED)
def test_every_committed_file_has_verdicts_that_can_be_lost(name: str) -> None:
    judge: Callable[[RequestColumns], Verdicts] = COMMITTED[name]
    found = committed(REPOSITORY / "results" / f"{name}.json", judge)
    held = [row for row, each in found.items() if each.held]
    assert len(held) >= 5
    for row in held:
        spoiled = dict(found) | {row: Judged(found[row].expected, "spoiled", False)}
        (line,) = lost(found, spoiled)
        assert line == (
            f"{row} held and is missed: expected {found[row].expected}, found spoiled, before {found[row].ours}"
        )


def test_only_what_held_can_be_lost() -> None:
    held, missed = Judged("1", "1", True), Judged("1", "2", False)
    assert lost({"a": missed, "b": held}, {"a": held, "b": held, "c": missed}) == []
    assert lost({"a": missed, "b": held}, {}) == ["b held and is no row any more"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": [{}]}', '{"settings": 3}'])
def test_another_file_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "swiftdiffusion.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"swiftdiffusion.json: found no results of this study and version"):
        committed(file, replay.judged)


@pytest.mark.parametrize("study", ["", "hardware", "stages", "addons", "compositions"])
def test_outside_a_clone_a_check_is_refused_before_any_run(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["scorecard", *study.split(), "--check"]) == 2
    said = capsys.readouterr().err
    assert "cannot be read (No such file or directory), and --check compares with it" in said
    assert "name the results folder of a clone with -o, or make it once without --check" in said
    assert list(tmp_path.iterdir()) == []
