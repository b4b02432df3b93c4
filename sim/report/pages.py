"""Output of a study: NAME.md, NAME.json and NAME*.svg, written atomically."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mezzotint.files.atomic import atomic_files, check_ours, output_folder
from mezzotint.sim.core.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def image_file(stem: str) -> str:
    """Return the file name of a page's figure."""
    return f"{stem}.svg"


def write_page(
    folder: Path,
    name: str,
    facts: Mapping[str, Any],
    text: str,
    figures: "Mapping[str, Figure | None]",
    more: Mapping[str, str] | None = None,
) -> None:
    """Write a study's page, its data and its figures in ``folder``, and print the paths.

    Args:
        text: the page in Markdown. An existing file is replaced only if it begins with the same line.
        figures: by file name, see `image_file`; a None removes the file of an earlier page.
        more: further pages in Markdown, by file name.

    Raises:
        ConfigError: the folder or a file cannot be written, or NAME.md holds something else.
    """
    from mezzotint.figures.save import page_svg  # importing matplotlib takes a second

    output_folder(folder, ConfigError)
    markdown, data = folder / f"{name}.md", folder / f"{name}.json"
    check_ours(markdown, ConfigError, "a page of this study", text.partition("\n")[0].encode())
    drawn = {folder / file: figure for file, figure in figures.items() if figure is not None}
    removed = [folder / file for file, figure in figures.items() if figure is None]
    further = {folder / file: content for file, content in (more or {}).items()}
    with atomic_files([*drawn, *further, data, markdown], ConfigError, removed) as (*made, plain, page):
        for image, figure in zip(made, drawn.values(), strict=False):
            image.write_bytes(page_svg(figure))
        for file, content in zip(made[len(drawn) :], further.values(), strict=True):
            file.write_text(content, encoding="utf-8")
        plain.write_text(json.dumps(facts, indent=1, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
        page.write_text(text, encoding="utf-8")
    print(markdown, *further, data, *drawn, sep="\n")
