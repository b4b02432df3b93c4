"""The pictures of the pages are small."""

import io
import subprocess

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from mezzotint.figures.save import page_svg, svg
from tests.conftest import REPOSITORY

MAX_BYTES = 60_000
SUFFIXES = (".gif", ".ipynb", ".jpeg", ".jpg", ".pdf", ".png", ".svg", ".webp")


def test_every_committed_picture_is_small() -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("needs a clone")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    files = [REPOSITORY / name for name in listed.stdout.split("\0") if name.endswith(SUFFIXES)]
    sizes = {file.relative_to(REPOSITORY).as_posix(): file.stat().st_size for file in files if file.exists()}
    assert len(sizes) > 20
    assert {name: size for name, size in sizes.items() if size > MAX_BYTES} == {}
    assert [name for name in sizes if name.endswith(".ipynb")] == [], "outputs of notebooks are made, not kept"


def test_small_svg_looks_like_the_one_of_matplotlib() -> None:
    vl_convert = pytest.importorskip("vl_convert", reason="needs the dev extra")
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    axes.plot([0, 1, 2], [0.123456, 2.5, 1.0], "o-", clip_on=True)
    axes.fill_between([0, 2], [0, 1], alpha=0.3, hatch="//")
    axes.imshow(np.eye(2), extent=(0.0, 1.0, 0.0, 1.0))
    axes.set(xlim=(0.5, 1.5), xticklabels=[], yticklabels=[])
    small, whole = page_svg(figure), svg(figure)
    assert len(small) < 0.6 * len(whole)
    shown = [_pixels(vl_convert.svg_to_png(image.decode(), scale=2)) for image in (small, whole)]
    assert np.abs(shown[0] - shown[1]).max() < 0.1, "coordinates are rounded to a hundredth of a point"
    assert shown[0].min() < 0.5


def _pixels(image: bytes) -> np.ndarray:
    return np.asarray(imread(io.BytesIO(image)), float)
