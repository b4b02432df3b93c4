"""The ordered axis of a study: what its runs vary, the request rate or a number of the configuration."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from conf.palette import plain_numbers
from sim.study.compare import Cell, Spread
from sim.study.identity import short_key
from sim.study.palette import Mark
from sim.study.runs import Run

_WIDE = 20.0  # ratio of the largest to the smallest value from which a linear axis crowds the small ones
_LETTERS = 44  # that fit below an axis


@dataclass(frozen=True, slots=True)
class Axis:
    """An x axis: the key of the configuration along it, or None for the request rate, and its title."""

    key: str | None
    title: str

    def place(self, cell: Cell) -> float | None:
        """Where a cell stands on it; None where the setting does not apply to its system."""
        if self.key is None:
            return cell.load.rate_rpm
        setting = cell.runs[0].setting
        return None if setting is None else setting.value

    def curve(self, cell: Cell) -> str:
        """The curve that a cell is a point of."""
        return cell.series if self.key is None else cell.runs[0].family or cell.series


def axis_of(runs: Sequence[Run]) -> Axis | None:
    """What the runs vary most, the rate before a setting of as many values; None where they vary neither."""
    rates: dict[str, set[float]] = {}
    for run in runs:
        if run.load.rate_rpm is not None:
            rates.setdefault(run.series, set()).add(run.load.rate_rpm)
    most = max(map(len, rates.values()), default=0)
    settings = {run.setting for run in runs if run.setting is not None}
    if len(settings) > max(most, 1):
        key = next(iter(settings)).key
        return Axis(key, short_key(key))
    return Axis(None, "Request rate (requests/min)") if most > 1 else None


def curves(panel: Axes, axis: Axis, points: Sequence[tuple[Cell, Spread]], looks: Mapping[str, Mark]) -> None:
    """A line for each curve of `points`, over seeds with a band; a system without the setting is a level line."""
    lines: dict[str, list[tuple[float, Spread]]] = {}
    for cell, value in points:
        place = axis.place(cell)
        look = looks[axis.curve(cell)]
        if place is None:
            panel.axhline(value.mean, color=look.colour, linestyle="--", label="")
        else:
            lines.setdefault(axis.curve(cell), []).append((place, value))
    for name, line in lines.items():
        look, places = looks[name], [place for place, _ in line]
        panel.plot(
            places, [value.mean for _, value in line], color=look.colour, linestyle=look.dash, marker=look.marker
        )
        if any(value.count > 1 for _, value in line):
            low, high = [value.low for _, value in line], [value.high for _, value in line]
            panel.fill_between(places, low, high, color=look.colour, alpha=0.18, linewidth=0)
    _scaled(panel, sorted({place for place, _ in chain.from_iterable(lines.values())}))
    panel.set_xlabel(axis.title)


def _scaled(panel: Axes, places: Sequence[float]) -> None:
    """Linear from zero, or logarithmic with a mark at each value where the values span decades."""
    if places and places[0] > 0 and places[-1] / places[0] >= _WIDE:
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter(plain_numbers())
        panel.xaxis.set_minor_locator(NullLocator())
        marked = list(places)
        while len(marked) > 2 and (len(marked) > 7 or sum(len(f"{place:,.10g}") + 2 for place in marked) > _LETTERS):
            marked = marked[::-2][::-1]
        panel.xaxis.set_major_locator(FixedLocator(marked))
    else:
        panel.set_xlim(left=min(0.0, places[0]) if places else 0.0)
        panel.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        panel.xaxis.set_major_formatter(plain_numbers())
