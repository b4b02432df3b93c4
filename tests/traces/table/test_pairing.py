"""Two traces merged: the origin of each column, and marks by which no reader takes the result for a real trace."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.traces.describe import describe_trace
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.pairing import TAKEN, pair
from mezzotint.traces.table.trace import Trace, make


def prompts_of(count: int) -> Trace:
    return make(
        {
            "request_id": [f"p{i}" for i in range(count)],
            "arrival_s": np.arange(count) * 2.0,
            "user_id": ["someone"] * count,
            "prompt": [f"prompt {i}" for i in range(count)],
            "width": [512] * count,
            "steps": [50] * count,
            "seed": list(range(count)),
        },
        name="prompts",
        source="a list",
        notes={"licence": "CC0-1.0"},
    )


def arrivals_of(count: int, **columns: Any) -> Trace:
    return make(
        {
            "request_id": [f"a{i}" for i in range(count)],
            "arrival_s": 5.0 + np.arange(count) ** 2,
            "user_id": [f"u{i}" for i in range(count)],
            "steps": [30] * count,
            "images": [4] * count,
            "base_model": [f"m{i}" for i in range(count)],
            "loras": [["l"]] * count,
            "slo_s": [5.0] * count,
            "priority": [1] * count,
            **columns,
        },
        name="service",
        source="a service",
        notes={"licence": "do not pass on"},
    )


def test_pairing_takes_arrivals_from_the_second_trace() -> None:
    one, two = prompts_of(3), arrivals_of(5)
    made = pair(one, two)
    for name in SCHEMA.names:
        source = two if name in ("arrival_s", "base_model", "loras") else one
        assert made.table.column(name).to_pylist() == source.table.column(name).to_pylist()[:3]
    everything = pair(one, two, take=[what for what in TAKEN if what != "controlnets"])
    assert everything.table.column("user_id").to_pylist() == ["u0", "u1", "u2"]
    assert everything.table.column("steps").to_pylist() == [30] * 3
    assert everything.table.column("slo_s").to_pylist() == [5.0] * 3
    only = pair(one, two, take=["images"])
    assert only.arrival_s.tolist() == one.arrival_s.tolist()


def test_pairing_is_marked_as_synthetic() -> None:
    one, two = prompts_of(3), arrivals_of(3)
    made = pair(one, two)
    assert made.notes["synthetic"] is True
    pairing = made.notes["pairing"]
    assert (pairing["prompts"]["digest"], pairing["arrivals"]["digest"]) == (one.digest, two.digest)
    assert pairing["arrivals"]["notes"]["licence"] == "do not pass on"
    assert pairing["columns_of_arrivals"] == ["arrival_s", "base_model", "loras"]
    assert made.name == "prompts+service"
    assert made.source.startswith("synthetic pairing: ")
    assert describe_trace(made).to_dict()["notes"]["synthetic"] is True
    assert pair(one, two, name="mine").name == "mine"
    untimed = make({"request_id": ["a"], "arrival_s": [0.0]}, name="n", source="s", notes={"arrival_s": "no times"})
    assert pair(one, untimed).notes["arrival_s"] == "no times"
    assert "arrival_s" not in pair(untimed, two).notes


@given(ones=st.integers(1, 7), twos=st.integers(2, 7), repeat=st.booleans())
def test_paired_length_is_the_shorter_or_the_longer_with_repeat(ones: int, twos: int, repeat: bool) -> None:
    made = pair(prompts_of(ones), arrivals_of(twos), repeat=repeat)
    assert len(made) == (max if repeat else min)(ones, twos)
    assert made.prompts().to_pylist() == [f"prompt {i % ones}" for i in range(len(made))]
    assert made.table.column("base_model").to_pylist() == [f"m{i % twos}" for i in range(len(made))]
    assert made.arrival_s[:twos].tolist() == arrivals_of(twos).arrival_s[: len(made)].tolist()


def test_repeated_trace_renames_requests_and_continues_its_arrivals() -> None:
    made = pair(prompts_of(2), arrivals_of(5), repeat=True)
    assert made.table.column("request_id").to_pylist() == ["p0", "p1", "p0#2", "p1#2", "p0#3"]
    # 5, 6, 9 and then again, one mean gap of 2 s later
    again = pair(prompts_of(7), arrivals_of(3), repeat=True)
    assert again.arrival_s.tolist() == [5.0, 6.0, 9.0, 11.0, 12.0, 15.0, 17.0]


def test_invalid_pairing_is_refused() -> None:
    one, two = prompts_of(3), arrivals_of(3)
    wrong: list[tuple[Any, str]] = [
        ([], "take=''"),
        (["users", "users"], "each once"),
        (["prompt"], "cannot take 'prompt', expected some of arrivals, users"),
        (["controlnets"], "trace service has no value in its column controlnets"),
    ]
    for take, message in wrong:
        with pytest.raises(TraceError, match=message):
            pair(one, two, take=take)
    with pytest.raises(TraceError, match="arrivals of service are all at one time"):
        pair(one, arrivals_of(1), repeat=True)
