"""Curves of the scorecard: the printed points of a figure or table beside ours, and one error for each curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from mezzotint.figures.palette import BLUE, VERMILION, house_style, panels
from mezzotint.sim.papers.scorecard.rows import Row
from mezzotint.sim.papers.scorecard.study import Curve

ACROSS = 3
"""Panels in a row."""

MAX_LEVEL = 4
"""Points of a curve up to which their names stand level; numbers always do."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One curve.

    Attributes:
        of: what it shows.
        paper, ours: a value at each of ``of.x``.
        error: mean size of ours minus the paper's over the paper's.
    """

    of: Curve
    paper: list[float]
    ours: list[float]
    error: float


def compare(curves: Sequence[Curve], rows: Mapping[str, Row]) -> list[Compared]:
    """Return the curves whose rows all have values, from these rows by target id."""
    compared = []
    for curve in curves:
        named = [rows[name] for name in curve.rows if name in rows and rows[name].ours is not None]
        if len(named) < len(curve.rows):
            continue
        paper, ours = ([number for row in named for number in _listed(getattr(row, of))] for of in ("paper", "ours"))
        part = slice(*curve.part) if curve.part else slice(None)
        paper, ours = paper[part], ours[part]
        errors = [abs(mine - theirs) / abs(theirs) for mine, theirs in zip(ours, paper, strict=True)]
        compared.append(Compared(curve, paper, ours, sum(errors) / len(errors)))
    return compared


def _listed(value: Any) -> list[float]:
    return [float(number) for number in (value if isinstance(value, list) else [value])]


@house_style()
def draw(compared: Sequence[Compared]) -> Figure | None:
    """Draw a panel for each curve: the paper's points and ours. Return None if there is no curve."""
    if not compared:
        return None
    rows = -(-len(compared) // ACROSS)
    figure, axes = panels(ACROSS, rows, width=10.0, height=2.7 * rows, share_y=False)
    for panel, curve in zip(axes.flat, compared, strict=False):
        places = range(len(curve.paper))
        line = "-" if all(name[:1].isdigit() for name in curve.of.x) else ""  # names are no axis to draw a line along
        panel.plot(places, curve.ours, color=BLUE, marker="o", markersize=4, linestyle=line, label="ours")
        panel.plot(places, curve.paper, color=VERMILION, marker="D", markersize=4, linestyle="", label="paper")
        panel.set_xticks(list(places), curve.of.x, fontsize=7)
        if line == "" and len(curve.paper) > MAX_LEVEL:
            panel.tick_params("x", labelrotation=30)
            for name in panel.get_xticklabels():
                name.set_horizontalalignment("right")
        panel.set_ylim(0.0, 1.1 * max(*curve.paper, *curve.ours))  # with room for the highest marker
        panel.set_title(f"{curve.of.figure}: {curve.of.what}", fontsize=8)
    for panel in axes.flat[len(compared) :]:
        panel.remove()
    axes.flat[0].legend(fontsize=8, loc="lower left")
    return figure
