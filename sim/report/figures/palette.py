"""Styles, legends and names of the series in a figure; colours and fonts are in mezzotint.figures.palette."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from mezzotint.figures.palette import COLOURS, panels
from mezzotint.sim.report.labels import natural
from mezzotint.sim.report.runs import Run

WIDTH = 4.3
"""Inches of a figure: readable on a phone 400 pixels wide, and several fit side by side on a screen."""

NAME_WIDTH = 21
"""Characters of a name on a line beside a panel."""

_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    """Colour, dash and marker of one series, the same in every figure of a report."""

    colour: str
    dash: Any
    marker: str


def series_styles(runs: Sequence[Run]) -> dict[str, SeriesStyle]:
    """Return a style for each series and family in `runs`; dashes vary when the colours run out.

    With more series than colours, those of one system share a colour. The series of a single system at several values
    of one number are shaded from dark to light, in the order of that number.
    """
    series, names = series_of(runs), families_of(runs)
    system_of = {run.series: run.system for run in runs}
    systems = sorted(set(system_of.values()), key=natural)
    shared = len(systems) < len(series) > len(COLOURS)  # a colour for each system, a dash and a marker for each variant
    styles: dict[str, SeriesStyle] = {}
    for group in (names, series):
        for place, name in enumerate(group):
            index, variant = place, 0
            if shared and name in system_of:
                index = systems.index(system_of[name])
                variant = [each for each in series if system_of[each] == system_of[name]].index(name)
            dash = _DASHES[(variant + index // len(COLOURS)) % len(_DASHES)]
            styles[name] = SeriesStyle(COLOURS[index % len(COLOURS)], dash, _MARKERS[(index + variant) % len(_MARKERS)])
    if len(names) == 1 and len(series) > 2:
        shades = mpl.colormaps["viridis"]
        for index, name in enumerate(series):
            shade = to_hex(shades(0.05 + 0.85 * index / (len(series) - 1))).upper()
            styles[name] = SeriesStyle(shade, "-", _MARKERS[index % len(_MARKERS)])
    return styles


def series_of(runs: Iterable[Run]) -> list[str]:
    """Return the names of the series in natural order."""
    return sorted({run.series for run in runs}, key=natural)


def families_of(runs: Iterable[Run]) -> list[str]:
    """Return the names of the curves along the number that the runs vary, or of the series if they vary none."""
    return sorted({run.family or run.series for run in runs}, key=natural)


def short(name: str, max_length: int = 44) -> str:
    """Return `name` on one line of at most `max_length` characters, never empty and never hidden from a legend."""
    line = " ".join(name.split()) or "unnamed"
    line = line if len(line) <= max_length else f"{line[: max_length - 1]}…"
    return f" {line}" if line.startswith("_") else line


def stacked_panels(heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels one below the other, with their heights in inches."""
    figure, axes = panels(1, len(heights), width=WIDTH, height=sum(heights), share_y=False, height_ratios=heights)
    return figure, list(axes.flat)


def series_legend(
    figure: Figure, series: Sequence[str], styles: Mapping[str, SeriesStyle], extra: Sequence[Line2D] = ()
) -> None:
    """Add a legend below all panels: a line and marker for each series, then `extra`; the figure grows by it."""
    ordered = [styles[name] for name in series]
    handles = [Line2D([], [], color=style.colour, linestyle=style.dash, marker=style.marker) for style in ordered]
    letters = round(figure.get_figwidth() * 12)
    labels = [short(name, min(60, letters - 9)) for name in series] + [str(line.get_label()) for line in extra]
    legend_below(figure, [*handles, *extra], labels, handlelength=2.6)


def legend_below(figure: Figure, handles: Sequence[Line2D], labels: Sequence[str], **style: Any) -> None:
    """Add a legend below all panels in as many columns as its labels allow; the figure grows by its height."""
    letters = figure.get_figwidth() * 12
    columns = len(labels)
    while columns > 1 and sum(max(map(len, labels[i::columns])) + 7 for i in range(columns)) > letters:
        columns -= 1
    rows = -(-len(labels) // max(1, columns))
    figure.set_figheight(figure.get_figheight() + 0.19 * rows + 0.1)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, **style)


def name_rows(axes: Axes, series: Sequence[str], letters: int) -> None:
    """Put series names on the y axis of a horizontal bar chart, first at the top; long ones on two lines."""
    axes.set_yticks(range(len(series)), [folded(name, letters) for name in series])
    axes.set_ylim(len(series) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")


def folded(name: str, letters: int) -> str:
    """Return `name` on at most two lines of `letters` characters."""
    lines = textwrap.wrap(short(name, 2 * letters), letters) or [short(name)]
    return "\n".join(lines if len(lines) < 3 else [lines[0], short(" ".join(lines[1:]), letters)])
