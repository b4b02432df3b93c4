"""Any table of requests as delimited text (CSV, TSV), plain or gzipped, with a map of its columns."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from traces.columns import SCHEMA
from traces.error import TraceError
from traces.intake import ORDER_ONLY, Batch, Reading, gather, own_clock, since_earliest, slices, untimed
from traces.opening import Limits, opened
from traces.schema import Trace
from traces.sources.cells import Clock, ClockName, Timestamps, integers
from traces.validation import Origin, shown

LEAST_BLOCK = 1 << 22
"""Bytes of a file that are parsed at once, at least."""


@dataclass(slots=True, kw_only=True)
class Csv:
    """A delimited text file with a header, UTF-8, plain or gzipped.

    Columns that carry a canonical name (see `traces.columns.SCHEMA`) need no mapping; those that are
    neither mapped nor canonical are left out, and named in the notes. An empty cell is null, an empty line
    is no row. The rows are sorted by arrival, ties in the file's order. A missing request_id becomes the
    number of the row.

    Without a column of arrivals, request i arrives at i seconds: an order and no times, which the notes
    say, so give such a trace an arrival process.

    Args:
        path: the file; a leading ~ is the home folder.
        columns: canonical name -> the file's name for it.
        delimiter: one character between cells.
        quote: the character around cells that contain the delimiter; None if quotes mean nothing.
        list_separator: what separates the names in controlnets and loras.
        arrival: how arrivals are written. "seconds" of the trace's own clock, kept as they are; "unix"
            seconds or ISO 8601 "timestamp", measured from the earliest; "auto" reads numbers as
            seconds and anything else as timestamps. Timestamps state their zone in all rows, and are
            brought to UTC, or in none, and are taken as UTC.
        name: what reports call the trace; the file's name if None.
        limits: how much is read.

    Raises:
        TraceError: the delimiter or quote is not one character, or `arrival` is another word.
    """

    path: str
    columns: dict[str, str] = field(default_factory=dict)
    delimiter: str = ","
    quote: str | None = '"'
    list_separator: str = ";"
    arrival: ClockName = "auto"
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for setting, value in (("delimiter", self.delimiter), ("quote", self.quote or '"')):
            if len(value) != 1 or not value.isascii() or value in "\r\n\0":
                raise TraceError(f"{self.path}: {setting}={value!r}, expected one ASCII character")
        if self.arrival not in ("auto", "seconds", "unix", "timestamp"):
            raise TraceError(f"{self.path}: arrival={self.arrival!r}, expected auto, seconds, unix or timestamp")

    def load(self, rng: np.random.Generator) -> Trace:
        """Read the file into memory; nothing is random.

        Raises:
            TraceError: the file is missing, empty, cut short or not UTF-8; a mapped column is missing;
                a cell is not what its column takes; see also `traces.schema.validate`.
        """
        return gather(self.read(rng))

    def read(self, rng: np.random.Generator) -> Reading:
        """Open the file; nothing is random. Raises TraceError as `load`, some of it when the batches are read."""
        path = Path(self.path).expanduser()
        header = read_header(path, self.limits, delimiter=self.delimiter, quote=self.quote)
        names = self._names(header, path)
        timed = "arrival_s" in names
        notes: dict[str, Any] = {"file": path.name, "columns": dict(names)}
        left_out = [name for name in header if name not in names.values()]
        if left_out:
            notes["columns_left_out"] = left_out
        if not timed:
            notes["arrival_s"] = ORDER_ONLY
        clock = Clock(self.arrival, Timestamps())
        tables = read_delimited(path, self.limits, header, delimiter=self.delimiter, quote=self.quote)
        batches = self._batches(tables, Origin(str(path), names), clock)
        reading = Reading(
            where=str(path),
            name=self.name or path.name.split(".")[0],
            source=f"delimited text, {path.name}",
            batches=batches,
            notes=notes,
            limits=self.limits,
        )
        if timed:
            # whether "auto" means a clock of its own is known once the first cell was read
            reading.settle = lambda sorted_: (own_clock if clock.name == "seconds" else since_earliest)(sorted_)
        return reading

    def _batches(self, tables: Iterator[pa.Table], origin: Origin, clock: Clock) -> Iterator[Batch]:
        first = 0
        for table in tables:
            rows = np.arange(first, first + table.num_rows)
            first += table.num_rows
            here = Origin(origin.where, origin.columns, rows)
            cells = {name: self._cells(table.column(source), name, here) for name, source in origin.columns.items()
                     if name != "arrival_s"}  # fmt: skip
            if "arrival_s" in origin.columns:
                times = clock.read(table.column(origin.columns["arrival_s"]), here)
            else:
                times = untimed(table.num_rows, int(rows[0]))
            yield Batch(cells, times, here, relative=clock.name == "seconds")

    def _cells(self, cells: pa.ChunkedArray, name: str, origin: Origin) -> pa.ChunkedArray | pa.Array:
        kind = SCHEMA.field(name).type
        if pa.types.is_integer(kind):
            return integers(cells, origin, name)
        if pa.types.is_list(kind):
            parts = [
                None if cell is None else [part.strip() for part in cell.split(self.list_separator) if part.strip()]
                for cell in cells.to_pylist()
            ]
            return pa.array(parts, pa.list_(pa.string()))
        return cells

    def _names(self, header: list[str], path: Path) -> dict[str, str]:
        for name, source in self.columns.items():
            if name not in SCHEMA.names:
                raise TraceError(
                    f"{path}: cannot map {source!r} to {name!r}, expected a column of a trace:"
                    f" {', '.join(SCHEMA.names)}"
                )
            require_column(header, source, str(path))
        own = {name: name for name in header if name in SCHEMA.names}
        names = {**own, **self.columns}
        if not names:
            raise TraceError(
                f"{path}: found the columns {shown(', '.join(header))}, none of which is a column of a trace;"
                " map some with canonical=source"
            )
        return names


def read_header(path: Path, limits: Limits, *, delimiter: str = ",", quote: str | None = '"') -> list[str]:
    """The names of the columns of a delimited file.

    Raises:
        TraceError: the file cannot be opened (see `traces.opening.opened`), or its first line is
            empty, not UTF-8, or names a column twice.
    """
    with opened(path, limits) as stream:
        try:
            line = stream.readline(_block_bytes(limits)).decode()
        except UnicodeDecodeError as error:
            raise TraceError(f"{path}: the header is not UTF-8 text ({error.reason}); convert the file") from error
    if not line:
        raise TraceError(f"{path}: cannot be read as delimited text: it is empty; name another file")
    try:
        names = (
            line.rstrip("\r\n").split(delimiter)
            if quote is None
            else next(csv.reader([line], delimiter=delimiter, quotechar=quote), [])
        )
    except csv.Error as error:
        raise TraceError(f"{path}: the header cannot be read ({error}); give the columns plain names") from error
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise TraceError(f"{path}: the header names column {shown(repr(name))} twice; rename one")
    return names


def read_delimited(
    path: Path, limits: Limits, header: list[str], *, delimiter: str = ",", quote: str | None = '"'
) -> Iterator[pa.Table]:
    """Read a delimited file, plain or gzipped by its content, with every column as text; "" is null.

    Args:
        path: the file.
        limits: how much is read.
        header: what `read_header` gave for the same file and dialect.
        delimiter, quote: see `Csv`.

    Yields:
        The rows in order, at most `traces.intake.ROWS` at a time.

    Raises:
        TraceError: the file cannot be opened (see `traces.opening.opened`), is cut short or not UTF-8,
            has a row of another length than its header or one that is longer than the limits allow,
            or a quote that is never closed.
    """
    parse = pa.csv.ParseOptions(delimiter=delimiter, quote_char=quote or False, newlines_in_values=quote is not None)
    convert = pa.csv.ConvertOptions(
        column_types={name: pa.string() for name in header}, null_values=[""], strings_can_be_null=True
    )
    # one thread, because only then do errors name the row
    read = pa.csv.ReadOptions(use_threads=False, block_size=_block_bytes(limits))
    done = 0
    last: pa.Table | None = None
    with opened(path, limits) as stream:
        quotes = _Quotes(stream, quote)
        try:
            reader = pa.csv.open_csv(quotes, read, parse, convert)
            if reader.schema.names != header:
                raise TraceError(f"{path}: the header spans several lines or is empty; give the columns plain names")
            for batch in reader:
                for last in slices(pa.Table.from_batches([batch])):
                    yield last
                    done += last.num_rows
        except pa.ArrowException as error:
            raise _unparsed(str(error), path, done, header, delimiter) from error
    if quotes.odd and last is not None and "\n" in (last.column(len(header) - 1)[-1].as_py() or ""):
        raise TraceError(
            f"{path}: row {done - 1}: found a quote that is opened and never closed, expected a second {quote};"
            " close it, or say that quotes mean nothing (--no-quotes)"
        )


class _Quotes:
    """Passes bytes through and counts quotes: Arrow takes an open quote as closed by the end of the file."""

    def __init__(self, stream: Any, quote: str | None) -> None:
        self._stream = stream
        self._quote = (quote or "").encode()
        self.odd = False
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(size)
        if self._quote:
            self.odd ^= data.count(self._quote) % 2 == 1
        return data

    def close(self) -> None:
        self.closed = True

    def readable(self) -> bool:
        return True


def _block_bytes(limits: Limits) -> int:
    return max(LEAST_BLOCK, 4 * limits.max_prompt_bytes)


def _unparsed(message: str, path: Path, done: int, header: list[str], delimiter: str) -> TraceError:
    # Arrow counts rows from 1, and the header is one
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", message, re.DOTALL)
    if ragged:
        return TraceError(
            f"{path}: row {int(ragged[1]) - 2}: found {ragged[3]} cells ({shown(ragged[4], 60)}), expected {ragged[2]}"
            f" as in the header, with {delimiter!r} between them; fix or drop the row"
        )
    if "straddl" in message:
        return TraceError(
            f"{path}: after row {done - 1}: found a row longer than the text that a cell may hold; raise"
            " --max-prompt-bytes, or close the quote that is open there"
        )
    bad = re.search(r"In CSV column #(\d+): Row #(\d+): .*UTF-?8", message)
    if bad:
        name = shown(header[int(bad[1])])
        return TraceError(
            f"{path}: row {int(bad[2]) - 2}, column {name}: found bytes that are not UTF-8, expected"
            " UTF-8 text; convert the file, for example with iconv"
        )
    return TraceError(
        f"{path}: cannot be read as delimited text ({shown(message)}), expected UTF-8 with {delimiter!r} between"
        " cells; convert the file, or fetch it again if it is cut short"
    )


def require_column(header: list[str], name: str, where: str) -> None:
    """Raise TraceError unless the file has the column."""
    if name not in header:
        raise TraceError(
            f"{where}: column {name!r} is missing, found {shown(', '.join(header))}; check the file or the map"
        )
