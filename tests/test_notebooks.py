"""The notebooks run from start to end, headless, with real files and without."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.traces.lab import DDB_ROW, VALID

jupytext = pytest.importorskip("jupytext", reason="needs the notebooks extra")
nbclient = pytest.importorskip("nbclient", reason="needs the notebooks extra")
nbformat = pytest.importorskip("nbformat", reason="needs the notebooks extra")
pytest.importorskip("ipykernel", reason="needs the notebooks extra")

FOLDER = REPOSITORY / "notebooks"
PAGES = sorted(page.stem for page in FOLDER.glob("*.py") if page.name != "execute.py")


@pytest.mark.parametrize("name", PAGES)
def test_notebook_is_its_executed_text(name: str) -> None:
    """If this fails, `python notebooks/execute.py` makes it anew."""

    def contents(notebook: Any) -> list[tuple[str, str, list[str]]]:
        return [(cell.cell_type, cell.source, cell.metadata.get("tags", [])) for cell in notebook.cells]

    shown = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(shown)
    assert contents(shown) == contents(jupytext.read(FOLDER / f"{name}.py"))
    outputs = [output for cell in shown.cells for output in cell.get("outputs", [])]
    assert outputs
    assert not any(output.output_type == "error" for output in outputs)
    images = [output["data"].get("image/png", "") for output in outputs if "data" in output]
    assert all(len(image) * 3 // 4 < 125_000 for image in images), "a page that is browsed has small figures"
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|work|Users)/", text), "no path of the machine that made it"


def test_workload_notebook_runs_with_partial_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the real files are present and one is not."""
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
    text = "\n".join(output["data"].get("text/markdown", "") for output in outputs if "data" in output)
    assert "## DiffusionDB 1k beside synthetic" in text
    assert "## GenTD26 beside synthetic" in text
    assert "No diffusiondb/arrival_order_3k.csv" in text
    assert sum("image/png" in output.get("data", {}) for output in outputs) > 10


def test_nirvana_runs_on_a_fresh_clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    notebook = jupytext.read(FOLDER / "nirvana.py")
    (parameters,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    parameters.source += f"\nwork = {str(tmp_path)!r}"
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 4


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_simulates_by_the_python_interface(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert re.search(r"^import mezzotint$", text, re.MULTILINE)
    assert not re.search(r"^from (tests|sim\.(engine|run|cluster|scheduling|execution))\b", text, re.MULTILINE)
