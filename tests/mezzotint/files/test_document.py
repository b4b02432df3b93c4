"""YAML of unknown origin parses as a safe loader parses it, or is refused in one part of a line."""

from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.files.document import MAX_DEPTH, MAX_VALUES, DocumentError, parse, parse_json

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@given(tree=plain)
def test_yaml_round_trips(tree: object) -> None:
    text = yaml.safe_dump(tree)
    assert parse(text) == parse(text.encode()) == yaml.safe_load(text) == tree


@given(content=st.binary(max_size=60) | st.text(max_size=60))
def test_malformed_yaml_is_one_line(content: str | bytes) -> None:
    message = "a value"
    try:
        parse(content)
    except DocumentError as error:
        message = str(error)
    assert message
    assert "\n" not in message


def bomb(levels: int, width: int) -> str:
    """Return lists that each name the one before ``width`` times."""
    return "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]\n" for n in range(1, levels))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(30, 9), f"{MAX_VALUES:,} values"),
        ("a: &a [*a]", "a part of itself"),
        ("- " * 9999, "too deeply"),
        ("a: 1\nb: [", "line 3"),
        ("a: 2024-13-45", "line 1: '2024-13-45' is no timestamp"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        (b"\xff\xfe\x00", "byte"),
    ],
)
def test_dangerous_yaml_is_refused_with_place_and_reason(text: str | bytes, message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse(text)
    assert message in str(refused.value)


def test_harmless_aliases_are_read() -> None:
    """Aliases as people write them: one value in several places."""
    assert parse("a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}") == {
        "a": {"x": 1}, "b": [{"x": 1}, {"x": 1}], "c": {"x": 1, "y": 2},
    }  # fmt: skip
    assert parse("") is None


@pytest.mark.parametrize("levels", [MAX_DEPTH, MAX_DEPTH + 2, 900, 100_000])
@pytest.mark.parametrize(("read", "bracket"), [(parse, "[]"), (parse_json, "[]"), (parse_json, '{"a":}')])
def test_deep_nesting_is_refused_before_it_exceeds_the_stack(
    levels: int, read: Callable[[str], object], bracket: str
) -> None:
    inner = "" if bracket == "[]" else "1"
    text = bracket[:-1] * levels + inner + bracket[-1] * levels
    if levels <= MAX_DEPTH:
        assert read(text)
    else:
        with pytest.raises(DocumentError, match="nested too deeply"):
            read(text)


@pytest.mark.parametrize("read", [parse, parse_json])
def test_deep_nesting_is_refused_with_its_key(read: Callable[[str], object]) -> None:
    deep = "[" * 60 + "]" * 60
    with pytest.raises(DocumentError, match="key 'b': it is nested too deeply"):
        read(f'{{"a": [1], "b": {deep}}}')


@pytest.mark.parametrize("digits", [400, 5000])
def test_number_that_no_float_holds_is_refused_in_plain_words(digits: int) -> None:
    with pytest.raises(DocumentError, match=rf"it has a number of {digits:,} digits \(1111"):
        parse_json(f'{{"a": {"1" * digits}}}')


def test_key_twice_in_json_is_refused() -> None:
    with pytest.raises(DocumentError, match="key 'b' is there twice in an object; keep one"):
        parse_json('{"a": 1, "c": [{"b": 1, "a": 2, "b": 1}]}')


def test_malformed_json_is_one_line() -> None:
    for text in ("", "{", "[1,", "1" * 9999, b"\xff"):
        with pytest.raises(DocumentError) as refused:
            parse_json(text)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["a: 1\nb: 2\na: 1", "- x\n- {y: 1,\n  z: 0,\n  y: 2}"])
def test_key_that_is_there_twice_is_refused_with_both_lines(text: str) -> None:
    """PyYAML takes the last."""
    with pytest.raises(DocumentError, match=r"line (\d): '[ay]' is there twice, first in line [12]; keep one"):
        parse(text)


@pytest.mark.parametrize("number", ["1:30", "1_0", "010", "0x1F", "1:30.5", "1_0.5", "0b1"])
def test_number_in_an_uncommon_form_is_refused(number: str) -> None:
    """PyYAML reads them as 90, 10, 8, 31, 90.5, 10.5 and 1; in quotes they are text."""
    with pytest.raises(DocumentError, match=f"line 2: {number} is no plain number; write its digits"):
        parse(f"- 0\n- {number}")
    assert parse(f"- '{number}'") == [number]


@pytest.mark.parametrize("number", ["0", "-7", "+3", "1.5", ".5", "2.", "1.5e-3", "-.inf", "1.0E+9", "0.05"])
def test_plain_number_is_read(number: str) -> None:
    assert parse(number) == float(number.replace(".inf", "inf"))
