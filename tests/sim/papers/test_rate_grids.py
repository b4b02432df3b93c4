"""Plausible grids of a figure's rates, and the verdict of a row over all of them, on cases worked out by hand."""

import numpy as np
import pytest

from mezzotint.sim.papers.runs import Runs, Unmeasured
from mezzotint.sim.papers.scorecard.columns import ColumnTrace
from mezzotint.sim.papers.scorecard.measures.formulas import Function
from mezzotint.sim.papers.scorecard.measures.rate_grids import ENDS, POINTS, STARTS, Curve, falls_below, grids
from mezzotint.sim.papers.scorecard.rows import CHANGED, Row, rejudge, score
from mezzotint.sim.papers.scorecard.study import Entry, Study
from mezzotint.sim.papers.scorecard.targets import Target
from mezzotint.sim.papers.scorecard.verdict import Alternatives, Spread

CURVE = Curve(np.array([10.0, 20.0, 40.0]), np.array([1.0, 0.8, 0.4]))


def test_a_curve_is_linear_between_its_rates_and_constant_beyond() -> None:
    assert CURVE.at(np.array([5, 10, 15, 30, 50])).tolist() == pytest.approx([1.0, 1.0, 0.9, 0.6, 0.4])


def test_a_grid_ends_at_the_stated_share_and_starts_at_a_fraction_of_that_rate() -> None:
    found = grids(CURVE, 3, ends=(0.9, 0.6), starts=(0.2, 0.5))
    assert found == pytest.approx(np.array([[3, 9, 15], [7.5, 11.25, 15], [6, 18, 30], [15, 22.5, 30]]))
    assert grids(CURVE, 4).shape == (len(ENDS) * len(STARTS), 4)
    assert (ENDS[0], ENDS[-1], STARTS[0], STARTS[-1], POINTS[0], POINTS[-1]) == (0.99, 0.5, 0.1, 0.5, 4, 10)


def test_a_grid_cannot_end_beyond_the_simulated_rates() -> None:
    with pytest.raises(Unmeasured, match="from 10/min to 40/min does not fall from 30% to 30%"):
        grids(CURVE, 4, ends=(0.3,))


def test_a_share_is_crossed_between_a_rate_above_and_one_below() -> None:
    rates = np.array([10.0, 20.0, 40.0])
    shares = np.array([[1.0, 0.8, 0.4], [0.7, 0.9, 0.2], [1.0, 0.95, 0.91], [1.0, 0.9, 0.5]])
    found = falls_below(rates, shares, 0.9)
    assert found[0] == pytest.approx(15.0)  # 1.0 at 10, 0.8 at 20
    assert found[1] == -np.inf  # below at the lowest rate
    assert found[2] == np.inf  # below at none
    assert found[3] == pytest.approx(20.0)
    assert falls_below(np.array([rates, 2 * rates]), shares[[0, 0]], 0.9) == pytest.approx([15.0, 30.0])


GRIDS = Alternatives(np.array([1.9, 2.0, 2.3, 9.0]))
"""Half of them within 0.1 of 2."""


class OnGrids(Function):
    def __call__(self, runs: Runs) -> Alternatives:
        return GRIDS


def test_row_on_grids_has_median_and_share_and_is_judged_again_by_the_share() -> None:
    """The alternatives are not in the file, so that another tolerance needs them again."""
    entry = Entry(measure=OnGrids(function="modm.fresh"), reason="seldom")

    def row_of(abs_tol: float) -> tuple[Target, Row]:
        of = Target(id="A1", what="a quantity", role="predict", value=2.0, abs_tol=abs_tol)
        (row,) = score(Study({"one": [of]}, {"A1": entry}, {}, "trial"), ColumnTrace(layer="mechanism"), Runs(()))
        return of, row

    (of, row), (narrow, outside) = row_of(0.1), row_of(0.01)
    assert (row.ours, row.error, row.verdict, row.reason) == (2.15, 0.15, "within tolerance", None)
    assert row.spread == Spread(alternatives=4, share=0.5, lowest=1.9, highest=9.0)
    assert (outside.verdict, outside.reason) == ("outside", "seldom")
    assert rejudge(row, of, entry, None) == row
    again = rejudge(row, narrow, entry, None)
    assert (again.ours, again.spread, again.verdict, again.reason) == (None, None, "not run", CHANGED)
