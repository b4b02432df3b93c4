"""The report's figures: each function takes finished runs and returns a Figure, or None without data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullFormatter, NullLocator, PercentFormatter

from mezzotint.figures.page import number
from mezzotint.figures.palette import EDGE, GREY, house_style, plain_numbers
from mezzotint.sim.core.slo import OWN
from mezzotint.sim.report.compare import (
    SeriesAtLoad,
    Spread,
    cells,
    common_loads,
    hit_shares,
    limit_text,
    slo_multiples,
    steps_order,
)
from mezzotint.sim.report.figures.palette import (
    NAME_WIDTH,
    SeriesStyle,
    legend_below,
    name_rows,
    series_legend,
    series_styles,
    short,
    stacked_panels,
)
from mezzotint.sim.report.labels import Load, natural, short_key
from mezzotint.sim.report.runs import Floats, Run, latency_quantiles

_CDF_POINTS = 2001
_MAX_CURVES = 8
"""With more distributions on one panel, each becomes a row with its range instead of a curve."""

_BAR_INCHES = 0.36
LOG_RATIO = 20.0  # largest to smallest value from which a linear axis crowds the small ones
_TICK_CHARACTERS = 44  # of tick labels that fit below an axis
LOG_LATENCY_RATIO = 30.0  # longest to shortest latency from which a linear axis hides the short ones
_LIMIT_STYLE: Any = {
    **{"rotation": 90, "ha": "right", "va": "bottom", "fontsize": 8, "annotation_clip": True},
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
}


@dataclass(frozen=True, slots=True)
class Axis:
    """An x axis: a configuration key, or None for the request rate, and its title."""

    key: str | None
    title: str

    def value(self, cell: SeriesAtLoad) -> float | None:
        """Return a cell's position on the axis; None if the setting does not apply to its system."""
        if self.key is None:
            return cell.load.rate_rpm
        setting = cell.runs[0].setting
        return None if setting is None else setting.value

    def curve(self, cell: SeriesAtLoad) -> str:
        """Return the name of the curve that a cell is a point of."""
        return cell.series if self.key is None else cell.runs[0].family or cell.series


def axis_of(runs: Sequence[Run]) -> Axis | None:
    """Return the axis with the most values: the rate, or a setting with more values; None if neither varies."""
    rates: dict[str, set[float]] = {}
    for run in runs:
        if run.load.rate_rpm is not None:
            rates.setdefault(run.series, set()).add(run.load.rate_rpm)
    max_rates = max(map(len, rates.values()), default=0)
    settings = {run.setting for run in runs if run.setting is not None}
    if len(settings) > max(max_rates, 1):
        key = next(iter(settings)).key
        return Axis(key, short_key(key))
    return Axis(None, "Request rate (requests/min)") if max_rates > 1 else None


Panel = tuple[str, list[tuple[SeriesAtLoad, Spread]]]
"""A title and the values of its panel."""


@house_style()
def latency_distribution(runs: Sequence[Run]) -> Figure | None:
    """Draw the cumulative share of completed requests against latency (s), a panel for each of up to three loads."""
    probabilities = np.linspace(0.0, 1.0, _CDF_POINTS)
    drawn: dict[Load, list[tuple[SeriesAtLoad, list[Floats]]]] = {}
    loads = common_loads(runs)
    for cell in cells([run for run in runs if run.load in loads]):
        if replicas := [each for run in cell.runs if (each := latency_quantiles(run, probabilities)) is not None]:
            drawn.setdefault(cell.load, []).append((cell, replicas))
    if not drawn:
        return None
    styles = series_styles(runs)
    rows = max(map(len, drawn.values())) > _MAX_CURVES
    heights = [_BAR_INCHES * len(found) + 1.0 if rows else 3.3 for found in drawn.values()]
    figure, axes = stacked_panels(heights)
    limits = False
    for panel, (load, found) in zip(axes, drawn.items(), strict=True):
        panel.set_title(load.label, pad=8)
        if rows:
            name_rows(panel, [cell.series for cell, _ in found], NAME_WIDTH)
        else:
            panel.set_ylim(0, 1.02)
            panel.yaxis.set_major_formatter(PercentFormatter(1.0))
            for level, name in ((0.5, "p50"), (0.99, "p99")):
                panel.axhline(level, color=GREY, linewidth=0.7, zorder=1)
                panel.annotate(name, (1.01, level), xycoords=("axes fraction", "data"), va="center", color=EDGE)
        for row, (cell, replicas) in enumerate(found):
            if rows:
                _latency_range(panel, row, np.mean(replicas, axis=0), probabilities, styles[cell.series])
            else:
                _cumulative(panel, np.array(replicas), probabilities, styles[cell.series])
        limits |= _slo_limits(panel, [cell for cell, _ in found], styles)
        _latency_axis(panel, [curve for _, replicas in found for curve in replicas])
        panel.set_xlabel("Latency, arrival to finish (s)")
        if not rows:
            panel.set_ylabel("Share of completed requests")
    extra = [Line2D([], [], color=GREY, linestyle="--", label="SLO limit (x: × standalone)")] if limits else []
    if rows:
        markers = {"o": "p50", "|": "p99"}
        handles = [Line2D([], [], color=EDGE, linestyle="", marker=marker) for marker in markers]
        thick = Line2D([], [], color=GREY, linewidth=5, alpha=0.5)
        legend_below(
            figure, [thick, *handles, *extra], ["p10 to p90", *markers.values(), *(str(x.get_label()) for x in extra)]
        )
    else:
        series_legend(
            figure, sorted({cell.series for found in drawn.values() for cell, _ in found}, key=natural), styles, extra
        )
    return figure


@house_style()
def slo_violations(runs: Sequence[Run]) -> Figure | None:
    """Draw the share of requests that missed each SLO against the number that the runs vary, or as bars."""
    axis, found = slo_panels(runs)
    return _draw_panels(axis, found, runs, share=True) if found else None


def slo_panels(runs: Sequence[Run]) -> tuple[Axis | None, list[Panel]]:
    """Return a panel for each limit, and for each load if the runs vary another number, with their x axis."""
    axis = axis_of(runs)
    by_rate = axis is not None and axis.key is None  # runs without a rate have no place on that axis
    measured = [cell for cell in cells(runs) if not by_rate or cell.load.rate_rpm is not None]
    loads: list[Load | None] = [None] if axis is None or axis.key is None else list(common_loads(runs))
    found: list[Panel] = []
    for name in slo_multiples(runs):
        for load in loads:
            values = [
                (cell, value)
                for cell in measured
                if (load is None or cell.load == load) and (value := cell.spread("slo", name, "violation_rate"))
            ]
            title = f"SLO {limit_text(short(name))}" if len(loads) == 1 else f"SLO {short(name)}, {load.label}"  # type: ignore[union-attr]
            if values:
                found.append((title, values))
    return axis, found


def _draw_panels(axis: Axis | None, found: Sequence[Panel], runs: Sequence[Run], share: bool) -> Figure:
    """Draw panels of curves along `axis`, or of bars without one: shares over the limit, or throughput."""
    label = "Requests over the limit" if share else "Completed (requests/min)"
    return _draw_curves(axis, found, runs, label, share) if axis else _draw_bars(found, runs, label, share)


def _draw_curves(axis: Axis, found: Sequence[Panel], runs: Sequence[Run], label: str, share: bool) -> Figure:
    styles, offered = series_styles(runs), axis.key is None and not share
    figure, axes = stacked_panels([2.9] * len(found))
    for panel, (title, values) in zip(axes, found, strict=True):
        panel.set_title(title)
        panel.set_ylabel(label)
        _curves(panel, axis, values, styles)
        if offered:
            rates = sorted({cell.load.rate_rpm for cell, _ in values if cell.load.rate_rpm is not None})
            panel.plot(rates, rates, color=GREY, linestyle=":", zorder=1)
        if share:
            panel.set_ylim(-0.02, 1.04)
            panel.yaxis.set_major_formatter(PercentFormatter(1.0))
        else:
            panel.set_ylim(0, 1.1 * max([value.high for _, value in values] + [1e-9]))
    extra = [Line2D([], [], color=GREY, linestyle=":", label="offered rate")] if offered else []
    names = sorted({axis.curve(cell) for _, values in found for cell, _ in values}, key=natural)
    series_legend(figure, names, styles, extra)
    return figure


def _draw_bars(found: Sequence[Panel], runs: Sequence[Run], label: str, share: bool) -> Figure:
    """Draw a bar for each system and load of a panel; throughput bars also name the saved compute."""
    styles = series_styles(runs)
    figure, axes = stacked_panels([_BAR_INCHES * len(values) + 0.9 for _, values in found])
    for panel, (title, values) in zip(axes, found, strict=True):
        panel.set_title(title)
        alike = len({cell.load for cell, _ in values}) == 1
        names = [cell.series if alike else f"{cell.series}, {cell.load.label}" for cell, _ in values]
        name_rows(panel, names, NAME_WIDTH)
        for row, (cell, value) in enumerate(values):
            saving = cell.spread("cache", "compute_saving")
            saved = f", saves {saving.mean:.0%}" if saving and abs(saving.mean) >= 0.005 else ""
            text = f"{value.mean:.1%}" if share else number(value.mean, 3) + saved
            _bar(panel, row, value.mean, value.low, value.high, styles[cell.series], text)
        longest = max(value.high for _, value in values)
        panel.set_xlim(0, 1.25 if share else max(longest, 1e-9) * 1.9)
        panel.xaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1.0]) if share else MaxNLocator(4))
        if share:
            panel.xaxis.set_major_formatter(PercentFormatter(1.0))
        panel.set_xlabel(label)
    return figure


@house_style()
def hit_share(runs: Sequence[Run]) -> Figure | None:
    """Draw the share of cache lookups by steps skipped, misses included, a bar for each series."""
    shares = {(cell.series, cell.load): bar for cell in cells(runs) if (bar := hit_shares(cell)) is not None}
    loads = common_loads([run for run in runs if (run.series, run.load) in shares])
    if not loads:
        return None
    names = sorted({series for series, load in shares if load in loads}, key=natural)
    keys = sorted({key for (_, load), bar in shares.items() if load in loads for key in bar}, key=steps_order)
    colours = step_colours(keys)
    figure, axes = stacked_panels([_BAR_INCHES * len(names) + 0.9] * len(loads))
    for panel, load in zip(axes, loads, strict=True):
        panel.set_title(load.label)
        name_rows(panel, names, NAME_WIDTH)
        for row, series in enumerate(names):
            left = 0.0
            for key, share in shares.get((series, load), {}).items():
                edge = 0.6 if share >= 0.02 else 0
                panel.barh(row, share, left=left, height=0.66, color=colours[key], edgecolor="white", linewidth=edge)
                if share >= 0.12:
                    middle, colour = left + share / 2, _text_colour(colours[key])
                    panel.text(middle, row, f"{share:.0%}", ha="center", va="center", fontsize=8, color=colour)
                left += share
        panel.set_xlim(0, 1)
        panel.xaxis.set_major_locator(MaxNLocator(4))
        panel.xaxis.set_major_formatter(PercentFormatter(1.0))
        panel.set_xlabel("Share of cache lookups")
    words = {"miss": "miss", "unknown": "hit, K not recorded"}
    legend_below(
        figure,
        [Line2D([], [], marker="s", linestyle="", markersize=8, color=colours[key]) for key in keys],
        [words.get(key, f"K = {short(key, 12)}") for key in keys],
        handletextpad=0.2,
        columnspacing=1.4,
    )
    return figure


@house_style()
def throughput(runs: Sequence[Run]) -> Figure | None:
    """Draw completed requests per minute against the number that the runs vary, or a bar for each series."""
    axis, found = throughput_panels(runs)
    return _draw_panels(axis, found, runs, share=False) if found else None


def throughput_panels(runs: Sequence[Run]) -> tuple[Axis | None, list[Panel]]:
    """Return one panel along the rate, or a panel for each of up to three loads, with their x axis."""
    known = [(cell, value) for cell in cells(runs) if (value := cell.spread("throughput_rpm")) is not None]
    axis = axis_of(runs)
    if axis is not None and axis.key is None:
        placed = [(cell, value) for cell, value in known if cell.load.rate_rpm is not None]
        return axis, [("", placed)] if placed else []
    loads = common_loads([run for cell, _ in known for run in cell.runs])
    return axis, [(load.label, [(cell, value) for cell, value in known if cell.load == load]) for load in loads]


def _curves(
    panel: Axes, axis: Axis, points: Sequence[tuple[SeriesAtLoad, Spread]], styles: Mapping[str, SeriesStyle]
) -> None:
    """Draw a line for each curve, with a band over seeds; a system without the setting is a level line."""
    lines: dict[str, list[tuple[float, Spread]]] = {}
    for cell, value in points:
        place = axis.value(cell)
        style = styles[axis.curve(cell)]
        if place is None:
            panel.axhline(value.mean, color=style.colour, linestyle="--", label="")
        else:
            lines.setdefault(axis.curve(cell), []).append((place, value))
    for name, line in lines.items():
        style, places = styles[name], [place for place, _ in line]
        panel.plot(
            places, [value.mean for _, value in line], color=style.colour, linestyle=style.dash, marker=style.marker
        )
        if any(value.count > 1 for _, value in line):
            low, high = [value.low for _, value in line], [value.high for _, value in line]
            panel.fill_between(places, low, high, color=style.colour, alpha=0.18, linewidth=0)
    _scale_axis(panel, sorted({place for place, _ in chain.from_iterable(lines.values())}))
    panel.set_xlabel(axis.title)


def _scale_axis(panel: Axes, places: Sequence[float]) -> None:
    """Scale the x axis linearly from zero, or logarithmically with a tick at each value if they span decades."""
    if places and places[0] > 0 and places[-1] / places[0] >= LOG_RATIO:
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(plain_numbers())
        panel.xaxis.set_minor_locator(NullLocator())
        marked = list(places)
        while len(marked) > 2 and (
            len(marked) > 7 or sum(len(f"{place:,.10g}") + 2 for place in marked) > _TICK_CHARACTERS
        ):
            marked = marked[::-2][::-1]
        panel.xaxis.set_major_locator(FixedLocator(marked))
    else:
        panel.set_xlim(left=min(0.0, places[0]) if places else 0.0)
        panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        panel.xaxis.set_major_formatter(plain_numbers())


def _cumulative(panel: Axes, replicas: Floats, probabilities: Floats, style: SeriesStyle) -> None:
    """Draw a cumulative distribution: the mean over replicas (rows, s) of each quantile, their range as a band."""
    middle = replicas.mean(axis=0)
    panel.plot(middle, probabilities, color=style.colour, linestyle=style.dash)
    if len(replicas) > 1:
        low, high = replicas.min(axis=0), replicas.max(axis=0)
        panel.fill_betweenx(probabilities, low, high, color=style.colour, alpha=0.18, linewidth=0)
    for level in (0.5, 0.99):
        panel.plot(np.interp(level, probabilities, middle), level, color=style.colour, marker=style.marker, zorder=4)


def _latency_range(panel: Axes, row: float, quantiles: Floats, probabilities: Floats, style: SeriesStyle) -> None:
    """Draw a distribution (s) as a row: a bar from p10 to p90, a dot at p50, a stroke at p99."""
    low, middle, high, last = np.interp([0.1, 0.5, 0.9, 0.99], probabilities, quantiles)
    panel.barh(row, high - low, left=low, height=0.5, color=style.colour, alpha=0.4, linewidth=0)
    panel.plot([high, last], [row, row], color=style.colour, linewidth=0.8)
    panel.plot(middle, row, color=style.colour, marker="o", markersize=4.5, zorder=4)
    panel.plot(last, row, color=style.colour, marker="|", markersize=8, markeredgewidth=1.6, zorder=4)


def _latency_axis(panel: Axes, curves: Sequence[Floats]) -> None:
    """Make the x axis logarithmic if the curves (s) span more than a factor of thirty."""
    low, high = min(float(curve[0]) for curve in curves), max(float(curve[-1]) for curve in curves)
    if low > 0 and high / low > LOG_LATENCY_RATIO:
        panel.set_xscale("log")
        decades = np.log10(high / low)
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 3.0), numticks=6))
        panel.xaxis.set_major_formatter(plain_numbers())
        panel.xaxis.set_minor_formatter(NullFormatter())
    else:
        panel.set_xlim(left=0)


def _slo_limits(panel: Axes, drawn: Sequence[SeriesAtLoad], styles: Mapping[str, SeriesStyle]) -> bool:
    """Draw dashed lines at the SLO limits (s): grey if all series share one, else in the series' colour.

    Returns:
        True if a line was drawn.
    """
    any_drawn = False
    for name in slo_multiples([run for cell in drawn for run in cell.runs]):
        if name == OWN:
            continue  # each request has another
        limits = {cell.series: value.mean for cell in drawn if (value := cell.spread("slo", name, "limit_s"))}
        distinct = {round(limit, 6) for limit in limits.values()}
        for limit in sorted(distinct):
            owners = [series for series, value in limits.items() if round(value, 6) == limit]
            colour = EDGE if len(distinct) == 1 or len(owners) > 1 else styles[owners[0]].colour
            panel.axvline(limit, color=colour, linestyle="--", linewidth=1.0, zorder=1.5)
            place: Any = {"xycoords": ("data", "axes fraction"), "xytext": (-2, 0), "textcoords": "offset points"}
            panel.annotate(name, (limit, 0.012), color=colour, **_LIMIT_STYLE, **place)
            any_drawn = True
    return any_drawn


def _bar(panel: Axes, row: float, value: float, low: float, high: float, style: SeriesStyle, text: str) -> None:
    """Draw a horizontal bar with the range over replicas as a whisker and `text` after its end."""
    panel.barh(row, value, height=0.66, color=style.colour, linewidth=0)
    if high > low:
        panel.plot([low, high], [row, row], color="#222222", linewidth=1.3, marker="|", markersize=6)
    panel.annotate(text, (high, row), xytext=(6, 0), textcoords="offset points", va="center", fontsize=8.5)


def step_colours(keys: Sequence[str]) -> dict[str, str]:
    """Return colours, dark to light for few to many steps skipped, greys for hits without a K and for misses."""
    numbered = [key for key in keys if key not in ("miss", "unknown")]
    scale = mpl.colormaps["viridis"]
    colours = {key: to_hex(scale(0.12 + 0.8 * index / max(1, len(numbered) - 1))) for index, key in enumerate(numbered)}
    return colours | {"unknown": GREY, "miss": "#dedede"}


def _text_colour(colour: str) -> str:
    """Return black or white, by contrast with `colour` (relative luminance, ITU-R BT.709)."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "white"
