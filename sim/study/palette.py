"""How the series of a study look: a mark for each, their legend and their names; all else is in conf.palette."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from conf.palette import COLOURS
from sim.study.runs import Run

_DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_HATCHES = ("", "//", "..", "xx")


@dataclass(frozen=True, slots=True)
class Mark:
    """The look of one series: the same in every figure of a report."""

    colour: str
    dash: Any
    marker: str
    hatch: str


def marks(runs: Sequence[Run]) -> dict[str, Mark]:
    """A look for each series in `runs`; colours first, then dashes when they run out."""
    found: dict[str, Mark] = {}
    for index, series in enumerate(sorted({run.series for run in runs})):
        colour, turn = index % len(COLOURS), (index // len(COLOURS)) % len(_DASHES)
        found[series] = Mark(COLOURS[colour], _DASHES[turn], _MARKERS[(colour + turn) % len(_MARKERS)], _HATCHES[turn])
    return found


def short(name: str, most: int = 44) -> str:
    """`name` on one line of at most `most` characters, never empty and never hidden from a legend."""
    line = " ".join(name.split()) or "unnamed"
    line = line if len(line) <= most else f"{line[: most - 1]}…"
    return f" {line}" if line.startswith("_") else line


def legend(
    figure: Figure,
    series: Sequence[str],
    looks: Mapping[str, Mark],
    extra: Sequence[Line2D] = (),
    *,
    markers: bool = True,
) -> None:
    """A legend below all panels: a line (and marker) for each series, then the `extra` lines."""
    handles = [
        Line2D(
            [],
            [],
            color=looks[name].colour,
            linestyle=looks[name].dash,
            marker=looks[name].marker if markers else "",
        )
        for name in series
    ] + list(extra)
    labels = [short(name) for name in series] + [str(line.get_label()) for line in extra]
    letters = figure.get_figwidth() * 12.5
    columns = len(labels)
    while columns > 1 and sum(max(map(len, labels[i::columns])) + 7 for i in range(columns)) > letters:
        columns -= 1
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2.6)


def name_rows(axes: Axes, series: Sequence[str]) -> None:
    """Series names down the y axis of a horizontal bar chart, first at the top."""
    axes.set_yticks(range(len(series)), [short(name, 34) for name in series])
    axes.set_ylim(len(series) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
