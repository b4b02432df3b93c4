"""The short form of ``python -m tests.kills``."""

from pathlib import Path

from tests.kills.trials import COMMANDS, trials


def test_killed_import_leaves_nothing_and_resumes(tmp_path: Path) -> None:
    chosen = [each for each in COMMANDS if each.name == "import"]
    assert len(list(trials(tmp_path, chosen, moments=1, seed=1))) == 1
