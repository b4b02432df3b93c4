"""Export of a trace in the format of an engine's benchmark, as the map of its log declares the fields."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf, nextafter
from pathlib import Path
from typing import Any

from mezzotint.files.atomic import atomic_write
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.published import MAPS
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import ORDER_ONLY, ROWS
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.validation import excerpt

FORMATS: Mapping[str, tuple[Callable[[Mapping[str, Any]], str], bytes]] = {
    "vllm-omni": (
        lambda fields: f"Request({', '.join(f'{name}={value!r}' for name, value in fields.items())})",
        b"Request(",
    ),
    "sglang": (partial(json.dumps, ensure_ascii=False), b'{"'),
}
"""Name of a published log -> the text of a request's fields, and the first bytes of a file."""


def milliseconds(seconds: float) -> float:
    """Return the shortest number of milliseconds that is read as ``seconds``: a product may be off by a rounding."""
    near = seconds * 1000.0
    same = [value for value in (near, nextafter(near, 0.0), nextafter(near, inf)) if value / 1000.0 == seconds]
    return min(same, key=lambda value: len(repr(value)), default=near)


def export(trace: Trace, form: str, path: Path) -> list[str]:
    """Write `trace` to `path` in the format `form` of FORMATS, UTF-8, a line per request, completely or not at all.

    Returns:
        Columns and fields of the extras that the format cannot hold.

    Raises TraceError if a request lacks what the format requires, its extras are not a JSON object, or the file cannot
    be written.
    """
    declared, line = MAPS[form], FORMATS[form][0]
    column_of = {field: column for column, field in declared.columns.items()}
    order_only = trace.notes.get("arrival_s") == ORDER_ONLY
    others: dict[str, None] = {}
    with atomic_write(path, TraceError) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for row, cells in enumerate(_rows(trace)):
            where = f"{trace.path or trace.name}: row {row}, column"
            extras = _extras(cells["extras"], where)
            others |= dict.fromkeys(extras)
            cells["arrival_s"] = None if order_only else cells["arrival_s"]
            cells["slo_s"] = None if cells["slo_s"] is None else milliseconds(cells["slo_s"])
            fields = {name: cells.get(column_of.get(name, "")) for name in declared.fields}
            # num_frames and slo_ms were extras before the trace had columns for them
            fields = {name: extras.get(name) if value is None else value for name, value in fields.items()}
            fields = {name: value for name, value in fields.items() if value is not None}
            for name, kind in declared.fields.items():
                if name not in fields and "null" not in kind:
                    raise TraceError(
                        f"{where} {column_of[name]}: found null, expected a value, which {form} requires; pair the"
                        f" trace with {name}s (mezzotint trace pair)"
                    )
            file.write(line(fields) + "\n")
    held = {"extras", *declared.columns} | ({"arrival_s"} if order_only else set())  # the lines have an order
    filled = (name for name in SCHEMA.names if trace.table.column(name).null_count < len(trace))
    return [name for name in (*filled, *others) if name not in held and name not in declared.fields]


def _rows(trace: Trace) -> Iterator[dict[str, Any]]:
    for batch in trace.table.to_batches(max_chunksize=ROWS):
        yield from batch.to_pylist()


def _extras(text: str | None, where: str) -> dict[str, Any]:
    try:
        extras = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        extras = None
    if not isinstance(extras, dict):
        raise TraceError(
            f"{where} extras: found {excerpt(str(text))}, expected a JSON object; correct it, or make the trace again"
        )
    return extras
