"""What is written of a request is what NumPy reads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import SimulationError
from sim.request import COMPLETED, DISCARDED, ENDED, HIT, MISSING, REAL, RECORD, SERVED, Columns, Request

MODELS = ["sdxl", "sana"]
reals, wholes = st.floats(0, 1e9), st.integers(0, 2**31 - 1)


@st.composite
def ended(draw: st.DrawFn) -> Request:
    request = Request(draw(st.integers(0, 9)), draw(reals), *(draw(wholes) for _ in range(3)))
    for name, kind in (ENDED | SERVED).items():
        if name not in ("finish_s", "outcome", "lookup", "hole", "switched", "model"):
            setattr(request, name, draw(reals if kind == REAL else wholes))
    request.lookup, request.hole, request.switched = HIT, draw(st.booleans()), draw(st.booleans())
    request.model = draw(st.sampled_from([None, *MODELS]))
    return request


@given(request=ended(), finish_s=reals, evictions=wholes)
def test_every_column_of_a_completed_request_is_read_as_it_was_written(
    request: Request, finish_s: float, evictions: int
) -> None:
    columns = Columns(10, MODELS)
    columns.end(request, finish_s, COMPLETED, "")
    columns.stored(request.row, evictions)
    beside = {"finish_s": finish_s, "outcome": COMPLETED, "evictions": evictions}
    beside["model"] = MISSING if request.model is None else MODELS.index(request.model)
    for name in RECORD.names or ():
        assert columns[name][request.row] == beside.get(name, getattr(request, name, None)), name
    others = np.delete(columns["outcome"], request.row)
    assert not others.any()


@given(request=ended())
def test_a_request_that_was_given_up_has_no_start_and_no_model_and_ends_once(request: Request) -> None:
    columns = Columns(10, MODELS)
    columns.end(request, 7.0, DISCARDED, "too late")
    assert columns["finish_s"][request.row] == 7.0
    assert np.isnan(columns["start_s"][request.row])
    assert columns["model"][request.row] == columns["worker"][request.row] == MISSING
    assert columns["denoise_s"][request.row] == columns["energy_j"][request.row] == 0.0
    assert columns.reasons == {request.row: "too late"}
    with pytest.raises(SimulationError, match=f"row {request.row} ended twice; the second time at 8.0 s"):
        columns.end(request, 8.0, COMPLETED, "")
