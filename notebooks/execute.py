"""Make the notebooks: every page of this folder, executed, beside its text. `python notebooks/execute.py [NAME...]`.

Without the real traces: what is committed shows what the project itself has.
"""

import os
import sys
import tempfile
from pathlib import Path

import jupytext
import nbclient
import nbformat

FOLDER = Path(__file__).parent


def execute(page: Path) -> Path:
    """Write PAGE.ipynb beside PAGE.py: the same text, with outputs and without times."""
    notebook = jupytext.read(page)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=3600, kernel_name="python3", resources=resources).execute()
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index}"
        cell.metadata.pop("execution", None)
        if "outputs" in cell:  # what a library warns of names files of this machine
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    notebook.metadata.pop("language_info", None)
    out = page.with_suffix(".ipynb")
    nbformat.write(notebook, out)
    return out


if __name__ == "__main__":
    os.environ.pop("MEZZOTINT_DATA", None)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER.parent), os.environ.get("PYTHONPATH")]))
    pages = [FOLDER / f"{name}.py" for name in sys.argv[1:]]
    for each in pages or sorted(page for page in FOLDER.glob("*.py") if page.name != Path(__file__).name):
        print(execute(each))
