"""How figures look, in every room: colours that colour-blind readers can tell apart, one style, grids of panels."""

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
"""Of text, and of what a paper says."""

EDGE = "#555555"
"""Of axes, and of limits that belong to no series."""

GREY = "#8a8a8a"
STYLE = mpl.rc_params_from_file(Path(__file__).with_name("house.mplstyle"), use_default_template=False)

# Okabe and Ito's palette ("Color Universal Design", 2008) without its yellow, which is lost on white.
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
COLOURS = (BLUE, VERMILION, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000")


@contextmanager
def house_style() -> Iterator[None]:
    """Draw as every report is drawn, whatever the reader's own matplotlib settings; works as a decorator."""
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
    """A figure (inches) with a grid of axes: (Figure, array of Axes of shape rows x columns)."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.05))
    axes = figure.subplots(
        rows, columns, squeeze=False, sharey="row" if share_y else False, height_ratios=height_ratios
    )
    return figure, axes


def plain_numbers(scale: float = 1.0, unit: str = "") -> FuncFormatter:
    """Marks of a logarithmic axis as plain numbers: the values times `scale`, with `unit` behind them."""
    return FuncFormatter(lambda value, _: f"{value * scale:,.10g}{unit}")
