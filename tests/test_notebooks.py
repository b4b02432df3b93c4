"""The notebooks become pages; the one that reads real files runs with some of them. `make docs` executes all."""

import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.traces.lab import DDB_ROW, VALID

jupytext = pytest.importorskip("jupytext", reason="needs the notebooks extra")
pytest.importorskip("nbclient", reason="needs the notebooks extra")
pytest.importorskip("nbconvert", reason="needs the notebooks extra")
pytest.importorskip("ipykernel", reason="needs the notebooks extra")

from notebooks.make import execute, run, write  # noqa: E402  after what it needs was looked for

FOLDER = REPOSITORY / "notebooks"
PAGES = sorted(page.stem for page in FOLDER.glob("*.py") if page.name != "make.py")


def test_notebook_becomes_a_page_with_its_outputs(tmp_path: Path) -> None:
    source = tmp_path / "story.py"
    source.write_text(
        "# %% [markdown]\n# # A story\n\n# %%\n"
        "import warnings\nimport matplotlib.pyplot as plt\nimport pandas as pd\n\n"
        "# %matplotlib inline\nplt.plot([1, 2])\nwarnings.warn('of this machine')\npd.DataFrame({'rate': [1.5]})\n"
    )
    write(execute(source), "story", tmp_path / "pages")
    page = (tmp_path / "pages" / "story.md").read_text(encoding="utf-8")
    assert page.startswith("# A story")
    assert "plt.plot([1, 2])" in page
    assert "<td>1.5</td>" in page
    assert "of this machine" not in page.partition("```\n")[2]
    (figure,) = re.findall(r"!\[.*\]\((story/.*\.png)\)", page)
    assert (tmp_path / "pages" / figure).read_bytes().startswith(b"\x89PNG")


def test_every_notebook_is_a_page_of_the_site() -> None:
    """`make docs` executes all of them; their outputs are not kept in the repository."""
    named = re.findall(r"^ +- notebooks/(.*)\.md$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == PAGES


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
    parameters.source = parameters.source.replace("seeds = 4", "seeds = 1")
    run(notebook, tmp_path)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "\n".join(output["data"].get("text/markdown", "") for output in outputs if "data" in output)
    assert "## DiffusionDB 1k beside synthetic" in text
    assert "## GenTD26 beside synthetic" in text
    assert "No diffusiondb/arrival_order_3k.csv" in text
    assert sum("image/png" in output.get("data", {}) for output in outputs) > 10


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_simulates_by_the_python_interface(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert re.search(r"^import mezzotint$", text, re.MULTILINE)
    inner = r"^from (tests|mezzotint\.sim\.(engine|run|cluster|scheduling|execution))\b"
    assert not re.search(inner, text, re.MULTILINE)
