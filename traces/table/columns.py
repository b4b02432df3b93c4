"""The columns of a trace: names, types, units and ranges, and the conversion of values to them."""

from collections.abc import Mapping
from math import nextafter
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import Origin, check_times, check_whole, excerpt, refuse


class Column(NamedTuple):
    """A column of a trace: type, unit or meaning, and of a number the least value and a good value in words."""

    kind: pa.DataType
    unit: str
    min_value: float | None = None
    expected: str = ""


TEXT, TEXTS, WHOLE, REAL = pa.string(), pa.list_(pa.string()), pa.int32(), pa.float64()
SOME, ANY = (1, "a positive integer"), (0, "an integer, 0 or more, or null")
SCALE = (0.0, "a finite number, 0 or more, or null")
SHARE = (nextafter(0.0, 1.0), "a number above 0, or null")
SECONDS = (0.0, "finite seconds, 0 or more, or null")
SOME_SECONDS = (nextafter(0.0, 1.0), "finite seconds above 0, or null")

COLUMNS: Mapping[str, Column] = {
    "request_id": Column(TEXT, "unique name of the request"),
    "arrival_s": Column(REAL, "seconds since the start of the trace"),
    "user_id": Column(TEXT, "name of the user"),
    "prompt": Column(TEXT, "text"),
    "width": Column(WHOLE, "pixels", *SOME),
    "height": Column(WHOLE, "pixels", *SOME),
    "frames": Column(WHOLE, "frames of a video; null is an image", *SOME),
    "steps": Column(WHOLE, "denoising steps", *SOME),
    "images": Column(WHOLE, "images per request", *SOME),
    "base_model": Column(TEXT, "name of the base model"),
    "controlnets": Column(TEXTS, "names of ControlNets"),
    "loras": Column(TEXTS, "names of LoRAs"),
    "seed": Column(pa.uint64(), "seed of the noise", *ANY),
    "gen_s": Column(REAL, "seconds that the service took to generate it", *SECONDS),
    "slo_s": Column(REAL, "seconds from arrival to the request's own deadline", *SOME_SECONDS),
    "priority": Column(WHOLE, "priority, higher first; null is 0", *ANY),
    "guidance": Column(REAL, "guidance scale; null is the model's own", *SCALE),
    "negative_prompt": Column(TEXT, "text to stay away from"),
    "input_images": Column(WHOLE, "images that the request brings, to edit or to animate", *ANY),
    "strength": Column(REAL, "share of the steps that run on an input image; null is all", *SHARE),
    "latency_s": Column(REAL, "seconds from arrival to the answer, as the client measured them", *SECONDS),
    "extras": Column(TEXT, "what else the source's own format says of the request, a JSON object"),
}

NEEDED = ("request_id", "arrival_s")
UNITS = {name: column.unit for name, column in COLUMNS.items()}
SCHEMA: pa.Schema = pa.schema(
    [pa.field(name, column.kind, name not in NEEDED, {"unit": column.unit}) for name, column in COLUMNS.items()]
)
"""Columns of every trace. A value that the source lacks is null; an empty list means that none were used."""

LATER = (
    *("frames", "gen_s", "slo_s", "priority", "guidance", "negative_prompt", "input_images", "strength", "latency_s"),
    "extras",
)
"""Columns added later. A file without them is read as if they were null. An all-null one does not enter the digest, so
that older traces keep their digests."""


def conform(table: pa.Table | Mapping[str, Any], origin: Origin) -> pa.Table:
    """Convert columns to the order and types of `SCHEMA`; absent optional columns become null.

    Args:
        table: a table, or a mapping from column name to values that Arrow can convert, (n,) each.

    Raises:
        TraceError: a column is unknown, required and missing, of another length, or holds values of another type.
    """
    columns = dict(zip(table.column_names, table.columns, strict=True)) if isinstance(table, pa.Table) else table
    for name in columns:
        if name not in SCHEMA.names:
            raise TraceError(
                f"{origin.where}: column {excerpt(name)}: not a column of a trace, expected only"
                f" {', '.join(SCHEMA.names)}; rename or drop it"
            )
    for name in NEEDED:
        if name not in columns:
            raise TraceError(f"{origin.where}: column {name}: missing, every trace needs it; add it")
    count = len(columns["request_id"])
    arrays = []
    for field in SCHEMA:
        values = columns.get(field.name)
        if values is not None and len(values) != count:
            raise TraceError(
                f"{origin.where}: column {field.name}: found {len(values)} values, expected {count} as in"
                " request_id; make the columns equally long"
            )
        arrays.append(pa.nulls(count, field.type) if values is None else _converted(values, field, origin))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _converted(values: Any, field: pa.Field, origin: Origin) -> pa.Array | pa.ChunkedArray:
    try:
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            values = pa.array(values)
        return values if values.type == field.type else values.cast(field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        cell, found = f"{origin.where}: column {field.name}", excerpt(str(error))
        for index, value in enumerate(values):
            plain: Any = value
            try:
                plain = value.as_py() if isinstance(value, pa.Scalar) else value
                pa.scalar(plain).cast(field.type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):  # the last for a time that Python lacks
                cell, found = origin.cell(index, field.name), excerpt(repr(plain))
                break
        raise TraceError(
            f"{cell}: found {found}, expected {field.type}, {UNITS[field.name]}; fix or drop the row"
        ) from error


def check_cells(table: pa.Table, origin: Origin) -> None:
    """Check the rules of a canonical trace, (n, columns), that do not depend on the order of its rows.

    Raises TraceError as `mezzotint.traces.table.trace.make`.
    """
    if table.num_rows == 0:
        raise TraceError(f"{origin.where}: found no rows, expected at least one request; name another file")
    check_whole(table, origin.where)
    ids = table.column("request_id")
    refuse(ids, pc.is_null(ids), "request_id", "a value", origin)
    check_times(table.column("arrival_s"), origin)
    for name, (kind, _, min_value, expected) in COLUMNS.items():
        if min_value is not None:
            cells = table.column(name)
            good = pc.and_(pc.is_finite(cells), pc.greater_equal(cells, pa.scalar(min_value, kind)))
            refuse(cells, pc.invert(good), name, expected, origin)
