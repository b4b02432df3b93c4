"""The notebooks become pages. `make docs` executes all of them."""

import re
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

jupytext = pytest.importorskip("jupytext", reason="needs the notebooks extra")
pytest.importorskip("nbclient", reason="needs the notebooks extra")
pytest.importorskip("nbconvert", reason="needs the notebooks extra")
pytest.importorskip("ipykernel", reason="needs the notebooks extra")

from notebooks.make import execute, write  # noqa: E402  after what it needs was looked for

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
    named = re.findall(r"^ +- notebooks/(.*)\.md$", (REPOSITORY / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_notebook_simulates_by_the_python_interface(name: str) -> None:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert re.search(r"^import mezzotint$", text, re.MULTILINE)
    inner = r"^from (tests|mezzotint\.sim\.(engine|run|cluster|scheduling|execution))\b"
    assert not re.search(inner, text, re.MULTILINE)
