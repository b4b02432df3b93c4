"""The page and the figure: the page has every row, the figure every row with a value of ours."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.papers.runs import NOT_YET
from mezzotint.sim.papers.scorecard.figure import MAX_OFFSET, draw, offsets
from mezzotint.sim.papers.scorecard.measures.interpretations import Interpretation
from mezzotint.sim.papers.scorecard.measures.observations import Observation
from mezzotint.sim.papers.scorecard.page import render, tally
from mezzotint.sim.papers.scorecard.rows import Column, Row
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

COLUMN = Column("synthetic", "the built-in trace", "0", ROWS)


def test_every_row_is_on_the_page_with_its_reason() -> None:
    lines = render([COLUMN], "in full", {}).splitlines()
    for line in (
        "| one | synthetic | ground | 2 | 2 | 2 | 1 | 0 |",
        "| A2 | a quantity (Table 2) | mechanism | 1 · 2 | ± 0.5 | 1 · 3 | +0 · +1 | outside |",
        "| A3 | a quantity (Table 2) | mechanism | true | – | false | – | outside |",
        "| A4 | a quantity (Table 2) | mechanism | 5 | at most 5 | 4 | -1 | **within tolerance** |",
        "- **A3**: the other way round",
        f"- **A6, A7**: {NOT_YET}; needs a GPU",
        "- synthetic: A1, A2, A3, A4, A5, A6, A7: `mezzotint run` (1,000 requests measured; trace 0123456789ab)",
    ):
        assert line in lines, line
    assert tally(ROWS) == "2 of 6 scored rows within tolerance, 2 outside, 2 not run"


def test_every_row_with_a_simulated_value_is_drawn() -> None:
    figure = draw({"synthetic": ROWS})
    assert figure is not None
    (panel,) = figure.axes
    points = [line for line in panel.lines if len(line.get_xdata()) == 1]
    assert len(points) == 6, "two of the list"
    assert all(abs(line.get_xdata()[0]) <= MAX_OFFSET for line in points)
    texts = [text.get_text() for text in panel.texts]
    assert [name for name in texts if name in {each.id for each in ROWS}] == ["A1", "A2", "A3", "A4", "A5"]
    assert any(text.get_text().endswith("; not simulated: A6, A7") for text in figure.texts)
    assert draw({"synthetic": ROWS[5:]}) is None


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


def test_readings_and_observations_are_listed_side_by_side() -> None:
    late = Interpretation("all stored", "lru", None, None, "late")
    seen = Observation("sessions are alike", {"near": 0.5, "far": 0.25}, True)
    absent = replace(seen, numbers={}, as_seen=None, reason="no users")
    columns = [
        replace(COLUMN, readings=[late], observations=[seen]),
        replace(COLUMN, name="log", readings=[replace(late, hit_rate=[0.9], saving=[0.5])], observations=[absent]),
        replace(COLUMN, name="neither"),
    ]
    lines = render(columns, "in full", {}).splitlines()
    for line in (
        "| reading | policy | synthetic: hit rate | saving | log: hit rate | saving |",
        "| all stored | lru | – | – | 0.9 | 0.5 |",
        "- not run on synthetic: late",
        "- sessions are alike",
        "  - synthetic: as in the paper: near 0.500, far 0.250 (differences -0.250)",
        "  - log: not measured: no users",
    ):
        assert line in lines, line


def test_row_missing_on_one_trace_shows_only_the_other_point() -> None:
    figure = draw({"synthetic": ROWS[:1], "log": [row(target(), None, "too short")]})
    assert figure is not None
    (panel,) = figure.axes
    (point,) = (line for line in panel.lines if len(line.get_xdata()) == 1)
    assert point.get_xdata()[0] == pytest.approx(0.5), "0.1 off of a tolerance of 0.2"
    texts = [text.get_text() for text in panel.texts]
    assert texts[texts.index("2") + 1 :][:2] == ["synthetic", "2.1"], "the paper's value, then ours"
    assert "1 of 1 scored rows within tolerance" in figure.texts[0].get_text()
