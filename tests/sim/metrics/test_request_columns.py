"""NumPy and requests.parquet agree on the columns of a request."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.plan import HIT, LOOKUPS, MISSING, Plan
from mezzotint.sim.core.request import COMPLETED, DISCARDED, FAILED, Request
from mezzotint.sim.metrics.request_columns import ENDED, PLANNED, REAL, RECORD, SERVED, RequestColumns

MODELS = ["sdxl", "sana"]
FIRST, ROWS = 3, 10
OWN = ("finish_s", "outcome", "lookup", "model")
reals, wholes = st.floats(0, 1e9), st.integers(0, 2**31 - 1)


def asked(draw: st.DrawFn) -> Request:
    return Request(draw(st.integers(FIRST, FIRST + ROWS - 1)), draw(reals), draw(wholes), draw(wholes), draw(wholes))


@st.composite
def reused(draw: st.DrawFn) -> Request:
    """Every column has some value."""
    request = asked(draw)
    plan: dict[str, Any] = {}
    for name, kind in (PLANNED | ENDED | SERVED).items():
        if name in Plan._fields:
            plan[name] = draw(reals if kind == REAL else wholes)
        elif name not in OWN:
            setattr(request, name, draw(reals if kind == REAL else wholes))
    plan["lookup"] = draw(st.integers(1, len(LOOKUPS) - 1))
    plan["source"] = draw(st.integers(MISSING, FIRST + ROWS - 1))
    plan["model"] = draw(st.sampled_from([None, *MODELS]))
    request.plan = Plan(**plan)
    request.model = request.plan.model
    return request


@st.composite
def direct(draw: st.DrawFn) -> Request:
    """A request without a lookup has no cache columns."""
    request = asked(draw)
    for name, kind in SERVED.items():
        if name not in OWN:
            setattr(request, name, draw(reals if kind == REAL else wholes))
    request.plan = Plan(draw(st.sampled_from(MODELS)))
    request.model = request.plan.model
    return request


def table(columns: RequestColumns) -> dict[str, list[object]]:
    ids = pa.chunked_array([[f"r{row}" for row in range(FIRST + ROWS)]])
    read: dict[str, list[object]] = next(columns.tables(ids, np.full(ROWS, np.nan))).to_pydict()
    return read


@given(request=reused() | direct(), finish_s=reals)
def test_every_column_of_a_completed_request_reads_as_written(request: Request, finish_s: float) -> None:
    columns = RequestColumns(ROWS, MODELS, FIRST)
    columns.end(request, finish_s, COMPLETED, "")
    at = request.row - FIRST
    beside = {"finish_s": finish_s, "outcome": COMPLETED}
    beside["model"] = MISSING if request.model is None else MODELS.index(request.model)
    for name in RECORD.names or ():
        written = beside.get(name, getattr(request.plan if name in Plan._fields else request, name, None))
        assert columns[name][at] == written or np.isnan([columns[name][at], written]).all(), name
    others = np.delete(columns["outcome"], at)
    assert not others.any()


@given(requests=st.lists(reused() | direct(), max_size=ROWS, unique_by=lambda request: request.row))
def test_every_row_of_the_table_is_its_own_request(requests: list[Request]) -> None:
    """Requests end in any order; a row that has not ended has no values."""
    columns = RequestColumns(ROWS, MODELS, FIRST)
    for request in requests:
        columns.end(request, request.arrival_s + 1.0, COMPLETED, "")
    written, ended = table(columns), {request.row - FIRST: request for request in requests}
    assert written["request_id"] == [f"r{row}" for row in range(FIRST, FIRST + ROWS)]
    for at in range(ROWS):
        if at not in ended:
            assert written["outcome"][at] == ""
            assert [written[name][at] for name in ("start_s", "model", "worker", "source_id", "lookup")] == [None] * 5
        else:
            request = ended[at]
            assert written["outcome"][at] == "completed"
            assert written["model"][at] == request.model
            assert written["steps"][at] == request.steps
            assert written["lookup"][at] == (LOOKUPS[request.plan.lookup] or None)
            assert (written["batch_mean"][at] is None) == (request.model is None)


@given(request=reused(), outcome=st.sampled_from([DISCARDED, FAILED]))
def test_dropped_request_has_no_start_or_model_and_ends_once(request: Request, outcome: int) -> None:
    columns = RequestColumns(ROWS, MODELS, FIRST)
    columns.end(request, 7.0, outcome, "too late")
    at = request.row - FIRST
    assert columns["finish_s"][at] == 7.0
    assert columns["arrival_s"][at] == request.arrival_s
    assert columns["lookup"][at] == request.plan.lookup
    assert np.isnan(columns["start_s"][at])
    assert columns["model"][at] == columns["worker"][at] == MISSING
    assert columns["denoise_s"][at] == columns["energy_j"][at] == 0.0
    assert columns.reasons == {request.row: "too late"}
    assert table(columns)["reason"][at] == "too late"
    with pytest.raises(SimulationError, match=f"row {request.row} ended twice: .* at 8.0 s, and before it was"):
        columns.end(request, 8.0, COMPLETED, "")


@given(first=reused() | direct(), again=st.sampled_from([COMPLETED, DISCARDED, FAILED]))
def test_completed_request_ends_once(first: Request, again: int) -> None:
    columns = RequestColumns(ROWS, MODELS, FIRST)
    columns.end(first, 7.0, COMPLETED, "")
    before = {name: columns[name].copy() for name in RECORD.names or ()}
    with pytest.raises(SimulationError, match=f"row {first.row} ended twice"):
        columns.end(first, 8.0, again, "")
    for name, values in before.items():
        np.testing.assert_array_equal(columns[name], values)


KINDS: dict[type, st.SearchStrategy[float | int | bool]] = {float: reals, int: wholes, bool: st.booleans()}
NULL = {float: None, int: None, bool: False}


@given(data=st.data(), kind=st.sampled_from(list(KINDS)), rows=st.sets(st.integers(0, FIRST + ROWS - 1)))
def test_declared_column_is_null_where_no_value_was_written(data: st.DataObject, kind: type, rows: set[int]) -> None:
    """Rows that warm the cache and serve no request have no values either."""
    columns = RequestColumns(ROWS, MODELS, FIRST)
    column = columns.declare("patience", kind)
    written = {row: data.draw(KINDS[kind]) for row in sorted(rows)}
    for row, value in written.items():
        column[row] = value
    assert table(columns)["patience"] == [written.get(row, NULL[kind]) for row in range(FIRST, FIRST + ROWS)]
    for row, value in written.items():
        if row >= FIRST:
            assert column[row] == value == columns["patience"][row - FIRST]
            assert type(column[row]) is kind


@pytest.mark.parametrize(("kind", "default"), [(float, 0.0), (int, 0), (bool, True)])
def test_declared_default_fills_unwritten_rows(kind: type, default: float | int | bool) -> None:
    columns = RequestColumns(ROWS, MODELS, FIRST)
    columns.declare("patience", kind, default=default)
    columns.declare("hidden", kind, default=default, public=False)
    assert table(columns)["patience"] == [default] * ROWS
    assert list(columns["hidden"]) == [default] * ROWS
    assert "hidden" not in table(columns)


@pytest.mark.parametrize("name", ["arrival_s", "outcome", "lookup", "quality", "patience"])
def test_reserved_column_name_is_refused(name: str) -> None:
    columns = RequestColumns(ROWS, MODELS)
    columns.declare("patience")
    with pytest.raises(SimulationError, match=f"declares the column '{name}' .*a name that is not taken"):
        columns.declare(name)


@pytest.mark.parametrize("kind", [str, complex, np.float32, object])
def test_declared_column_is_float_int_or_bool(kind: type) -> None:
    with pytest.raises(SimulationError, match=r"expected .* float, int or bool"):
        RequestColumns(ROWS, MODELS).declare("patience", kind)


def test_hit_names_its_source_request() -> None:
    """The source may be one of the rows that were not served."""
    columns = RequestColumns(ROWS, MODELS, FIRST)
    request = Request(FIRST, 0.0, 64, 64, 50)
    request.plan = Plan("sana", lookup=HIT, source=1)
    columns.end(request, 1.0, COMPLETED, "")
    assert table(columns)["source_id"] == ["r1", *[None] * (ROWS - 1)]
