"""Parts shared by all panels: the look of a trace, published values, axes of shares and durations."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator, PercentFormatter

from mezzotint.figures.palette import INK, plain_numbers
from mezzotint.settings.choice import choice

Part = TypeVar("Part")

SPANS = (
    (3600.0, "1 h"), (60.0, "1 min"), (1.0, "1 s"), (86_400.0, "1 d"), (600.0, "10 min"), (10.0, "10 s"),
    (4 * 3600.0, "4 h"), (7 * 86_400.0, "1 wk"), (30 * 86_400.0, "30 d"),
)  # fmt: skip
"""Round durations to mark, the most important first if not all fit."""

MIN_GAP = 0.12
"""Smallest distance of two marks, as a share of the axis."""


class Look(NamedTuple):
    """Look of one trace: its label, its colour, its place from 0 among the `group_size` traces drawn."""

    label: str
    colour: str
    place: int
    group_size: int

    def offset(self, total: float) -> tuple[float, float]:
        """Return the offset of this trace's bar from the middle of a group `total` wide, and the bar's width."""
        width = total / self.group_size
        return (self.place - (self.group_size - 1) / 2) * width, width


Series = Sequence[tuple[Look, Part]]
"""A statistic of each trace, with the look of the trace."""


def published() -> Mapping[str, Any]:
    """Return the papers' values in conf/data/workload.yaml."""
    return choice("data", "workload")


def rising(panel: Axes, series: Series[npt.NDArray[Any]]) -> float:
    """Draw the share of the values (n,) that are at most x. Returns the largest value, 0 if there is none."""
    for look, values in series:
        if len(values):
            share = np.arange(1, len(values) + 1) / len(values)
            panel.plot(np.sort(values), share, color=look.colour, drawstyle="steps-post")
    return max((float(values.max()) for _, values in series if len(values)), default=0.0)


def falling(panel: Axes, values: npt.NDArray[Any], look: Look) -> None:
    """Draw the share of the values (n,) that are at least x."""
    share = 1.0 - np.arange(len(values)) / len(values)
    panel.plot(np.sort(values), share, color=look.colour)


def draw_ranks(panel: Axes, series: Series[npt.NDArray[Any]]) -> None:
    """Draw falling values (n,) over their ranks, both axes logarithmic."""
    for look, values in series:
        panel.plot(np.arange(1, len(values) + 1), values, color=look.colour)
    logarithmic(panel, "x")
    logarithmic(panel, "y")


def shares(panel: Axes, label: str) -> None:
    """Set a y axis of shares from 0 to 1, in percent."""
    panel.set_ylim(0.0, 1.02)
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set_ylabel(label)


def durations(panel: Axes, low_s: float, high_s: float, label: str) -> None:
    """Set a logarithmic x axis of seconds, marked at round durations."""
    panel.set_xscale("log")
    low_s, high_s = max(low_s, 0.5), max(high_s, 120.0)
    panel.set_xlim(low_s, high_s)
    min_gap = math.log(high_s / low_s) * MIN_GAP
    names: dict[float, str] = {}
    for seconds, text in SPANS:
        if low_s <= seconds <= high_s * 1.001 and all(abs(math.log(seconds / other)) >= min_gap for other in names):
            names[seconds] = text
    panel.xaxis.set_major_locator(FixedLocator(sorted(names)))
    panel.xaxis.set_minor_locator(NullLocator())
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, "")))
    panel.set_xlabel(label)


def ages(
    panel: Axes, series: Series[npt.NDArray[Any]], label: str, share_label: str, title: str, longest_s: float = 0.0
) -> None:
    """Draw the share of the durations (n,), seconds, that are at most x."""
    durations(panel, 1.0, max(longest_s, rising(panel, series)), label)
    shares(panel, share_label)
    panel.set_title(title)


def logarithmic(panel: Axes, which: str, *, percent: bool = False) -> None:
    """Set a logarithmic axis ("x" or "y") with plain numbers; call it once everything is drawn."""
    axis = panel.xaxis if which == "x" else panel.yaxis
    panel.set(**{f"{which}scale": "log"})
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 60 else (1.0,), numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(plain_numbers(100.0, " %") if percent else plain_numbers())


def empty(panel: Axes, why: str) -> None:
    """Write into an empty panel why it is empty."""
    panel.text(0.5, 0.5, why, transform=panel.transAxes, ha="center", va="center", color=INK, fontsize=8)


def annotate(panel: Axes, text: str, x: float, y: float, *, left: bool = True) -> None:
    """Write small text inside a panel at axes fractions `x`, `y`, on white."""
    panel.text(
        x, y, text, transform=panel.transAxes, fontsize=7.5, color=INK, va="center", ha="left" if left else "right",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85}, zorder=6,
    )  # fmt: skip
