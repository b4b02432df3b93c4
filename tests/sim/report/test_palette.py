"""A distinct style for every series: one colour per system, shades within it."""

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from mezzotint.figures.palette import COLOURS
from mezzotint.sim.report.figures.palette import series_styles


@dataclass(frozen=True)
class Named:
    """Return what a run's style follows from."""

    system: str
    series: str
    family: str = ""


def _runs(*names: tuple[str, str, str]) -> Any:
    return [Named(system, series, family) for system, series, family in names]


def test_more_series_than_colours_still_have_distinct_styles() -> None:
    """Series of one system share a colour, and no two styles are alike."""
    runs = _runs(*((f"s{of}", f"s{of} cache={n}", f"s{of} cache={n}") for of in range(4) for n in range(4)))
    styles = series_styles(runs)
    assert len(runs) > len(COLOURS)
    for one, other in combinations(runs, 2):
        ours, theirs = styles[one.series], styles[other.series]
        assert ours != theirs
        assert (ours.colour == theirs.colour) == (one.system == other.system)


def test_few_series_have_a_colour_each() -> None:
    runs = _runs(*((name, name, name) for name in ("a", "b", "c")))
    assert [style.colour for style in series_styles(runs).values()] == list(COLOURS[:3])


def test_values_of_one_system_are_shaded_from_dark_to_light() -> None:
    runs = _runs(*(("nirvana", f"nirvana (size={size})", "nirvana") for size in (5, 10, 20, 40, 1000)))
    styles = series_styles(runs)
    shades = [float(np.dot(to_rgb(styles[run.series].colour), (0.2126, 0.7152, 0.0722))) for run in runs]
    assert shades == sorted(shades)
    assert len({styles[run.series].marker for run in runs}) == len(runs)
    assert {styles[run.series].dash for run in runs} == {"-"}
