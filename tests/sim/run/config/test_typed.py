"""Numbers of a configuration: a boolean is no number, and a range is enforced."""

from typing import Annotated, Any

import pytest
from annotated_types import Ge, Gt, Le
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.run.config.typed import spell_type, validate_value
from mezzotint.traces.similarity.similarity_map import Fitted
from tests.sim.lab import configured, simulated

HINTS = [int, float, int | None, list[float], dict[int, float], list[Fitted]]


@given(st.sampled_from([True, False]), st.sampled_from(HINTS))
def test_boolean_is_refused_as_a_number(value: bool, hint: Any) -> None:
    """At any depth of a type."""
    fitted = [{"target": "t", "paper": 1.0, "ours": value}]
    given_ = {list[float]: [1.0, value], dict[int, float]: {1: value}, list[Fitted]: fitted}.get(hint, value)
    with pytest.raises(ValidationError):
        validate_value(given_, hint)


@given(st.one_of(st.integers(), st.floats()), st.sampled_from([bool, bool | None, list[bool]]))
def test_number_is_refused_as_a_boolean(value: float, hint: Any) -> None:
    """Not even 0 and 1, which pydantic would accept."""
    for each in (value, 0, 1, 0.0, 1.0):
        with pytest.raises(ValidationError):
            validate_value([each] if hint == list[bool] else each, hint)
    assert validate_value([True, False], list[bool]) == [True, False]


def test_mapping_is_validated_against_a_dataclass_and_an_instance_is_taken() -> None:
    made = Fitted("t", 1.0, 2.0)
    assert validate_value({"target": "t", "paper": 1, "ours": 2}, Fitted) == made
    assert validate_value(made, Fitted) is made
    for wrong in ("t", 5, None, ["t", 1.0, 2.0]):
        with pytest.raises(ValidationError):
            validate_value(wrong, Fitted)


@given(st.integers(-(2**62), 2**62))
def test_whole_numbers_convert_between_int_and_float(value: int) -> None:
    assert validate_value(value, float) == float(value)
    if abs(value) < 2**53:
        assert validate_value(float(value), int) == value


def test_range_is_spelled_in_words() -> None:
    assert spell_type(Annotated[float, Gt(0), Le(1)] | None) == "float over 0 and at most 1 or null"
    assert spell_type(dict[Annotated[int, Ge(1)], float]) == "dict[int at least 1, float]"


def test_run_keys_refuse_a_boolean_as_a_number() -> None:
    config = configured()
    for key in ("seed", "warmup", "preload", "sample_s"):
        with pytest.raises(ConfigError, match=f"{key}: "):
            check({**config, key: True})
    with pytest.raises(ConfigError, match=r"cluster\.count"):
        check({**config, "cluster": {**config["cluster"], "count": True}})


@pytest.mark.parametrize("value", ["nan", "[1,-inf]", "{a:inf}"])
def test_assumption_that_json_cannot_hold_is_refused(value: str) -> None:
    override = f"++system.assumptions=[{{what:a,value:{value},source:b}}]"
    with pytest.raises(ConfigError, match=r"^system\.assumptions: the value of 'a': .*not JSON compliant"):
        simulated("trace.requests=20", override)


@pytest.mark.parametrize("group", ["models", "frontend", "executor", "allocation"])
def test_empty_required_group_is_refused(group: str) -> None:
    with pytest.raises(ConfigError, match=rf"{group}: .*expected one to be chosen"):
        check({**configured(), group: {}})
