"""Plausible grids of a figure's rates, and the verdict of a row over all of them, on cases worked out by hand."""

import numpy as np
import pytest

from mezzotint.sim.papers.runs import Runs, Unmeasured
from mezzotint.sim.papers.scorecard.alternatives import Alternatives
from mezzotint.sim.papers.scorecard.columns import Column
from mezzotint.sim.papers.scorecard.measures.formulas import TargetMeasure
from mezzotint.sim.papers.scorecard.measures.rate_grids import ENDS, POINTS, STARTS, Curve, falls_below, grids
from mezzotint.sim.papers.scorecard.page import render
from mezzotint.sim.papers.scorecard.rows import CHANGED, Spread, rejudge, score
from mezzotint.sim.papers.scorecard.targets import Layers, Target
from mezzotint.sim.papers.scorecard.verdict import judge_share, share_within

CURVE = Curve.of({20: 0.8, 10: 1.0, 40: 0.4})  # unordered on purpose


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


def target(**facts: object) -> Target:
    return Target.model_validate({"id": "A1", "what": "a quantity", "role": "predict", **facts})


def test_the_typical_value_is_the_median_of_each_number() -> None:
    pairs = Alternatives(np.array([[1.0, 9.0], [2.0, 5.0], [4.0, 6.0]]))
    assert (pairs.typical(), pairs.lowest(), pairs.highest()) == ([2.0, 6.0], [1.0, 5.0], [4.0, 9.0])
    assert Alternatives(np.array([1.0, 2.0, 9.0, 3.0])).typical() == 2.5
    for orders, most in ((Alternatives(np.array([True, False])), True), (Alternatives(np.array([False])), False)):
        assert (orders.typical(), orders.lowest(), orders.highest()) == (most, None, None)


def test_a_row_is_within_tolerance_if_at_least_half_of_its_alternatives_are() -> None:
    """A median within tolerance is not enough: here it is the paper's value, and four of six values are far off."""
    of, values = target(value=2.0, rel_tol=0.1), Alternatives(np.array([0.1, 0.2, 1.9, 2.1, 8.0, 9.0]))
    assert values.typical() == 2.0
    assert share_within(of, values) == pytest.approx(2 / 6)
    assert judge_share(of, values.typical(), 2 / 6) == (0.0, "outside")
    assert judge_share(of, 2.5, 0.5) == (0.25, "within tolerance")
    lists = Alternatives(np.array([[1.0, 2.0], [1.0, 3.0]]))
    assert share_within(target(value=[1.0, 2.0], abs_tol=0.5), lists) == 0.5
    assert share_within(target(at_least=2.0), Alternatives(np.array([1.0, 2.0, 3.0, 4.0]))) == 0.75
    assert share_within(target(role="order"), Alternatives(np.array([True, False, False, False]))) == 0.25


GRIDS = Alternatives(np.array([1.9, 2.0, 2.3, 9.0]))
"""Half of them within 0.1 of 2."""


def test_a_scored_row_shows_median_share_and_range() -> None:
    measures = {"A1": TargetMeasure((), lambda _: GRIDS, "an input", "every grid")}
    of = target(value=2.0, abs_tol=0.1)
    (row,) = score({"one": [of]}, measures, Runs(()), {"A1": "seldom"}, {}, Layers(), {})
    assert (row.ours, row.error, row.verdict, row.reason) == (2.15, 0.15, "within tolerance", None)
    assert row.spread == Spread(alternatives=4, share=0.5, lowest=1.9, highest=9.0)
    (row,) = score({"one": [target(value=2.0, abs_tol=0.01)]}, measures, Runs(()), {"A1": "seldom"}, {}, Layers(), {})
    assert (row.verdict, row.reason) == ("outside", "seldom")
    page = render([Column("synthetic", "the built-in trace", "0", [row])], "in full", {})
    assert "| A1 | synthetic | 4 | 25.0 % | 2.15 | 1.9 | 9 |" in page.splitlines()


def test_a_row_is_judged_again_by_its_share_unless_its_target_changed() -> None:
    """The alternatives are not in the file, so that another tolerance needs them again."""
    of = target(value=2.0, abs_tol=0.1)
    (row,) = score(
        {"one": [of]}, {"A1": TargetMeasure((), lambda _: GRIDS, "an input")}, Runs(()), {}, {}, Layers(), {}
    )
    assert rejudge(row, of, {}) == row
    again = rejudge(row, target(value=2.0, abs_tol=0.2), {})
    assert (again.ours, again.spread, again.verdict, again.reason) == (None, None, "not run", CHANGED)
