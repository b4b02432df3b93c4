"""The quick form of the project's own scorecard: a verdict that was met at the last commit still is."""

from pathlib import Path

import pytest

from mezzotint.sim.cli import main
from tests.conftest import REPOSITORY


def test_no_committed_verdict_is_lost(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """After an intended loss, `mezzotint reproduce --quick` writes the new state."""
    status = main(["reproduce", "--quick", "--check", "-o", str(REPOSITORY / "results"), "--work", str(tmp_path)])
    assert status == 0, capsys.readouterr().err
