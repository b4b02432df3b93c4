"""The columns of a trace: names, types, units, and the conversion of values to them."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import Origin, excerpt

_COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "request_id": (pa.string(), "unique name of the request"),
    "arrival_s": (pa.float64(), "seconds since the start of the trace"),
    "user_id": (pa.string(), "name of the user"),
    "prompt": (pa.string(), "text"),
    "width": (pa.int32(), "pixels"),
    "height": (pa.int32(), "pixels"),
    "frames": (pa.int32(), "frames of a video; null is an image"),
    "steps": (pa.int32(), "denoising steps"),
    "images": (pa.int32(), "images per request"),
    "base_model": (pa.string(), "name of the base model"),
    "controlnets": (pa.list_(pa.string()), "names of ControlNets"),
    "loras": (pa.list_(pa.string()), "names of LoRAs"),
    "seed": (pa.int64(), "seed of the noise"),
    "gen_s": (pa.float64(), "seconds that the service took to generate it"),
    "slo_s": (pa.float64(), "seconds from arrival to the request's own deadline"),
    "priority": (pa.int32(), "priority, higher first; null is 0"),
    "extras": (pa.string(), "what else the source's own format says of the request, a JSON object"),
}

NEEDED = ("request_id", "arrival_s")
UNITS = {name: unit for name, (_, unit) in _COLUMNS.items()}
SCHEMA: pa.Schema = pa.schema(
    [pa.field(name, kind, name not in NEEDED, {"unit": unit}) for name, (kind, unit) in _COLUMNS.items()]
)
"""Columns of every trace. A value that the source lacks is null; an empty list means that none were used."""

LATER = ("frames", "gen_s", "slo_s", "priority", "extras")
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
    unknown = [name for name in columns if name not in SCHEMA.names]
    if unknown:
        raise TraceError(
            f"{origin.where}: column {excerpt(unknown[0])}: not a column of a trace, expected only"
            f" {', '.join(SCHEMA.names)}; rename or drop it"
        )
    for name in NEEDED:
        if name not in columns:
            raise TraceError(f"{origin.where}: column {name}: missing, every trace needs it; add it")
    count = len(columns["request_id"])
    arrays = []
    for field in SCHEMA:
        values = columns.get(field.name)
        if values is None:
            arrays.append(pa.nulls(count, field.type))
            continue
        if len(values) != count:
            raise TraceError(
                f"{origin.where}: column {field.name}: found {len(values)} values, expected {count} as in"
                " request_id; make the columns equally long"
            )
        arrays.append(_converted(values, field, origin))
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
