"""The quick form of the project's own scorecard: a verdict that held at the last commit still does."""

from pathlib import Path

import pytest

from sim.cli import main
from tests.conftest import REPOSITORY


def test_no_verdict_that_held_is_lost(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Where a change means to lose one, `mezzotint reproduce --quick` writes the new state."""
    status = main(["reproduce", "--quick", "--check", "-o", str(REPOSITORY / "results"), "--work", str(tmp_path)])
    assert status == 0, capsys.readouterr().err
