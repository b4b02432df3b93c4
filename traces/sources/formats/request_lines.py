"""What the engines' formats of a request a line share: the extras of a row."""

import json
from typing import Any

from traces.error import TraceError
from traces.table.trace import Trace
from traces.table.validation import shown


def extras(trace: Trace, row: int) -> dict[str, Any]:
    """What else the source's format said of a request. Raises TraceError where it is no JSON object."""
    text = trace.table.column("extras")[row].as_py()
    try:
        found = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        where = f"{trace.path or trace.name}: row {row}, column extras"
        raise TraceError(f"{where}: found {shown(text)}, expected a JSON object; correct it, or make the trace again")
    return found
