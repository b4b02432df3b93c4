"""Execute a notebook and write it as a page: ``python notebooks/make.py notebooks/NAME.py FOLDER``. `make notebooks`.

Without the real traces: a page shows what the project itself has.
"""

import os
import sys
import tempfile
from pathlib import Path

import jupytext
import nbclient
from nbconvert import MarkdownExporter
from nbformat import NotebookNode


def execute(source: Path) -> NotebookNode:
    """Return the notebook of a text in jupytext's percent format, with outputs, in an empty working folder."""
    notebook = jupytext.read(source)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        if "outputs" in cell:  # what a library warns of names files of this machine
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    return notebook


def write(notebook: NotebookNode, name: str, folder: Path) -> None:
    """Write NAME.md, and its figures in NAME/, into ``folder``."""
    text, found = MarkdownExporter().from_notebook_node(notebook, {"unique_key": "figure", "output_files_dir": name})
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, content in found["outputs"].items():
        (folder / file).write_bytes(content)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    page, out = Path(sys.argv[1]), Path(sys.argv[2])
    os.environ.pop("MEZZOTINT_DATA", None)
    write(execute(page), page.stem, out)
