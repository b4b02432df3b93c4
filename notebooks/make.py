"""Execute the notebooks and write each as a page: ``python notebooks/make.py FOLDER [NAME...]``. `make notebooks`.

Without the real traces: a page shows what the project itself has.
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jupytext
import nbclient
from nbconvert import MarkdownExporter
from nbformat import NotebookNode


def execute(source: Path) -> NotebookNode:
    """Return the notebook of a text in jupytext's percent format, with outputs, in an empty working folder."""
    notebook = jupytext.read(source)
    with tempfile.TemporaryDirectory() as folder:
        run(notebook, Path(folder))
    for cell in notebook.cells:
        if "outputs" in cell:  # what a library warns of names files of this machine
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    return notebook


def run(notebook: NotebookNode, folder: Path) -> None:
    """Run the cells of ``notebook`` in ``folder`` and keep their outputs in it."""
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=resources).execute()


def write(notebook: NotebookNode, name: str, folder: Path) -> None:
    """Write NAME.md, and its figures in NAME/, into ``folder``."""
    text, found = MarkdownExporter().from_notebook_node(notebook, {"unique_key": "figure", "output_files_dir": name})
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, content in found["outputs"].items():
        (folder / file).write_bytes(content)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")


def main(folder: Path, names: Sequence[str]) -> None:
    """Make the pages of ``names``, of all notebooks if there are none, two at a time."""
    here = Path(__file__).parent
    pages = [here / f"{name}.py" for name in names] or sorted({*here.glob("*.py")} - {Path(__file__)})
    os.environ.pop("MEZZOTINT_DATA", None)
    with ThreadPoolExecutor(2) as both:  # not processes: two kernels that start at once might choose one port
        for page, notebook in zip(pages, both.map(execute, pages), strict=True):
            write(notebook, page.stem, folder)
            print(f"{folder / page.stem}.md")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
