"""Styles of the series in a figure; colours and fonts are in mezzotint.figures.palette."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.colors import to_hex

from mezzotint.figures.palette import COLOURS
from mezzotint.sim.report.labels import natural
from mezzotint.sim.report.runs import Run

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
        for rank, name in enumerate(group):
            index, variant = rank, 0
            if shared and name in system_of:
                index = systems.index(system_of[name])
                variant = [other for other in series if system_of[other] == system_of[name]].index(name)
            dash = _DASHES[(variant + index // len(COLOURS)) % len(_DASHES)]
            styles[name] = SeriesStyle(COLOURS[index % len(COLOURS)], dash, _MARKERS[(index + variant) % len(_MARKERS)])
    if len(names) == 1 and len(series) > 2:
        shades = mpl.colormaps["viridis"]
        for index, name in enumerate(series):
            shade = to_hex(shades(0.05 + 0.53 * index / (len(series) - 1))).upper()
            styles[name] = SeriesStyle(shade, "-", _MARKERS[index % len(_MARKERS)])
    return styles


def series_of(runs: Iterable[Run]) -> list[str]:
    """Return the names of the series in natural order."""
    return sorted({run.series for run in runs}, key=natural)


def families_of(runs: Iterable[Run]) -> list[str]:
    """Return the names of the curves along the number that the runs vary, or of the series if they vary none."""
    return sorted({run.family or run.series for run in runs}, key=natural)
