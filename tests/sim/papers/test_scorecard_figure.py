"""The figure has every row with a value of ours, as an offset in tolerances."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.papers.runs import NOT_YET
from mezzotint.sim.papers.scorecard.figure import MAX_OFFSET, draw, offsets
from mezzotint.sim.papers.scorecard.page import tally
from mezzotint.sim.papers.scorecard.rows import Row
from mezzotint.sim.papers.scorecard.targets import Target
from mezzotint.sim.papers.scorecard.verdict import judge


def row(of: Target, ours: Any, reason: str | None = None) -> Row:
    error, verdict = judge(of, ours)
    return Row(
        id=of.id, system="one", what=of.what, paper=of.paper, ours=ours, error=error, tolerance=of.tolerance,
        role=of.role, verdict=verdict, reason=reason, basis=None, fixed_by="C: a profile", command="mezzotint run",
        requests=1000, trace=["sha256:0123456789abcdef"], source="Table 2",
    )  # fmt: skip


def target(**fields: Any) -> Target:
    return Target(**({"id": "A1", "what": "a quantity", "role": "predict", "value": 2.0} | fields))


ROWS = [
    row(target(rel_tol=0.1), 2.1),
    row(target(id="A2", value=[1.0, 2.0], abs_tol=0.5), [1.0, 3.0], "the second | is late"),
    row(target(id="A3", role="order", value=None), False, "the other way round"),
    row(target(id="A4", value=None, at_most=5.0), 4.0),
    row(target(id="A5", role="input"), 2.0),
    row(target(id="A6"), None, f"{NOT_YET}; needs a GPU"),
    row(target(id="A7"), None, f"{NOT_YET}; needs a GPU"),
]


def test_rows_with_a_simulated_value_are_drawn_and_all_are_counted() -> None:
    figure = draw({"synthetic": ROWS})
    assert figure is not None
    (panel,) = figure.axes
    points = [line.get_xdata() for line in panel.lines if len(line.get_xdata()) == 1]
    assert len(points) == 6, "two of the list"
    assert all(abs(at) <= MAX_OFFSET for (at,) in points)
    assert draw({"synthetic": ROWS[5:]}) is None
    assert tally(ROWS) == "within tolerance: predicted 2 of 4 (2 not run)"


@given(st.floats(0.01, 1e3), st.floats(0.5, 2.0), st.sampled_from(["rel_tol", "abs_tol", "at_least", "at_most"]))
def test_point_lies_inside_the_band_exactly_if_within_tolerance(paper: float, off: float, kind: str) -> None:
    bound = kind.startswith("at")
    of = target(**{"value": None if bound else paper, kind: paper if bound else 0.1})
    drawn = row(of, paper * off)
    (offset,) = offsets(drawn)
    assert offsets(ROWS[2]) == [-float("inf")], "an ordering that is false"
    if abs(abs(offset) - 1) < 1e-6:
        return
    inside = offset > -1 if kind == "at_least" else offset < 1 if kind == "at_most" else abs(offset) < 1
    assert inside is (drawn.verdict == "within tolerance")
