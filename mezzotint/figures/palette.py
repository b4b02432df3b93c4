"""Style of all figures: a colour-blind safe palette, one matplotlib style, grids of panels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter

DPI = 150
INK = "#333333"
"""Colour of text, and of a paper's values."""

EDGE = "#555555"
"""Colour of axes, and of limits outside any series."""

GREY = "#8a8a8a"
STYLE = mpl.rc_params_from_file(Path(__file__).with_name("house.mplstyle"), use_default_template=False)

# Okabe and Ito's palette ("Color Universal Design", 2008) without its yellow, which is lost on white.
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
COLOURS = (BLUE, VERMILION, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000")


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the style of reports, ignoring the user's matplotlib settings; also a decorator."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def panels(
    columns: int,
    rows: int = 1,
    *,
    width: float = 10.0,
    height: float = 3.6,
    share_y: bool = True,
    height_ratios: Sequence[float] | None = None,
) -> tuple[Figure, Any]:
    """Return a figure (inches) with a grid of axes: (Figure, array of Axes of shape rows x columns)."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.05))
    axes = figure.subplots(
        rows, columns, squeeze=False, sharey="row" if share_y else False, height_ratios=height_ratios
    )
    return figure, axes


def plain_numbers(scale: float = 1.0, unit: str = "") -> FuncFormatter:
    """Format ticks of a logarithmic axis as plain numbers: values times `scale`, then `unit`."""
    return FuncFormatter(lambda value, _: f"{value * scale:,.10g}{unit}")
