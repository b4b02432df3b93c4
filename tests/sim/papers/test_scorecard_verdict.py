"""Verdicts: what is held, missed and given, at the edges of every kind of tolerance."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.scorecard.targets import Role, Target
from mezzotint.sim.papers.scorecard.verdict import Alternatives, Interval, Spread, judge, over_seeds

VALUES = st.floats(1e-3, 1e6) | st.floats(-1e6, -1e-3)
TOLERANCES = st.floats(1e-3, 10.0)


def target(role: Role = "predict", **fields: Any) -> Target:
    return Target(id="X1", what="a quantity", role=role, **fields)


@given(VALUES, TOLERANCES, st.floats(-3.0, 3.0))
def test_tolerance_includes_its_edge_on_both_sides(value: float, tolerance: float, off: float) -> None:
    assume(abs(abs(off) - 1) > 1e-6 or abs(off) == 1)
    relative = judge(target(value=value, rel_tol=tolerance), value + off * tolerance * abs(value))
    absolute = judge(target(value=value, abs_tol=tolerance), value + off * tolerance)
    expected = "within tolerance" if abs(off) <= 1 else "outside"
    assert relative.verdict == expected
    assert relative.error == pytest.approx(off * tolerance, abs=1e-9)
    if abs(value) < 1e6 * tolerance:  # beyond, the sum has no bits left for what is added
        assert absolute.verdict == expected


@given(VALUES)
def test_default_tolerance_is_five_per_cent(value: float) -> None:
    assert target(value=value).tolerance == {"rel": 0.05}
    assert judge(target(value=value), 1.049 * value).verdict == "within tolerance"
    assert judge(target(value=value), 0.949 * value).verdict == "outside"


@given(VALUES, st.floats(0.0, 1e6))
def test_bounds_include_their_edge(bound: float, off: float) -> None:
    at_least, at_most = target(at_least=bound), target(at_most=bound)
    assert judge(at_least, bound + off).verdict == judge(at_most, bound - off).verdict == "within tolerance"
    assert judge(at_least, bound).verdict == judge(at_most, bound).verdict == "within tolerance"
    if off > 1e-6 * abs(bound):
        assert judge(at_least, bound - off).verdict == judge(at_most, bound + off).verdict == "outside"


@given(st.lists(VALUES, min_size=1, max_size=5), st.data())
def test_list_is_within_tolerance_only_as_a_whole(values: list[float], data: st.DataObject) -> None:
    of = target(value=values, rel_tol=0.1)
    assert judge(of, list(values)).verdict == "within tolerance"
    errors = [0.05] * len(values)
    errors[data.draw(st.integers(0, len(values) - 1))] = 0.2
    error, verdict = judge(of, [value + abs(value) * off for value, off in zip(values, errors, strict=True)])
    assert verdict == "outside"
    assert error == pytest.approx(errors)


@given(VALUES, VALUES)
def test_inputs_are_never_scored_and_what_is_not_simulated_is_not_run(value: float, ours: float) -> None:
    for role, verdict in (("input", "input"), ("inconsistent", "inconsistent")):
        assert judge(target(role, value=value), ours).verdict == verdict
        assert math.isfinite(judge(target(role, value=value), ours).error)
        assert judge(target(role, value=value), None) == (None, verdict)
    assert judge(target(value=value), None) == judge(target("order"), None) == (None, "not run")
    assert [judge(target("order"), ours).verdict for ours in (True, False)] == ["within tolerance", "outside"]
    assert judge(target(), ours).verdict == "outside", "the paper's numbers are in a file of their own"


@pytest.mark.parametrize(
    ("of", "ours"),
    [
        (target(value=[1.0, 2.0]), [1.0]),
        (target(value=[1.0, 2.0]), 1.0),
        (target(value=1.0), [1.0]),
        (target(value=1.0), True),
        (target("order"), 1.0),
    ],
)
def test_measure_of_another_form_is_refused(of: Target, ours: Any) -> None:
    with pytest.raises(ConfigError, match="X1"):
        judge(of, ours)


def test_typical_value_is_the_median_of_each_number() -> None:
    of = target(value=[1.0, 2.0])
    pairs = Alternatives(np.array([[1.0, 9.0], [2.0, 5.0], [4.0, 6.0]]))
    assert pairs.typical() == [2.0, 6.0]
    assert pairs.spread(of) == Spread(3, 0.0, [1.0, 5.0], [4.0, 9.0])
    assert Alternatives(np.array([1.0, 2.0, 9.0, 3.0])).typical() == 2.5
    for orders, most in ((Alternatives(np.array([True, False])), True), (Alternatives(np.array([False])), False)):
        assert orders.typical() is most
        assert orders.spread(target("order")).lowest is None


@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=8), st.floats(-3.0, 3.0))
def test_interval_decides_unless_it_crosses_an_edge(offsets: list[float], centre: float) -> None:
    assume(max(offsets) - min(offsets) > 1e-3)
    of = target(value=10.0, abs_tol=1.0)
    ours, interval = over_seeds([10.0 + centre + off for off in offsets])
    assert interval is not None
    assert interval.low <= ours <= interval.high  # type: ignore[operator]
    expected = stats.ttest_1samp([10.0 + centre + off for off in offsets], 0.0).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx(expected, rel=1e-4)
    edges = [interval.low - 10.0, interval.high - 10.0]  # type: ignore[operator]
    assume(all(abs(abs(edge) - 1.0) > 1e-4 for edge in edges))
    is_inside = max(map(abs, edges)) < 1
    is_outside = edges[0] > 1 or edges[1] < -1
    verdict = judge(of, ours, interval=interval).verdict
    assert verdict == ("within tolerance" if is_inside else "outside" if is_outside else "undecided")


def test_interval_of_a_list_an_ordering_and_equal_values() -> None:
    of = target(value=[1.0, 2.0], abs_tol=0.5)
    ours, interval = over_seeds([[1.0, 2.0], [1.1, 2.0], [1.2, 2.0]])
    assert judge(of, ours, interval=interval).verdict == "within tolerance"
    ours, interval = over_seeds([[1.0, 3.0], [1.1, 3.0], [1.2, 3.0]])
    assert judge(of, ours, interval=interval).verdict == "outside", "one number is"
    assert over_seeds([2.5, 2.5, 2.5]) == (2.5, None), "nothing is drawn"
    assert over_seeds([2.5]) == (2.5, None)
    for values, verdict in (([True] * 5, "within tolerance"), ([False] * 5, "outside"), ([True, False], "undecided")):
        most, interval = over_seeds(values)
        assert judge(target("order"), most, interval=interval).verdict == verdict
    bound = target(at_most=5.0)
    assert judge(bound, 4.0, interval=Interval(5, 3.5, 4.5)).verdict == "within tolerance"
    assert judge(bound, 4.0, interval=Interval(5, 3.0, 5.5)).verdict == "undecided"
    assert judge(bound, 6.0, interval=Interval(5, 5.5, 6.5)).verdict == "outside"
    contradicted = Spread(10, 0.2, 1.0, 9.0)
    assert judge(bound, 4.0, contradicted, Interval(5, 3.5, 4.5)).verdict == "undecided"


@pytest.mark.parametrize(
    ("of", "values", "share"),
    [
        (target(value=2.0, rel_tol=0.1), [0.1, 0.2, 1.9, 2.1, 8.0, 9.0], 2 / 6),  # although the median is the paper's
        (target(value=[1.0, 2.0], abs_tol=0.5), [[1.0, 2.0], [1.0, 3.0]], 0.5),
        (target(at_least=2.0), [1.0, 2.0, 3.0, 4.0], 0.75),
        (target("order"), [True, False, False, False], 0.25),
    ],
)
def test_row_is_within_tolerance_if_at_least_half_of_its_alternatives_are(
    of: Target, values: Any, share: float
) -> None:
    alternatives = Alternatives(np.array(values))
    spread = alternatives.spread(of)
    assert spread.share == pytest.approx(share, abs=1e-6)
    assert (judge(of, alternatives.typical(), spread).verdict == "within tolerance") is (share >= 0.5)
