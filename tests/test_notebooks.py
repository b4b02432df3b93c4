"""The notebooks run from start to end, headless, with real files and without."""

from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.traces.lab import DDB_ROW, VALID

jupytext = pytest.importorskip("jupytext", reason="needs the notebooks extra")
nbclient = pytest.importorskip("nbclient", reason="needs the notebooks extra")
pytest.importorskip("ipykernel", reason="needs the notebooks extra")


def test_workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the real files are there, one is not."""
    minutes = b"".join(DDB_ROW.replace(b":45:", b":%02d:" % minute) for minute in range(60))
    (tmp_path / "diffusiondb").mkdir()
    (tmp_path / "diffusiondb/metadata_1k.csv").write_bytes(VALID["diffusiondb"] + minutes)
    (tmp_path / "gentd26").mkdir()
    later = b"2024-11-16 11:00:00,TXT_2_IMG,SUCCEED,g,1,30,m2,0\n"
    (tmp_path / "gentd26/lora_request_trace.csv").write_bytes(VALID["gentd26"] + later)
    monkeypatch.setenv("MEZZOTINT_DATA", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))

    notebook = jupytext.read(REPOSITORY / "notebooks" / "workload.py")
    (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    parameters.source = parameters.source.replace("seeds = 4", "seeds = 2")
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    said = "\n".join(output["data"].get("text/markdown", "") for output in outputs if "data" in output)
    assert "## DiffusionDB 1k beside synthetic" in said
    assert "## GenTD26 beside synthetic" in said
    assert "No diffusiondb/arrival_order_3k.csv" in said
    assert sum("image/png" in output.get("data", {}) for output in outputs) > 10
