"""Figure of the scorecard: the error of each simulated row, in units of its tolerance."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mezzotint.figures.page import number
from mezzotint.figures.palette import EDGE, GREEN, GREY, INK, VERMILION, house_style, panels
from mezzotint.sim.papers.scorecard.rows import Row
from mezzotint.sim.report.figures.palette import short

MAX_OFFSET = 4.0
"""Half width of the axis, in tolerances; larger errors are arrows at the edge."""

MAX_ROWS_PER_PANEL = 24
"""Rows above which a single trace is drawn in two panels."""

TITLE_WIDTH = 90
"""Characters in a line of the title."""

MAX_LABELLED = 4
"""Values of a row up to which each is written out and has a point of its own size."""

DEFAULT_UNIT = 0.05
"""Relative unit of the axis for rows without a tolerance (inputs, bounds)."""

COLOURS = {"within tolerance": GREEN, "outside": VERMILION, "input": GREY, "inconsistent": GREY}
"""Colours by verdict."""

_BAND = "#e3f1ec"


@house_style()
def draw(columns: Mapping[str, Sequence[Row]]) -> Figure | None:
    """Draw a line for each simulated row, with a point at each error; return None if nothing was simulated.

    Zero is the paper's value and the band its tolerance. An ordering is at zero if it is true, else at the edge. The
    points of a row's first column are filled, those of the others hollow.

    Args:
        columns: rows by the column's name; a line is drawn for each target that any of them has.
    """
    found: dict[str, list[Row]] = {}
    for row in (row for rows in columns.values() for row in rows):
        found.setdefault(row.id, []).append(row)
    lines = list(found.values())
    shown = [rows for rows in lines if any(row.ours is not None for row in rows)]
    if not shown:
        return None
    panes = (
        2 if len(shown) > MAX_ROWS_PER_PANEL and len(columns) == 1 else 1
    )  # the labels of several columns need the width
    tall = -(-len(shown) // panes)
    each = 0.25 + 0.13 * (sum(map(len, shown)) / len(shown) - 1)
    figure, axes = panels(
        panes, width=7.4 * panes if len(columns) == 1 else 11, height=each * tall + 1.5, share_y=False
    )
    for index in range(panes):
        _column(axes[0][index], shown[index * tall : (index + 1) * tall], tall)
    figure.suptitle(_title(columns, len(lines) - len(shown)), fontsize=9.5, fontweight="bold")
    handles = [
        _mark(COLOURS["within tolerance"], "o", "within tolerance"),
        _mark(COLOURS["outside"], "o", "outside"),
        _mark(COLOURS["input"], "o", "input or fitted; or inconsistent"),
        _mark(EDGE, "D", "ordering, 0 if true", "white"),
        _mark(EDGE, ">", f"error above {MAX_OFFSET:g} tolerances"),
        Patch(color=_BAND, label="tolerance"),
    ]
    if len(columns) > 1:
        handles += [
            _mark(EDGE, "o", "filled: the row's first column"),
            _mark(EDGE, "o", "hollow: the others, in order", "white"),
        ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3 * panes, fontsize=8)
    return figure


def _mark(colour: str, marker: str, label: str, face: str | None = None) -> Line2D:
    return Line2D([], [], color=colour, marker=marker, markerfacecolor=face or colour, linestyle="", label=label)


def offsets(row: Row) -> list[float]:
    """Return the errors of a row in tolerances: within -1 and 1 if it is within tolerance, beyond the edge of a bound.

    An ordering that is false is infinitely far.
    """
    if isinstance(row.ours, bool):
        return [0.0 if row.ours else -float("inf")]
    if row.error is None:
        return []
    errors = row.error if isinstance(row.error, list) else [row.error]
    papers = row.paper if isinstance(row.paper, list) else [row.paper or 0.0]
    kind, limit = next(iter((row.tolerance or {"none": DEFAULT_UNIT}).items()))
    if kind in ("rel", "abs"):
        return [error / limit for error in errors]
    units = [DEFAULT_UNIT * abs(float(paper)) or DEFAULT_UNIT for paper in papers]
    edge = {"at_least": -1.0, "at_most": 1.0, "none": 0.0}[kind]
    return [edge + error / unit for error, unit in zip(errors, units, strict=True)]


def _title(columns: Mapping[str, Sequence[Row]], missing: int) -> str:
    counts = []
    for name, rows in columns.items():
        scored = [row for row in rows if row.ours is not None and row.verdict in ("within tolerance", "outside")]
        within = sum(row.verdict == "within tolerance" for row in scored)
        count = f"{within} of {len(scored)} scored rows within tolerance"
        counts.append(f"{name}: {count}" if len(columns) > 1 else count)
    rest = f"; {missing} targets without a simulated value are not drawn" if missing else ""
    drawn = [row.system for rows in columns.values() for row in rows if row.ours is not None]
    return fill(f"{', '.join(dict.fromkeys(drawn))}: {'; '.join(counts)}{rest}", TITLE_WIDTH)


def _column(axes: Axes, lines: Sequence[Sequence[Row]], tall: int) -> None:
    axes.axvspan(-1, 1, color=_BAND, linewidth=0)
    axes.axvline(0, color="#777777", linewidth=0.8)
    for place, rows in enumerate(lines):
        if place % 2:
            axes.axhspan(place - 0.5, place + 0.5, color="#000000", alpha=0.025, linewidth=0)
        gap = 0.0 if len(rows) == 1 else 0.44 / (len(rows) - 1)
        for nth, row in enumerate(rows):
            at = place + (0.0 if len(rows) == 1 else gap * nth - 0.22)
            _points(axes, at, row, filled=nth == 0)
            before = _format(row.paper) if nth == 0 else ""
            _annotate(axes, f"{before} → {_format(row.ours)}".strip(), 1.0, at, 8.0, color=INK)
        first = rows[0]
        _annotate(
            axes, first.id, 0.0, place, -6.0, color=COLOURS.get(first.verdict, INK), ha="right", fontweight="bold"
        )
    _annotate(axes, "paper → ours", 1.0, -0.95, 8.0, color=INK)
    axes.set_yticks(range(len(lines)), [short(rows[0].what, 50) for rows in lines], fontsize=7.5, color=INK)
    axes.tick_params(axis="y", length=0, pad=58)
    axes.set_ylim(tall - 0.4, -0.6)
    axes.set_xlim(-MAX_OFFSET - 0.25, MAX_OFFSET + 0.25)
    axes.set_xticks([-MAX_OFFSET, -MAX_OFFSET / 2, 0.0, MAX_OFFSET / 2, MAX_OFFSET])
    axes.set_xlabel("(ours − paper's) ÷ tolerance")
    axes.grid(False, axis="y")


def _format(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, list) and len(value) > MAX_LABELLED else number(value, 3)


def _annotate(axes: Axes, text: str, side: float, place: float, away_pt: float, **style: Any) -> None:
    """Write next to a row, ``away_pt`` points from the left (0) or the right (1) edge of the panel."""
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    axes.annotate(text, (side, place), xytext=(away_pt, 0), fontsize=7.5, **where, **style)


def _points(axes: Axes, place: float, row: Row, *, filled: bool) -> None:
    """Draw a point for each value of the row: of a few values later points are larger, of many all are small."""
    if row.ours is None:
        return
    colour = COLOURS[row.verdict]
    points = offsets(row)
    inside = [max(-MAX_OFFSET, min(MAX_OFFSET, offset)) for offset in points]
    if len(inside) > 1:
        axes.plot([min(inside), max(inside)], [place, place], color=colour, linewidth=1.0, alpha=0.5)
    for nth, (offset, at) in enumerate(zip(points, inside, strict=True), start=1):
        marker = "D" if isinstance(row.ours, bool) else "o" if offset == at else ">" if offset > 0 else "<"
        face = colour if filled and marker != "D" else "white"
        size = 6.0 if len(inside) == 1 else 3.4 + (1.1 * nth if len(inside) <= MAX_LABELLED else 0.0)
        style: dict[str, Any] = {"markerfacecolor": face, "markersize": size, "alpha": 0.85, "clip_on": False}
        axes.plot(at, place, marker=marker, color=colour, linestyle="", **style)
