"""Style of all figures: a colour-blind safe palette, one matplotlib style, grids of panels."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.colors import to_hex, to_rgb
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

# Okabe and Ito's palette ("Color Universal Design", 2008) without its yellow, which is lost on white. Its orange and
# its sky blue are darkened to a contrast of 3 : 1 on white.
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
COLOURS = (BLUE, VERMILION, GREEN, "#CC79A7", "#B87B00", "#4A9CCB", "#000000")

LIGHT, DARK = "#ffffff", "#16181d"
"""Backgrounds of a page."""

MIN_CONTRAST = 3.0
"""Least contrast of what is drawn with its background (WCAG 2.2, 1.4.11)."""


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def on_dark(colour: str) -> str:
    """Return the colour for a dark page: a grey turned from dark to light, another with as much white as it needs."""
    red, green, blue = to_rgb(colour)
    if red == green == blue:
        grey = 1 - 0.9 * red
        return to_hex((grey, grey, grey))
    mixes = (white / 20 for white in range(21))
    shades = (to_hex((red + (1 - red) * mix, green + (1 - green) * mix, blue + (1 - blue) * mix)) for mix in mixes)
    return next(shade for shade in shades if contrast(shade, DARK) >= MIN_CONTRAST + 1)


def _luminance(colour: str) -> float:
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


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
