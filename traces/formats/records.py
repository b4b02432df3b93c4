"""Check records against the fields of a format."""

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import Origin, excerpt

Name = str | int


def check_records(values: Sequence[Any], form: TypeAdapter[Any], origin: Origin) -> None:
    """Check records against a list of a TypedDict, without conversion of types.

    Raises TraceError naming row, field, found and expected value of the first mismatch.
    """
    try:
        form.validate_python(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        index, *path = first["loc"]
        place = f"{origin.where}: row {origin.row(int(index))}"
        place += "".join(f", column {excerpt(str(name))}" for name in path[:1])
        found = "nothing" if first["type"] == "missing" else excerpt(repr(first["input"]), 60)
        expected = {"missing": "a value", "extra_forbidden": "no field of this name"}.get(first["type"])
        expected = expected or first["msg"].removeprefix("Input should be ")
        raise TraceError(f"{place}: found {found}, expected {expected}; fix or drop the record") from None
