"""Records of JSON, held to the fields that a format has."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from traces.error import TraceError
from traces.table.validation import Origin, shown

Name = str | int
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Annotated[float, Field(gt=-(2.0**63), lt=2.0**63)]


def check_records(values: Sequence[Any], form: TypeAdapter[Any], origin: Origin) -> None:
    """Check records against a list of a TypedDict; numbers are numbers, and text is text.

    Raises TraceError: naming row, field, what was found and what was expected of the first that is something else.
    """
    try:
        form.validate_python(values, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        index, *path = first["loc"]
        absent = first["type"] == "missing"
        place = f"{origin.where}: row {origin.row(int(index))}" + "".join(
            f", column {shown(str(at))}" for at in path[:1]
        )
        found = "nothing" if absent else shown(repr(first["input"]), 60)
        expected = "a value" if absent else first["msg"].removeprefix("Input should be ")
        raise TraceError(f"{place}: found {found}, expected {expected}; fix or drop the record") from None
