"""The functions that the notebooks import."""

from typing import Any

import pytest
from matplotlib.figure import Figure

from mezzotint.sim.report.figures.display import show


def test_figure_has_the_requested_width(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython = pytest.importorskip("IPython.display", reason="needs the notebooks extra")
    shown: list[Any] = []
    monkeypatch.setattr(ipython, "display", shown.append)
    show(None)
    show(Figure(figsize=(4, 2)))
    show(Figure(figsize=(4, 2)), dpi=60, inch_px=85)
    assert [image.width for image in shown] == [None, 340]
    assert all(image.data.startswith(b"\x89PNG") for image in shown)
