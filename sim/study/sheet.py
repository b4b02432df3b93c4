"""The paper that figures are drawn on: a wide one for a screen, a narrow one for a phone, letters alike on both."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from conf.palette import panels

PIXELS_PER_INCH = 112
"""At which the page shows every figure, so that letters have one size in all of them; it shrinks them only to fit."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A width in inches, the panels that fit side by side, the letters that fit a name, and dots per inch."""

    name: str
    width: float
    columns: int
    letters: int
    dpi: int


WIDE = Sheet("wide", 10.4, 3, 30, 150)
NARROW = Sheet("narrow", 3.9, 1, 21, 200)


def grid(
    count: int, sheet: Sheet, height: float | Sequence[float], *, share_y: bool = True
) -> tuple[Figure, list[Any]]:
    """A figure of `count` panels, each `height` inches tall, in as many columns as fit: (Figure, its Axes)."""
    heights = [height] * count if isinstance(height, int | float) else list(height)
    columns = min(count, sheet.columns)
    rows = -(-count // columns)
    tall = [max(heights[row * columns : (row + 1) * columns]) for row in range(rows)]
    figure, axes = panels(
        columns, rows, width=width(columns, sheet), height=sum(tall), share_y=share_y, height_ratios=tall
    )
    for panel in axes.flat[count:]:
        panel.set_visible(False)
    return figure, list(axes.flat[:count])


def width(columns: int, sheet: Sheet) -> float:
    """Inches across: a single panel need not be as wide as a screen."""
    return sheet.width if columns > 1 else min(sheet.width, 7.2)
