"""The report's figure over time: busy GPUs and waiting requests, a strip for each series."""

import sys
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mezzotint.figures.palette import EDGE, house_style
from mezzotint.sim.report.compare import SeriesAtLoad, cells, common_loads, thinned
from mezzotint.sim.report.figures.palette import (
    NAME_WIDTH,
    SeriesStyle,
    folded,
    name_rows,
    series_styles,
    stacked_panels,
)
from mezzotint.sim.report.labels import Load, natural
from mezzotint.sim.report.runs import Floats, Run, time_series

MAX_SERIES = 12
"""Of more series, evenly spaced ones are drawn, including both ends."""

_POINTS = 120

TimeSeries = tuple[Floats, Floats]
Strip = tuple[SeriesAtLoad, TimeSeries | None, TimeSeries | None]
"""A series at a load, its waiting requests and its busy GPUs."""


@house_style()
def over_time(runs: Sequence[Run]) -> Figure | None:
    """Draw busy GPUs as shades and waiting requests as an area against time, for the first seed of each series.

    Up to three loads. Every series has its own strip, since lines at the same ceiling would hide each other.
    """
    drawn: dict[Load, dict[str, Strip]] = {}
    for cell in cells(runs):
        waiting, busy = first_series(cell, "queued", _POINTS), first_series(cell, "busy", _POINTS)
        if waiting or busy:
            drawn.setdefault(cell.load, {})[cell.series] = (cell, waiting, busy)
    loads = common_loads([run for run in runs if run.load in drawn])
    if not loads:
        return None
    names = thinned(sorted({name for load in loads for name in drawn[load]}, key=natural), MAX_SERIES)
    styles = series_styles(runs)
    strip = 0.36 if any("\n" in folded(name, NAME_WIDTH) for name in names) else 0.26  # inches, for two lines or one
    figure, axes = stacked_panels([strip * len(names) + 0.75, *([0.8] * len(names))] * len(loads))
    shades = None
    for index, load in enumerate(loads):
        shares, *strips = axes[index * (1 + len(names)) :][: 1 + len(names)]
        own = {name: drawn[load][name] for name in names if name in drawn[load]}
        unit, seconds, end_s = _unit(own)
        shades = _busy(shares, names, own, seconds) or shades
        shares.set_title(f"{load.label}: GPUs busy")
        max_waiting = max((float(waiting[1].max()) for _, waiting, _ in own.values() if waiting), default=0.0)
        for name, panel in zip(names, strips, strict=True):
            _waiting(panel, own.get(name), seconds, styles[name], max_waiting)
            panel.set_title(f"{folded(name, NAME_WIDTH + 8)}: requests waiting", fontsize=9, fontweight="normal", pad=3)
        for panel in (shares, *strips):
            panel.set_xlim(0, end_s / seconds)
            panel.tick_params(axis="x", labelbottom=panel is strips[-1])
        strips[-1].set_xlabel(f"Time ({unit})")
    if shades is not None:
        bar = figure.colorbar(shades, ax=axes[0], location="right", pad=0.01, fraction=0.05, ticks=[0.0, 0.5, 1.0])
        bar.ax.set_yticklabels(["0%", "50%", "100%"])
        bar.outline.set_visible(False)
    return figure


def first_series(cell: SeriesAtLoad, column: str, points: int) -> TimeSeries | None:
    """Return a column of cluster.parquet over up to `points` spans, of the first seed that has it."""
    return next((found for run in cell.runs if (found := time_series(run, column, points))), None)


def _unit(own: Mapping[str, Strip]) -> tuple[str, int, float]:
    """Return the unit of time, its seconds, and the end of the longest series (s)."""
    longest = max(float(series[0].max()) for _, *both in own.values() for series in both if series)
    return *time_unit(longest), longest or 1.0


def time_unit(longest_s: float) -> tuple[str, int]:
    """Return the unit for times up to `longest_s`, and its seconds."""
    return ("h", 3600) if longest_s >= 7200 else ("min", 60) if longest_s >= 120 else ("s", 1)


def _busy(panel: Axes, names: Sequence[str], own: Mapping[str, Strip], seconds: int) -> QuadMesh | None:
    """Draw a strip for each series, dark while all of its GPUs are busy. Returns the mesh for a colour bar."""
    shades = None
    name_rows(panel, names, NAME_WIDTH)
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


def _waiting(panel: Axes, drawn: Strip | None, seconds: int, style: SeriesStyle, max_waiting: float) -> None:
    """Draw the queue as an area, on one scale for all series of the load, and write its peak."""
    panel.set_ylim(0, 1.4 * max(max_waiting, 1.0))  # the margin holds the label
    panel.yaxis.set_major_locator(MaxNLocator(2, integer=True))
    panel.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    if drawn is None or drawn[1] is None:
        panel.text(0.5, 0.4, "no data", transform=panel.transAxes, ha="center", color=EDGE, fontsize=8)
        return
    time, value = drawn[1]
    panel.plot(time / seconds, value, color=style.colour)
    panel.fill_between(time / seconds, value, color=style.colour, alpha=0.25, linewidth=0)
    exact = first_series(drawn[0], "queued", sys.maxsize)  # averages over spans hide the peak
    peak = f"peak {exact[1].max() if exact else 0:,.0f}"
    panel.text(0.99, 0.95, peak, transform=panel.transAxes, ha="right", va="top", color=EDGE, fontsize=8)
