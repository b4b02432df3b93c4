"""Costs are measured at every place of an axis, for every router that chooses by an index or by none."""

import re
from pathlib import Path

import pytest

from tests.benchmarks import growth
from tests.identity import speed

LEFT_OUT = {"by-addons", "by-model", "by-session", "least-pixels"}
"""Two routers whose rows have their own trace, one of streaming sessions, and another setting of least-requests."""


def test_every_other_router_has_a_row_with_and_without_failures() -> None:
    listed = {path.stem for path in Path("conf/router").glob("*.yaml")} - LEFT_OUT
    names = [axis.name for axis in growth.AXES]
    assert len(set(names)) == len(names)
    assert {f"workers, {router}{which}" for router in listed for which in ("", " with failures")} <= {*names}


def test_table_has_a_cost_for_each_place(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "scheduler=per-worker router=least-requests cluster.count={x}"
    monkeypatch.setattr(growth, "AXES", [growth.Axis("workers, small", (2, 8), words, 200, growth.LOAD_RPM)])
    row = r"\| workers, small \| 2: [\d.]+, 8: [\d.]+ \| -?[\d.]+ \| [\d.]+ \| 2: \d[\d,]+, 8: \d[\d,]+ \| [\d.]+ \|"
    assert re.fullmatch(row, [*growth.table()][-1])


CLUSTERS = [axis for axis in growth.AXES if axis.places == growth.WORKERS and "failures" not in axis.name]


@pytest.mark.parametrize("axis", CLUSTERS, ids=lambda axis: axis.name)
def test_work_of_a_request_does_not_grow_with_the_cluster(axis: growth.Axis) -> None:
    """Sixteen times the workers are one level more in a tree; a loop over workers takes thousands of instructions."""
    few, many = (growth.cost(axis, workers, scale=20)[1] for workers in (64, 1_024))
    assert few > 500
    assert many < 1.3 * few


def test_ratios_are_taken_pair_by_pair() -> None:
    """Of two sides that are slowed alike, the ratio is that of each minute."""
    assert speed.medians([(1.0, 2.0), (3.0, 6.0), (10.0, 15.0)]) == (3.0, 6.0, 2.0, 1.5, 2.0)


def test_rows_have_names_of_their_own_and_written_anchors() -> None:
    assert len({row.case.name for row in speed.ROWS}) == len(speed.ROWS)
    assert {row.anchor for row in speed.ROWS} == {speed.ANCHOR, speed.HITS, speed.GROUPS}
