"""One stroke on one panel: a distribution, its axis and limits, a bar and its range."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from conf.palette import EDGE, GREY, panels, plain_numbers
from sim.study.compare import Cell, slo_multiples
from sim.study.palette import Mark
from sim.study.runs import Floats

WIDTH = 4.3
"""Inches of a figure: at 400 pixels of a phone its letters can be read, and a screen shows several side by side."""

LETTERS = 21
"""Of a name beside a panel."""

_LIMIT: Any = {
    **{"rotation": 90, "ha": "right", "va": "bottom", "fontsize": 8, "annotation_clip": True},
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
}
_WIDE = 30.0  # ratio of longest to shortest latency from which a linear axis hides the short ones


def column(heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """A figure of panels one below the other, each as many inches tall."""
    figure, axes = panels(1, len(heights), width=WIDTH, height=sum(heights), share_y=False, height_ratios=heights)
    return figure, list(axes.flat)


def cumulative(panel: Axes, replicas: Floats, probabilities: Floats, look: Mark) -> None:
    """A cumulative distribution: mean over replicas (rows, s) of each quantile, their range as a band."""
    middle = replicas.mean(axis=0)
    panel.plot(middle, probabilities, color=look.colour, linestyle=look.dash)
    if len(replicas) > 1:
        low, high = replicas.min(axis=0), replicas.max(axis=0)
        panel.fill_betweenx(probabilities, low, high, color=look.colour, alpha=0.18, linewidth=0)
    for level in (0.5, 0.99):
        panel.plot(np.interp(level, probabilities, middle), level, color=look.colour, marker=look.marker, zorder=4)


def latency_range(panel: Axes, row: float, quantiles: Floats, probabilities: Floats, look: Mark) -> None:
    """A distribution (s) as a row: a bar from p10 to p90, a dot at p50, a stroke at p99."""
    low, middle, high, last = np.interp([0.1, 0.5, 0.9, 0.99], probabilities, quantiles)
    panel.barh(row, high - low, left=low, height=0.5, color=look.colour, alpha=0.4, linewidth=0)
    panel.plot([high, last], [row, row], color=look.colour, linewidth=0.8)
    panel.plot(middle, row, color=look.colour, marker="o", markersize=4.5, zorder=4)
    panel.plot(last, row, color=look.colour, marker="|", markersize=8, markeredgewidth=1.6, zorder=4)


def latency_axis(panel: Axes, curves: Sequence[Floats]) -> None:
    """A logarithmic x axis with plain numbers if the curves (s) span more than thirtyfold."""
    low, high = min(float(curve[0]) for curve in curves), max(float(curve[-1]) for curve in curves)
    if low > 0 and high / low > _WIDE:
        panel.set_xscale("log")
        decades = np.log10(high / low)
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 3.0), numticks=6))
        panel.xaxis.set_major_formatter(plain_numbers())
        panel.xaxis.set_minor_formatter(NullFormatter())
    else:
        panel.set_xlim(left=0)


def slo_limits(panel: Axes, drawn: Sequence[Cell], looks: Mapping[str, Mark]) -> bool:
    """Dashed lines at the SLO limits (s): grey where all series share one, else in the series' colour."""
    any_drawn = False
    for name in slo_multiples([run for cell in drawn for run in cell.runs]):
        limits = {cell.series: value.mean for cell in drawn if (value := cell.spread("slo", name, "limit_s"))}
        distinct = {round(limit, 6) for limit in limits.values()}
        for limit in sorted(distinct):
            owners = [series for series, value in limits.items() if round(value, 6) == limit]
            colour = EDGE if len(distinct) == 1 or len(owners) > 1 else looks[owners[0]].colour
            panel.axvline(limit, color=colour, linestyle="--", linewidth=1.0, zorder=1.5)
            place: Any = {"xycoords": ("data", "axes fraction"), "xytext": (-2, 0), "textcoords": "offset points"}
            panel.annotate(name, (limit, 0.012), color=colour, **_LIMIT, **place)
            any_drawn = True
    return any_drawn


def bar(panel: Axes, row: float, value: float, low: float, high: float, look: Mark, text: str) -> None:
    """A horizontal bar with the range over replicas as a whisker and `text` after its end."""
    panel.barh(row, value, height=0.66, color=look.colour, linewidth=0)
    if high > low:
        panel.plot([low, high], [row, row], color="#222222", linewidth=1.3, marker="|", markersize=6)
    panel.annotate(text, (high, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8.5)


def step_colours(keys: Sequence[str]) -> dict[str, str]:
    """Dark to light for few to many steps skipped, greys for hits without a K and for misses."""
    numbered = [key for key in keys if key not in ("miss", "unknown")]
    scale = mpl.colormaps["viridis"]
    colours = {key: to_hex(scale(0.12 + 0.8 * index / max(1, len(numbered) - 1))) for index, key in enumerate(numbered)}
    return colours | {"unknown": GREY, "miss": "#dedede"}


def ink(colour: str) -> str:
    """Black or white, whichever reads better on `colour` (relative luminance, ITU-R BT.709)."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "white"
