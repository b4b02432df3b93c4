"""The report's figure over time: how busy the GPUs were and how many requests waited, a strip for each series."""

import sys
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from conf.palette import EDGE, house_style
from sim.report.compare import Cell, cells, common_loads, thinned
from sim.report.labels import Load, natural
from sim.report.palette import LETTERS, Mark, column, folded, marks, name_rows
from sim.report.runs import Floats, Run, time_series

MOST = 12
"""Series drawn; of more, evenly spaced ones with both ends."""

_POINTS = 120

Series = tuple[Floats, Floats]
Drawn = tuple[Cell, Series | None, Series | None]
"""A series at a load, its requests waiting and its busy GPUs."""


@house_style()
def over_time(runs: Sequence[Run]) -> Figure | None:
    """Busy GPUs as shades and requests waiting as an area against time: the first seed of each series.

    Up to three loads. Every series has a strip of its own, as lines at the same ceiling would lie on each other.
    """
    drawn: dict[Load, dict[str, Drawn]] = {}
    for cell in cells(runs):
        waiting, busy = _first(cell, "queued", _POINTS), _first(cell, "busy", _POINTS)
        if waiting or busy:
            drawn.setdefault(cell.load, {})[cell.series] = (cell, waiting, busy)
    loads = common_loads([run for run in runs if run.load in drawn])
    if not loads:
        return None
    names = thinned(sorted({name for load in loads for name in drawn[load]}, key=natural), MOST)
    looks = marks(runs)
    strip = 0.36 if any("\n" in folded(name, LETTERS) for name in names) else 0.26  # inches, for two lines or one
    figure, axes = column([strip * len(names) + 0.75, *([0.8] * len(names))] * len(loads))
    shades = None
    for index, load in enumerate(loads):
        shares, *strips = axes[index * (1 + len(names)) :][: 1 + len(names)]
        own = {name: drawn[load][name] for name in names if name in drawn[load]}
        unit, seconds, end_s = _unit(own)
        shades = _busy(shares, names, own, seconds) or shades
        shares.set_title(f"{load.label}: GPUs busy")
        most = max((float(waiting[1].max()) for _, waiting, _ in own.values() if waiting), default=0.0)
        for name, panel in zip(names, strips, strict=True):
            _waiting(panel, own.get(name), seconds, looks[name], most)
            panel.set_title(f"{folded(name, LETTERS + 8)}: requests waiting", fontsize=9, fontweight="normal", pad=3)
        for panel in (shares, *strips):
            panel.set_xlim(0, end_s / seconds)
            panel.tick_params(axis="x", labelbottom=panel is strips[-1])
        strips[-1].set_xlabel(f"Time ({unit})")
    if shades is not None:
        bar = figure.colorbar(shades, ax=axes[0], location="right", pad=0.01, fraction=0.05, ticks=[0.0, 0.5, 1.0])
        bar.ax.set_yticklabels(["0%", "50%", "100%"])
        bar.outline.set_visible(False)
    return figure


def _first(cell: Cell, column: str, points: int) -> Series | None:
    return next((found for run in cell.runs if (found := time_series(run, column, points))), None)


def _unit(own: Mapping[str, Drawn]) -> tuple[str, int, float]:
    """The unit of time, its seconds, and when the last of the series ends (s)."""
    ends = [float(series[0].max()) for _, *both in own.values() for series in both if series]
    longest = max(ends)
    unit, seconds = ("h", 3600) if longest >= 7200 else ("min", 60) if longest >= 120 else ("s", 1)
    return unit, seconds, longest or 1.0


def _busy(panel: Axes, names: Sequence[str], own: Mapping[str, Drawn], seconds: int) -> QuadMesh | None:
    """A strip a series, dark where all of its GPUs are busy; returns what a colour bar explains."""
    shades = None
    name_rows(panel, names, LETTERS)
    for row, name in enumerate(names):
        if name not in own or (busy := own[name][2]) is None:
            continue
        time, value = busy
        gpus = own[name][0].runs[0].number("gpu", "count") or max(float(value.max()), 1.0)
        edges = np.concatenate(([time[0]], (time[1:] + time[:-1]) / 2, [time[-1]])) / seconds
        share = np.clip(value / gpus, 0.0, 1.0)[None, :]
        shades = panel.pcolormesh(
            edges, [row - 0.38, row + 0.38], share, vmin=0.0, vmax=1.0, cmap="YlGnBu", rasterized=True
        )
    panel.grid(False)
    return shades


def _waiting(panel: Axes, drawn: Drawn | None, seconds: int, look: Mark, most: float) -> None:
    """The queue as an area under a line, on the scale that all series of the load share; its peak in words."""
    panel.set_ylim(0, 1.4 * max(most, 1.0))  # with room for the words
    panel.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    panel.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    if drawn is None or drawn[1] is None:
        panel.text(0.5, 0.4, "no data", transform=panel.transAxes, ha="center", color=EDGE, fontsize=8)
        return
    time, value = drawn[1]
    panel.plot(time / seconds, value, color=look.colour)
    panel.fill_between(time / seconds, value, color=look.colour, alpha=0.25, linewidth=0)
    whole = _first(drawn[0], "queued", sys.maxsize)  # averages over spans hide the peak
    said = f"at most {whole[1].max() if whole else 0:,.0f}"
    panel.text(0.99, 0.95, said, transform=panel.transAxes, ha="right", va="top", color=EDGE, fontsize=8)
