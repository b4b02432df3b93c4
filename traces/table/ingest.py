"""Make a trace of the requests of a source, in memory.

Two million unsorted requests with prompts of 150 characters take 1.4 GiB at the peak.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.files.atomic import check_target
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.columns import SCHEMA, check_cells, conform
from mezzotint.traces.table.digest import content_digest
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.trace import Trace, check_notes, write
from mezzotint.traces.table.validation import Origin, check_span, check_text, check_times, check_unique

ORDER_ONLY = "the order of the rows, a second apart; not times: needs an arrival process"
"""Note on arrivals of a source that has an order and no times."""

ROWS = 1 << 16
"""Rows of a batch, at most."""

TEXT_BYTES = 1 << 25
"""Bytes of text of a batch, at most, if the source is compressed."""

WIDE = {pa.string(): pa.large_string(), pa.list_(pa.string()): pa.large_list(pa.large_string())}
"""Types of arrays limited to 2 GiB -> the same without that limit."""

Tables = Iterator[pa.Table]


@dataclass(frozen=True, slots=True)
class Batch:
    """Batch of requests of a source, in the source's order.

    Attributes:
        columns: canonical name -> (n,) cells, without arrival_s. Without request_id, requests are named after rows.
        times: (n,) arrivals as the source has them: float64 seconds, or UTC timestamps in micro- or nanoseconds.
        origin: names of the file, its rows and columns, for messages.
        relative: True if times are counted from the start of the trace, and so never negative.
    """

    columns: Mapping[str, Any]
    times: Any
    origin: Origin
    relative: bool = False


def own_clock(table: pa.Table) -> pa.Table:
    """Return `table` with the arrivals of the source's own clock."""
    return with_arrivals(table, table.column("time"))


def since_earliest(table: pa.Table) -> pa.Table:
    """Return `table` with arrivals counted from the first one."""
    times = table.column("time")
    ticks = _ticks(times)
    per_second = (1e9 if times.type.unit == "ns" else 1e6) if pa.types.is_timestamp(times.type) else 1.0
    return with_arrivals(table, (ticks - ticks[0]) / per_second)


def _ticks(times: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return timestamps as micro- or nanoseconds, and seconds unchanged."""
    return np.asarray(times.cast(pa.int64()) if pa.types.is_timestamp(times.type) else times)


def with_arrivals(table: pa.Table, arrival_s: npt.NDArray[np.float64] | pa.ChunkedArray) -> pa.Table:
    """Return `table` with its arrivals, (n,) seconds since the start of the trace."""
    column = pa.array(arrival_s) if isinstance(arrival_s, np.ndarray) else arrival_s
    return table.set_column(1, SCHEMA.field("arrival_s"), column)


@dataclass(slots=True, kw_only=True)
class Reading:
    """An opened source: its requests in batches, to be read once.

    Attributes:
        where: the file's name, for error messages.
        name, source: name of the trace in reports, and its origin in words.
        batches: the requests, in the source's order.
        notes: JSON-able facts about the trace, complete once the batches are read and settled. `skipped` counts the
            rows of the source that are not in the trace, by reason.
        settle: takes rows sorted by their column `time`, and returns them (or the first ones) with arrival_s.
        limits: bounds on the length of a text.
    """

    where: str
    name: str
    source: str
    batches: Iterator[Batch]
    notes: dict[str, Any] = field(default_factory=dict)
    settle: Callable[[pa.Table], pa.Table] = own_clock
    limits: Limits = field(default_factory=Limits)


def gather(reading: Reading) -> Trace:
    """Read a source into memory.

    Raises:
        TraceError: a cell is not valid (see `trace.make`), a text is too long, two requests have one name,
            there are no requests, or the source raises it.
    """
    origin, batches, named = Origin(reading.where), [], False
    for batch in reading.batches:
        if len(batch.times):
            origin, named = batch.origin, named or "request_id" in batch.columns
            batches.append(_checked(batch, reading))
    if not batches:
        raise TraceError(f"{reading.where}: found no rows, expected at least one request; name another file")
    table = pa.concat_tables(batches)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    del batches, table
    if named:
        check_unique(columns["request_id"], replace(origin, rows=columns["row"].to_numpy()))
    _sort(columns)
    table = reading.settle(pa.table(columns))
    check_span(table.column("arrival_s"), table.column("row"), origin)
    check_notes(reading.notes, reading.where)
    table = table.select(SCHEMA.names).cast(SCHEMA)
    return Trace(table, reading.name, reading.source, content_digest(table), reading.notes)


def store(reading: Reading, path: Path) -> Trace:
    """Read a source and write it as a trace; the file appears once it is complete.

    Raises TraceError as `gather`, or if the path cannot be written.
    """
    check_target(path, TraceError)  # before the work, not after it
    return write(gather(reading), path)


def _sort(columns: dict[str, pa.ChunkedArray]) -> None:
    """Sort the rows of (n,) columns by `time`, in place; ties keep their order.

    Columns are sorted one after another, so that only one is in memory twice.
    """
    keys = _ticks(columns["time"])
    if (keys[1:] >= keys[:-1]).all():
        return
    order = pa.array(np.argsort(keys, kind="stable"))
    for name in list(columns):
        pa.default_memory_pool().release_unused()
        kind = columns[name].type
        column = columns.pop(name).cast(WIDE.get(kind, kind)).combine_chunks()
        pieces = (column.take(order.slice(start, ROWS)) for start in range(0, len(order), ROWS))
        columns[name] = pa.chunked_array([piece.cast(kind) for piece in pieces], kind)


def _checked(batch: Batch, reading: Reading) -> pa.Table:
    count, origin = len(batch.times), batch.origin
    rows = np.arange(count) if origin.rows is None else origin.rows
    columns = {"request_id": pa.array(rows).cast(pa.string()), **batch.columns}
    times = pa.chunked_array([batch.times]) if isinstance(batch.times, pa.Array) else batch.times
    check_times(times, origin, relative=batch.relative)
    table = conform({**columns, "arrival_s": pa.repeat(0.0, count)}, origin)
    check_cells(table, origin)
    check_text(table, origin, reading.limits.max_prompt_bytes)
    return table.append_column("time", times).append_column("row", pa.array(rows, pa.int64()))


def order_times(count: int, first: int) -> pa.Array:
    """Return arrivals that only state an order, (count,) seconds: request i at i seconds, from `first` on."""
    return pa.array(np.arange(first, first + count, dtype=np.float64))


def slices(table: pa.Table) -> Tables:
    """Yield the table in slices of at most `ROWS` rows."""
    for start in range(0, table.num_rows, ROWS):
        yield table.slice(start, ROWS)
