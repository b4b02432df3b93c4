"""The functions that the notebooks import."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from sim.papers.scorecard.scorecard import load_study, runs_of
from sim.report.figures.display import show


def test_figure_has_the_requested_width(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython = pytest.importorskip("IPython.display", reason="needs the notebooks extra")
    shown: list[Any] = []
    monkeypatch.setattr(ipython, "display", shown.append)
    show(None)
    show(Figure(figsize=(4, 2)))
    show(Figure(figsize=(4, 2)), dpi=60, inch_px=85)
    assert [image.width for image in shown] == [None, 340]
    assert all(image.data.startswith(b"\x89PNG") for image in shown)


def test_experiment_left_out_of_the_quick_form_has_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = load_study("modm", quick=True)
    left_out = next(name for name in load_study(None, quick=False).experiments() if name not in card.overrides)
    assert not runs_of(card, left_out, tmp_path, 1, leave_out=True).outcomes
    assert capsys.readouterr().out == f"{left_out}: left out of the quick form\n"
    assert not list(tmp_path.iterdir())
