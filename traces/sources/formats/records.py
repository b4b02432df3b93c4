"""Check JSON records against the fields of a format, and read the extras of a trace."""

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.validation import Origin, excerpt

Name = str | int
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Annotated[float, Field(gt=-(2.0**63), lt=2.0**63)]


def check_records(values: Sequence[Any], form: TypeAdapter[Any], origin: Origin) -> None:
    """Check records against a list of a TypedDict, without conversion of types.

    Raises TraceError naming row, field, found and expected value of the first mismatch.
    """
    try:
        form.validate_python(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        index, *path = first["loc"]
        absent = first["type"] == "missing"
        place = f"{origin.where}: row {origin.row(int(index))}" + "".join(
            f", column {excerpt(str(at))}" for at in path[:1]
        )
        found = "nothing" if absent else excerpt(repr(first["input"]), 60)
        expected = "a value" if absent else first["msg"].removeprefix("Input should be ")
        raise TraceError(f"{place}: found {found}, expected {expected}; fix or drop the record") from None


def extras(trace: Trace, row: int) -> dict[str, Any]:
    """Return the extras of a request. Raises TraceError if they are not a JSON object."""
    text = trace.table.column("extras")[row].as_py()
    try:
        found = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        where = f"{trace.path or trace.name}: row {row}, column extras"
        raise TraceError(f"{where}: found {excerpt(text)}, expected a JSON object; correct it, or make the trace again")
    return found
