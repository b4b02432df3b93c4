"""Ours against the papers': how far every simulated row is from its target, in units of what it may be off."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from conf.page import number
from conf.palette import EDGE, GREEN, GREY, INK, VERMILION, house_style, panels
from sim.papers.scorecard.rows import Row
from sim.report.palette import short

REACH = 4.0
"""Tolerances on either side that are drawn; what is further off stands at the edge, as an arrow."""

ASIDE = 24
"""Rows from which they are laid in two columns."""

WIDE = 90
"""Characters in a line of the title."""

SEVERAL = 4
"""Values of a row that can be told apart, and be written beside it."""

UNTOLD = 0.05
"""The relative tolerance by which a row is drawn that has none: an input, or a bound, whose edge it lies within."""

VERDICTS = {"held": GREEN, "missed": VERMILION, "given": GREY, "contradicted": GREY}
"""Verdict -> its colour."""

_BAND = "#e3f1ec"


@house_style()
def draw(columns: Mapping[str, Sequence[Row]]) -> Figure | None:
    """A line for each row that was simulated, its points where ours lies; None where there is none.

    Zero is the paper's value, the band its tolerance. An ordering is at zero if it holds, else at the edge. The points
    of the first column are filled, of the others hollow, one below the other.

    Args:
        columns: by name, a row for the same targets each.
    """
    lines = list(zip(*columns.values(), strict=True))
    shown = [rows for rows in lines if any(row.ours is not None for row in rows)]
    if not shown:
        return None
    panes = 2 if len(shown) > ASIDE and len(columns) == 1 else 1  # what several columns have beside them is wide
    tall = -(-len(shown) // panes)
    each = 0.25 + 0.13 * (len(columns) - 1)
    figure, axes = panels(
        panes, width=7.4 * panes if len(columns) == 1 else 11, height=each * tall + 1.5, share_y=False
    )
    for index in range(panes):
        _column(axes[0][index], shown[index * tall : (index + 1) * tall], tall)
    figure.suptitle(_title(columns, len(lines) - len(shown)), fontsize=9.5, fontweight="bold")
    handles = [
        _mark(VERDICTS["held"], "o", "held"),
        _mark(VERDICTS["missed"], "o", "missed"),
        _mark(VERDICTS["given"], "o", "given: fitted or an input; or contradicted"),
        _mark(EDGE, "D", "ordering, 0 if true", "white"),
        _mark(EDGE, ">", f"further than {REACH:g} tolerances"),
        Patch(color=_BAND, label="tolerance"),
    ]
    if len(columns) > 1:
        first, *others = columns
        handles += [
            _mark(EDGE, "o", f"filled: {first}"),
            *(_mark(EDGE, "o", f"hollow: {of}", "white") for of in others),
        ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3 * panes, fontsize=8)
    return figure


def _mark(colour: str, marker: str, label: str, face: str | None = None) -> Line2D:
    return Line2D([], [], color=colour, marker=marker, markerfacecolor=face or colour, linestyle="", label=label)


def offsets(row: Row) -> list[float]:
    """How far ours is from the paper's, in tolerances: what is held lies from -1 to 1; of a bound, beyond its edge.

    An ordering that does not hold is infinitely far.
    """
    if isinstance(row.ours, bool):
        return [0.0 if row.ours else -float("inf")]
    if row.error is None:
        return []
    errors = row.error if isinstance(row.error, list) else [row.error]
    papers = row.paper if isinstance(row.paper, list) else [row.paper or 0.0]
    kind, limit = next(iter((row.tolerance or {"none": UNTOLD}).items()))
    if kind in ("rel", "abs"):
        return [error / limit for error in errors]
    units = [UNTOLD * abs(float(paper)) or UNTOLD for paper in papers]
    edge = {"at_least": -1.0, "at_most": 1.0, "none": 0.0}[kind]
    return [edge + error / unit for error, unit in zip(errors, units, strict=True)]


def _title(columns: Mapping[str, Sequence[Row]], missing: int) -> str:
    told = []
    for name, rows in columns.items():
        scored = [row for row in rows if row.ours is not None and row.verdict in ("held", "missed")]
        held = f"{sum(row.verdict == 'held' for row in scored)} of {len(scored)} scored rows held"
        told.append(f"{name}: {held}" if len(columns) > 1 else held)
    rest = f"; {missing} targets without a value of ours are not drawn" if missing else ""
    drawn = [row.system for rows in columns.values() for row in rows if row.ours is not None]
    return fill(f"{', '.join(dict.fromkeys(drawn))}: {'; '.join(told)}{rest}", WIDE)


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
            before = _said(row.paper) if nth == 0 else ""
            _write(axes, f"{before} → {_said(row.ours)}".strip(), 1.0, at, 8.0, color=INK)
        first = rows[0]
        _write(axes, first.id, 0.0, place, -6.0, color=VERDICTS.get(first.verdict, INK), ha="right", fontweight="bold")
    _write(axes, "paper → ours", 1.0, -0.95, 8.0, color=INK)
    axes.set_yticks(range(len(lines)), [short(rows[0].what, 50) for rows in lines], fontsize=7.5, color=INK)
    axes.tick_params(axis="y", length=0, pad=58)
    axes.set_ylim(tall - 0.4, -0.6)
    axes.set_xlim(-REACH - 0.25, REACH + 0.25)
    axes.set_xticks([-REACH, -REACH / 2, 0.0, REACH / 2, REACH])
    axes.set_xlabel("(ours − paper's) ÷ tolerance")
    axes.grid(False, axis="y")


def _said(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, list) and len(value) > SEVERAL else number(value, 3)


def _write(axes: Axes, text: str, side: float, place: float, away_pt: float, **look: Any) -> None:
    """Text beside a row: ``away_pt`` points from the left (0) or the right (1) edge of the panel."""
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    axes.annotate(text, (side, place), xytext=(away_pt, 0), fontsize=7.5, **where, **look)


def _points(axes: Axes, place: float, row: Row, *, filled: bool) -> None:
    """One point for each value of the row: of a few the later the larger, of many all small."""
    if row.ours is None:
        return
    colour = VERDICTS[row.verdict]
    points = offsets(row)
    inside = [max(-REACH, min(REACH, offset)) for offset in points]
    if len(inside) > 1:
        axes.plot([min(inside), max(inside)], [place, place], color=colour, linewidth=1.0, alpha=0.5)
    for nth, (offset, at) in enumerate(zip(points, inside, strict=True), start=1):
        marker = "D" if isinstance(row.ours, bool) else "o" if offset == at else ">" if offset > 0 else "<"
        face = colour if filled and marker != "D" else "white"
        size = 6.0 if len(inside) == 1 else 3.4 + (1.1 * nth if len(inside) <= SEVERAL else 0.0)
        look: dict[str, Any] = {"markerfacecolor": face, "markersize": size, "alpha": 0.85, "clip_on": False}
        axes.plot(at, place, marker=marker, color=colour, linestyle="", **look)
