"""The quick form of the project's own scorecard: a verdict that was met at the last commit still is."""

from pathlib import Path

import pytest

from sim.cli import main
from tests.conftest import REPOSITORY


def test_no_committed_verdict_is_lost(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After an intended loss, `mezzotint reproduce --quick` writes the new state. The notebook of its figures then runs
    from start to end on the same runs."""
    status = main(["reproduce", "--quick", "--check", "-o", str(REPOSITORY / "results"), "--work", str(tmp_path)])
    assert status == 0, capsys.readouterr().err

    jupytext = pytest.importorskip("jupytext", reason="the notebook needs the notebooks extra")
    nbclient = pytest.importorskip("nbclient", reason="the notebook needs the notebooks extra")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    notebook = jupytext.read(REPOSITORY / "notebooks" / "nirvana.py")
    (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    parameters.source += f"\nwork = {str(tmp_path)!r}"
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 4
