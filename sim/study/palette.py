"""How figures look: colours that colour-blind readers can tell apart, one for each series, and panels."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from sim.study.runs import Run

DPI = 150
LINE_PT = 1.3  # 2.7 px at 150 dpi
GREY = "#8a8a8a"
# Names are data, never mathematics: a system called "$x" must not be typeset.
STYLE: MappingProxyType[str, Any] = MappingProxyType(
    {
        "text.parse_math": False,
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.labelsize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#555555",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e4e4e4",
        "grid.linewidth": 0.7,
        "legend.frameon": False,
        "legend.fontsize": 9,
        "lines.linewidth": LINE_PT,
        "lines.markersize": 5,
        "figure.dpi": DPI,
        "savefig.dpi": DPI,
        "figure.facecolor": "white",
        "axes.facecolor": "white",
    }
)

# Okabe and Ito's palette ("Color Universal Design", 2008) without its yellow, which is lost on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
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


@contextmanager
def house_style() -> Iterator[None]:
    """Draw as every report is drawn, whatever the reader's own matplotlib settings; works as a decorator."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(cast(Any, dict(STYLE)))
        yield


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


def panels(
    columns: int, rows: int = 1, *, width: float = 10.0, height: float = 3.6, share_y: bool = True
) -> tuple[Figure, Any]:
    """A figure (inches) with a grid of axes: (Figure, array of Axes of shape rows x columns)."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.05))
    axes = figure.subplots(rows, columns, squeeze=False, sharey="row" if share_y else False)
    return figure, axes


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
