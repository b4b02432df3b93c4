"""Turn the requests of a source into a trace, in memory or, whatever their number, on disk."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from conf.atomic import atomic_write, scratch_folder
from traces.error import TraceError
from traces.table.columns import SCHEMA, conform
from traces.table.digest import content_digest, streamed_digest
from traces.table.duplicates import Names
from traces.table.external_sort import Runs, Spool, regrouped
from traces.table.limits import Limits
from traces.table.trace import Trace, check_notes, write_tables
from traces.table.validation import Origin, check_cells, check_span, check_text, check_times, repeated

ORDER_ONLY = "the order of the rows, a second apart; not times: needs an arrival process"
"""The note on arrivals of a source that has an order and no times."""

ROWS = 1 << 16
"""Rows of a batch, at most: what sources hand over at once."""

Tables = Iterator[pa.Table]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some requests of a source, in its own order.

    Attributes:
        columns: canonical name -> (n,) cells; without arrival_s; without request_id, requests are
            named after the numbers of their rows.
        times: (n,) arrivals as the source has them: float64 seconds, or UTC timestamps in microseconds.
        origin: how to name the file, its rows and columns.
        relative: whether times are counted from the start of the trace already, and so never negative.
    """

    columns: Mapping[str, Any]
    times: Any
    origin: Origin
    relative: bool = False


def own_clock(tables: Tables) -> Tables:
    """Arrivals as the source has them."""
    for table in tables:
        yield arriving(table, table.column("time"))


def since_earliest(tables: Tables) -> Tables:
    """Arrivals counted from the first."""
    first: Any = None
    for table in tables:
        times = table.column("time")
        if pa.types.is_timestamp(times.type):
            ticks = times.cast(pa.int64()).to_numpy()
            first = ticks[0] if first is None else first
            yield arriving(table, (ticks - first) / 1e6)
        else:
            seconds = times.to_numpy()
            first = seconds[0] if first is None else first
            yield arriving(table, seconds - first)


def arriving(table: pa.Table, arrival_s: npt.NDArray[np.float64] | pa.ChunkedArray) -> pa.Table:
    """`table` with its arrivals, (n,) seconds since the start of the trace."""
    column = pa.array(arrival_s) if isinstance(arrival_s, np.ndarray) else arrival_s
    return table.set_column(1, SCHEMA.field("arrival_s"), column)


@dataclass(slots=True, kw_only=True)
class Reading:
    """A source that has been opened: its requests in batches, to be read once.

    Attributes:
        where: the file's name, for error messages.
        name: what reports call the trace.
        source: where it came from, in words.
        batches: the requests, in the source's order.
        notes: JSON-able facts about the trace; complete once the batches are read and settled. Rows of the source
            that are no request of the trace are counted in `skipped`, by reason.
        settle: from rows in order of their column `time` to the same rows (or the first of them) with
            their arrival_s, in the same order.
        limits: how long a text may be.
    """

    where: str
    name: str
    source: str
    batches: Iterator[Batch]
    notes: dict[str, Any] = field(default_factory=dict)
    settle: Callable[[Tables], Tables] = own_clock
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Written:
    """A trace that was written to disk: `requests` rows over `span_s` seconds at `path`.

    Attributes:
        skipped: rows of the source that are not in it, by reason.
    """

    path: Path
    requests: int
    span_s: float
    digest: str
    skipped: Mapping[str, int] = field(default_factory=dict)


def gather(reading: Reading) -> Trace:
    """Read a source into memory.

    Raises:
        TraceError: a cell is not valid (see `traces.table.trace.validate`), a text is too long, two
            requests have one name, there are no requests; and whatever the source raises.
    """
    table = pa.concat_tables(_settled(reading, None))
    check_notes(reading.notes, reading.where)
    return Trace(
        table=table, name=reading.name, source=reading.source, digest=content_digest(table), notes=reading.notes
    )


def store(reading: Reading, path: Path) -> Written:
    """Read a source and write it as a trace, in memory that does not grow with the number of requests.

    What is on the way is kept in a temporary folder beside `path`: about three times what the requests
    take unpacked. The file appears once it is whole. `traces.table.trace.read` of it gives what `gather` of
    the same source gives.

    Raises:
        TraceError: as `gather`, or the path cannot be written.
    """
    with atomic_write(path, TraceError) as temporary, scratch_folder(path) as folder:
        spool = Spool(folder / "settled", SCHEMA)
        span = Span()
        for table in _settled(reading, folder):
            span.add(table.column("arrival_s"))
            spool.append(table)
        spool.close()
        check_notes(reading.notes, reading.where)
        digest = streamed_digest(SCHEMA, spool.rows, spool.column)
        write_tables(
            temporary,
            regrouped(spool.tables()),
            name=reading.name,
            source=reading.source,
            notes=reading.notes,
            digest=digest,
        )
    return Written(path, spool.rows, span.last_s - span.first_s, digest, reading.notes.get("skipped", {}))


@dataclass(slots=True)
class Span:
    """The first and the last arrival seen, seconds."""

    first_s: float = np.inf
    last_s: float = 0.0

    def add(self, arrival_s: pa.ChunkedArray) -> None:
        """Take note of sorted arrivals that follow those before."""
        self.first_s = min(self.first_s, arrival_s[0].as_py())
        self.last_s = arrival_s[-1].as_py()


def _settled(reading: Reading, folder: Path | None) -> Tables:
    """The source's requests, checked, in order of arrival, with the columns of `SCHEMA`."""
    runs = Runs("time", folder)
    names = Names(None if folder is None else folder / "names")
    origin = Origin(reading.where)
    for batch in reading.batches:
        if len(batch.times):
            origin = batch.origin
            runs.add(_checked(batch, reading, names))
    if not runs.rows:
        raise TraceError(f"{reading.where}: found no rows, expected at least one request; name another file")
    repeat = names.repeat(lambda: (table.select(["request_id", "row"]) for table in runs.tables()))
    if repeat is not None:
        raise repeated(*repeat, origin)
    first: int | None = None
    for table in reading.settle(runs.tables()):
        if first is None:
            first = table.column("row")[0].as_py()
        check_span(table.column("arrival_s"), table.column("row"), first, origin)
        yield table.select(SCHEMA.names)


def _checked(batch: Batch, reading: Reading, names: Names) -> pa.Table:
    count, origin = len(batch.times), batch.origin
    rows = np.arange(count) if origin.rows is None else origin.rows
    columns = dict(batch.columns)
    unnamed = "request_id" not in columns
    if unnamed:
        columns["request_id"] = pa.array(rows).cast(pa.string())
    times = pa.chunked_array([batch.times]) if isinstance(batch.times, pa.Array) else batch.times
    check_times(times, origin, relative=batch.relative)
    table = conform({**columns, "arrival_s": pa.repeat(0.0, count)}, origin)
    check_cells(table, origin)
    check_text(table, origin, reading.limits.max_prompt_bytes)
    if not unnamed:
        names.add(table.column("request_id"))
    return table.append_column("time", times).append_column("row", pa.array(rows, pa.int64()))


def untimed(count: int, first: int) -> pa.Array:
    """Arrivals that only state an order, (count,) seconds: request i at i seconds, from `first` on."""
    return pa.array(np.arange(first, first + count, dtype=np.float64))


def slices(table: pa.Table, rows: int = ROWS) -> Tables:
    """The same rows in pieces of at most `rows`."""
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)
