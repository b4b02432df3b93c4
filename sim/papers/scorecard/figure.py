"""Figures of the scorecard: the error of each simulated row, in units of its tolerance."""

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mezzotint.figures.page import number
from mezzotint.figures.palette import BLUE, EDGE, GREEN, GREY, INK, VERMILION, house_style
from mezzotint.sim.papers.scorecard.rows import Column, Row
from mezzotint.sim.papers.scorecard.verdict import SCORED

WIDTH = 8.3
"""Inches: 800 pixels of a page."""

LINE, HEAD, FOOT = 0.165, 0.55, 1.15
"""Heights of a line of text, of title and heads, and of axis and legend, in inches."""

GAP = 0.3
"""Lines between two targets."""

MIDDLE = (1 + GAP) / 2
"""Lines from the upper edge of a target to the middle of its first line."""

FONT = 7.5
"""Size of the text beside the panel, in points: 10 pixels of a page."""

BOLD, LETTER = 4.8, 4.2
"""Widths of a letter or digit at that size, in points; rows of values have many narrow dots."""

DESCRIPTION = 48, 34
"""Letters of a line of a target's description, with one column and with several."""

MAX_OFFSET = 4.0
"""Half width of the axis, in tolerances; larger errors are arrows at the edge."""

MAX_LABELLED = 4
"""Values of a row up to which each is written out and has a point of its own size."""

DEFAULT_UNIT = 0.05
"""Relative unit of the axis for rows without a tolerance (inputs, bounds)."""

COLOURS = {"within tolerance": GREEN, "outside": VERMILION, "undecided": BLUE, "input": GREY, "inconsistent": GREY}
"""Colours by verdict."""

_BAND = "#e3f1ec"


class Block(NamedTuple):
    """The lines of one target: its description, and a line for each column that has a value.

    Attributes:
        top: place of its first line, in lines; the first block of the figure begins at 0.
        height: in lines.
    """

    top: float
    height: float
    description: list[str]
    rows: list[tuple[str, Row]]


def figures(columns: Sequence[Column]) -> dict[str, dict[str, Figure]]:
    """Return the figures of each system by their part of the file's name: SYSTEM, SYSTEM-ground.

    Columns of the mechanism and of the ground, that is of the caches' contents, are drawn apart.
    """
    by_system: dict[str, dict[str, Figure]] = {}
    for system in dict.fromkeys(row.system for column in columns for row in column.rows):
        parts = by_system.setdefault(system, {})
        for part, is_mechanism in ((system, True), (f"{system}-ground", False)):
            in_layer = [column for column in columns if (column.layer == "mechanism") is is_mechanism]
            rows = {column.name: [row for row in column.rows if row.system == system] for column in in_layer}
            figure = draw({name: listed for name, listed in rows.items() if listed})
            if figure is not None:
                parts[part] = figure
    return by_system


@house_style()
def draw(columns: Mapping[str, Sequence[Row]]) -> Figure | None:
    """Draw a line for each simulated row, with a point at each error; return None if nothing was simulated.

    Zero is the paper's value and the band its tolerance. An ordering is at zero if it is true, else at the edge. The
    paper's value and ours stand beside the line.

    Args:
        columns: rows by the column's name; the lines of one target are below each other.
    """
    blocks = _stack(columns)
    if not blocks:
        return None
    total = blocks[-1].top + blocks[-1].height
    height = HEAD + LINE * total + FOOT
    figure = Figure(figsize=(WIDTH, height))
    shown = [row for block in blocks for _, row in block.rows]
    is_named = len(columns) > 1
    # Widths in points: id, description and column at the left of the panel, the paper's value and ours at the right.
    ids = BOLD * (max(len(row.id) for row in shown) + 2)
    named = LETTER * (max(map(len, columns)) + 2) if is_named else 0.0
    papers = LETTER * (max(5, *(len(_format(row.paper)) for row in shown)) + 2)
    ours = LETTER * (max(5, *(len(_format(row.ours)) for row in shown)) + 2)
    left, right = 4 + ids + LETTER * DESCRIPTION[is_named] + named, 8 + papers + ours
    inch = 1 / 72
    axes = figure.add_axes(
        (left * inch / WIDTH, FOOT / height, 1 - (left + right) * inch / WIDTH, LINE * total / height)
    )
    axes.axvspan(-1, 1, color=_BAND, linewidth=0)
    axes.axvline(0, color="#777777", linewidth=0.8)
    for nth, block in enumerate(blocks):
        if nth % 2 == 0:
            top, bottom = block.top - MIDDLE, block.top + block.height - MIDDLE
            axes.axhspan(top, bottom, color="#000000", alpha=0.03, linewidth=0)
        first = block.rows[0][1]
        _write(axes, first.id, 0.0, block.top, -left + 4, color=COLOURS[first.verdict], fontweight="bold")
        for at, text in enumerate(block.description):
            _write(axes, text, 0.0, block.top + at, -left + 4 + ids)
        _write(axes, _format(first.paper), 1.0, block.top, 8.0)
        for at, (name, row) in enumerate(block.rows):
            _draw_points(axes, block.top + at, row)
            _write(axes, name if is_named else "", 0.0, block.top + at, -named + 2)
            _write(axes, _format(row.ours), 1.0, block.top + at, 8.0 + papers, color=COLOURS[row.verdict])
    for text, side, away in (
        ("target", 0.0, -left + 4),
        ("column" if is_named else "", 0.0, -named + 2),
        ("paper", 1.0, 8.0),
        ("ours", 1.0, 8.0 + papers),
    ):
        _write(axes, text, side, -1.1, away, fontweight="bold")
    axes.set(xlim=(-MAX_OFFSET - 0.25, MAX_OFFSET + 0.25), ylim=(total - MIDDLE, -MIDDLE), yticks=[])
    axes.set_xticks([-MAX_OFFSET, -MAX_OFFSET / 2, 0, MAX_OFFSET / 2, MAX_OFFSET], ["-4", "-2", "0", "2", "4"])
    axes.set_xlabel("(ours − paper's) ÷ tolerance")
    figure.text(4 * inch / WIDTH, 1 - 0.18 / height, _title(columns), fontsize=9, fontweight="bold", va="center")
    handles = [
        _mark(COLOURS["within tolerance"], "o", "within tolerance"),
        _mark(COLOURS["outside"], "o", "outside"),
        _mark(COLOURS["undecided"], "o", "undecided"),
        _mark(COLOURS["input"], "o", "input; or inconsistent"),
        _mark(EDGE, "D", "ordering, 0 if true", "white"),
        _mark(EDGE, ">", f"error above {MAX_OFFSET:g} tolerances"),
        Patch(color=_BAND, label="tolerance"),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=3, fontsize=8, bbox_to_anchor=(0.5, 0.05 / height))
    return figure


def _stack(columns: Mapping[str, Sequence[Row]]) -> list[Block]:
    by_target: dict[str, list[tuple[str, Row]]] = {}
    for name, rows in columns.items():
        for row in rows:
            if row.ours is not None:
                by_target.setdefault(row.id, []).append((name, row))
    blocks, top = [], 0.0
    for lines in by_target.values():
        description = wrap(lines[0][1].what, DESCRIPTION[len(columns) > 1], max_lines=3, placeholder="…")
        blocks.append(Block(top, max(len(description), len(lines)) + GAP, description, lines))
        top += blocks[-1].height
    return blocks


def _format(value: Any) -> str:
    """Return a value; of a long list its length."""
    return f"{len(value)} values" if isinstance(value, list) and len(value) > MAX_LABELLED else number(value, 3)


def _title(columns: Mapping[str, Sequence[Row]]) -> str:
    rows = [row for listed in columns.values() for row in listed]
    verdicts = [row.verdict for row in rows if row.ours is not None]
    within, compared = verdicts.count("within tolerance"), sum(verdict in SCORED for verdict in verdicts)
    absent = {row.id for row in rows} - {row.id for row in rows if row.ours is not None}
    rest = f"; not simulated: {', '.join(sorted(absent))}" if absent else ""
    return f"{rows[0].system}, {', '.join(columns)}: {within} of {compared} rows within tolerance{rest}"


def _mark(colour: str, marker: str, label: str, face: str | None = None) -> Line2D:
    return Line2D([], [], color=colour, marker=marker, markerfacecolor=face or colour, linestyle="", label=label)


def _write(axes: Axes, text: str, side: float, place: float, away_pt: float, color: str = INK, **style: Any) -> None:
    """Write next to a row, ``away_pt`` points from the left (0) or the right (1) edge of the panel."""
    where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    if text:
        axes.annotate(text, (side, place), xytext=(away_pt, 0), fontsize=FONT, color=color, **where, **style)


def offsets(row: Row) -> list[float]:
    """Return the errors of a row in tolerances: within -1 and 1 if it is within tolerance, beyond the edge of a bound.

    An ordering that is false is infinitely far.
    """
    if isinstance(row.ours, bool):
        return [0.0 if row.ours else -float("inf")]
    if row.error is None:
        return []
    errors, papers = (value if isinstance(value, list) else [value or 0.0] for value in (row.error, row.paper))
    kind, limit = next(iter((row.tolerance or {"none": DEFAULT_UNIT}).items()))
    if kind in ("rel", "abs"):
        return [error / limit for error in errors]
    units = [DEFAULT_UNIT * abs(float(paper)) or DEFAULT_UNIT for paper in papers]
    edge = {"at_least": -1.0, "at_most": 1.0, "none": 0.0}[kind]
    return [edge + error / unit for error, unit in zip(errors, units, strict=True)]


def _draw_points(axes: Axes, place: float, row: Row) -> None:
    """Draw a point for each value of the row: of a few values later points are larger, of many all are small."""
    colour, points = COLOURS[row.verdict], offsets(row)
    inside = [max(-MAX_OFFSET, min(MAX_OFFSET, offset)) for offset in points]
    if len(inside) > 1:
        axes.plot([min(inside), max(inside)], [place, place], color=colour, linewidth=1.0, alpha=0.5)
    for nth, (offset, at) in enumerate(zip(points, inside, strict=True), start=1):
        marker = "D" if isinstance(row.ours, bool) else "o" if offset == at else ">" if offset > 0 else "<"
        size = 6.0 if len(inside) == 1 else 3.4 + (1.1 * nth if len(inside) <= MAX_LABELLED else 0.0)
        face = "white" if marker == "D" else colour
        style: dict[str, Any] = {"markerfacecolor": face, "markersize": size, "alpha": 0.85, "clip_on": False}
        axes.plot(at, place, marker=marker, color=colour, linestyle="", **style)
