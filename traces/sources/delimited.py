"""Any table of requests as delimited text (CSV, TSV), plain or gzipped, with a map of its columns."""

import csv
import gzip
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from traces.error import TraceError
from traces.schema import SCHEMA, Origin, Trace, make
from traces.validation import shown

LONGEST_CELL = 1 << 24
"""Bytes of the longest row that can be read."""

Clock = Literal["auto", "seconds", "unix", "timestamp"]


@dataclass(slots=True, kw_only=True)
class Csv:
    """A delimited text file with a header, UTF-8, plain or gzipped.

    Columns that carry a canonical name (see `traces.schema.SCHEMA`) need no mapping; those that are
    neither mapped nor canonical are left out, and named in the notes. An empty cell is null. The rows
    are sorted by arrival, ties in the file's order. A missing request_id becomes the number of the row.

    Without a column of arrivals, request i arrives at i seconds: an order and no times, which the notes
    say, so give such a trace an arrival process.

    Args:
        path: the file; a leading ~ is the home folder.
        columns: canonical name -> the file's name for it.
        delimiter: one character between cells.
        quote: the character around cells that contain the delimiter; None if quotes mean nothing.
        list_separator: what separates the names in controlnets and loras.
        arrival: how arrivals are written. "seconds" of the trace's own clock, kept as they are; "unix"
            seconds or ISO 8601 "timestamp" (without a zone: UTC), measured from the earliest;
            "auto" reads numbers as seconds and anything else as timestamps.
        name: what reports call the trace; the file's name if None.

    Raises:
        TraceError: the delimiter or quote is not one character, or `arrival` is another word.
    """

    path: str
    columns: dict[str, str] = field(default_factory=dict)
    delimiter: str = ","
    quote: str | None = '"'
    list_separator: str = ";"
    arrival: Clock = "auto"
    name: str | None = None

    def __post_init__(self) -> None:
        for setting, value in (("delimiter", self.delimiter), ("quote", self.quote or '"')):
            if len(value) != 1 or not value.isascii() or value in "\r\n":
                raise TraceError(f"{self.path}: {setting}={value!r}, expected one ASCII character")
        if self.arrival not in ("auto", "seconds", "unix", "timestamp"):
            raise TraceError(f"{self.path}: arrival={self.arrival!r}, expected auto, seconds, unix or timestamp")

    def load(self, rng: np.random.Generator) -> Trace:
        """Read the file; nothing is random.

        Raises:
            TraceError: the file is missing, empty, cut short or not UTF-8; a mapped column is missing;
                a cell is not what its column takes; see also `traces.schema.validate`.
        """
        path = Path(self.path).expanduser()
        table = read_delimited(path, delimiter=self.delimiter, quote=self.quote)
        names = self._names(table, path)
        origin = Origin(str(path), names)
        columns: dict[str, Any] = {}
        for name, source in names.items():
            kind = SCHEMA.field(name).type
            cells = table.column(source)
            if name == "arrival_s":
                columns[name] = arrivals(cells, self.arrival, origin)
            elif pa.types.is_integer(kind):
                columns[name] = integers(cells, origin, name)
            elif pa.types.is_list(kind):
                columns[name] = self._lists(cells)
            else:
                columns[name] = cells
        notes: dict[str, Any] = {"file": path.name, "columns": dict(names)}
        left_out = [name for name in table.column_names if name not in names.values()]
        if left_out:
            notes["columns_left_out"] = left_out
        if "arrival_s" not in columns:
            columns["arrival_s"] = np.arange(table.num_rows, dtype=np.float64)
            notes["arrival_s"] = "the order of the rows, a second apart; not times: needs an arrival process"
        columns.setdefault("request_id", pa.array(np.arange(table.num_rows)).cast(pa.string()))
        source = f"delimited text, {path.name}"
        return make(columns, name=self.name or path.name.split(".")[0], source=source, notes=notes, where=origin)

    def _names(self, table: pa.Table, path: Path) -> dict[str, str]:
        for name, source in self.columns.items():
            if name not in SCHEMA.names:
                raise TraceError(
                    f"{path}: cannot map {source!r} to {name!r}, expected a column of a trace:"
                    f" {', '.join(SCHEMA.names)}"
                )
            require_column(table, source, str(path))
        own = {name: name for name in table.column_names if name in SCHEMA.names}
        names = {**own, **self.columns}
        if not names:
            raise TraceError(
                f"{path}: found the columns {', '.join(table.column_names)}, none of which is a column of a trace;"
                " map some with canonical=source"
            )
        return names

    def _lists(self, cells: pa.ChunkedArray) -> pa.Array:
        parts = [
            None if cell is None else [part.strip() for part in cell.split(self.list_separator) if part.strip()]
            for cell in cells.to_pylist()
        ]
        return pa.array(parts, pa.list_(pa.string()))


def read_delimited(path: Path, *, delimiter: str = ",", quote: str | None = '"') -> pa.Table:
    """Read a delimited file, plain or gzipped by its content, with every column as text; "" is null.

    Raises:
        TraceError: the file is missing, empty, cut short, not UTF-8, has a row of another length than
            its header, or a header that names a column twice.
    """
    if path.is_dir():
        raise TraceError(f"{path}: is a folder, expected a file; name the file inside it")
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if zipped else path.open("rb") as stream:
            header = stream.readline().decode("utf-8-sig")
        parse = pa.csv.ParseOptions(
            delimiter=delimiter,
            quote_char=quote or False,
            newlines_in_values=quote is not None,
        )
        names = _header(header, delimiter, quote)
        convert = pa.csv.ConvertOptions(
            column_types={name: pa.string() for name in names}, null_values=[""], strings_can_be_null=True
        )
        # one thread, because only then do errors name the row
        read = pa.csv.ReadOptions(use_threads=False, block_size=LONGEST_CELL)
        with pa.input_stream(str(path), compression="gzip" if zipped else None) as stream:
            table = pa.csv.read_csv(stream, read, parse, convert)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file; check the path") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: the header is not UTF-8 text ({error.reason}); convert the file") from error
    except (pa.ArrowException, EOFError, OSError, zlib.error) as error:
        raise TraceError(
            f"{path}: cannot be read as delimited text ({shown(str(error))}), expected UTF-8 with"
            f" {delimiter!r} between cells; convert the file, or fetch it again if it is cut short"
        ) from error
    if table.column_names != names:
        raise TraceError(f"{path}: the header spans several lines or is empty; give the columns plain names")
    repeated = [name for name in table.column_names if table.column_names.count(name) > 1]
    if repeated:
        raise TraceError(f"{path}: the header names column {repeated[0]!r} twice; rename one")
    return table


def _header(line: str, delimiter: str, quote: str | None) -> list[str]:
    if quote is None:
        return line.rstrip("\r\n").split(delimiter)
    return next(csv.reader([line], delimiter=delimiter, quotechar=quote), [])


def require_column(table: pa.Table, name: str, where: str) -> None:
    """Raise TraceError unless `table` has the column."""
    if name not in table.column_names:
        raise TraceError(
            f"{where}: column {name!r} is missing, found {', '.join(table.column_names)}; check the file or the map"
        )


def integers(cells: pa.ChunkedArray, origin: Origin, column: str) -> pa.ChunkedArray:
    """Text as int64, (n,); "50.0" is 50. Raises TraceError naming the first cell that is no whole number."""
    trimmed = pc.replace_substring_regex(pc.utf8_trim_whitespace(cells), r"\.0*$", "")
    return _cast(trimmed, cells, pa.int64(), "a whole number", origin, column)


def numbers(cells: pa.ChunkedArray, origin: Origin, column: str) -> pa.ChunkedArray:
    """Text as float64, (n,). Raises TraceError naming the first cell that is no number."""
    return _cast(pc.utf8_trim_whitespace(cells), cells, pa.float64(), "a number", origin, column)


def _cast(
    trimmed: pa.ChunkedArray,
    cells: pa.ChunkedArray,
    kind: pa.DataType,
    expected: str,
    origin: Origin,
    column: str,
) -> pa.ChunkedArray:
    try:
        return trimmed.cast(kind)
    except pa.ArrowInvalid as error:
        for index, (text, cell) in enumerate(zip(trimmed.to_pylist(), cells.to_pylist(), strict=True)):
            try:
                pa.scalar(text).cast(kind)
            except pa.ArrowInvalid:
                raise TraceError(
                    f"{origin.cell(index, column)}: found {shown(repr(cell))}, expected {expected}; fix or drop the row"
                ) from error
        raise


def timestamps(cells: pa.ChunkedArray, origin: Origin, column: str) -> "pd.Series[pd.Timestamp]":
    """Text in ISO 8601 as UTC times, (n,), null where empty; a time without a zone is taken as UTC.

    Raises:
        TraceError: naming the first cell that is no time.
    """
    text = pd.Series(cells.to_pylist(), dtype="object")
    times = pd.to_datetime(text, utc=True, format="ISO8601", errors="coerce")
    bad = np.flatnonzero((times.isna() & text.notna()).to_numpy())
    if bad.size:
        index = int(bad[0])
        raise TraceError(
            f"{origin.cell(index, column)}: found {shown(repr(text.iloc[index]))}, expected a time such as"
            " 2022-08-14 00:45:00+00:00; fix or drop the row"
        )
    return times


def arrivals(cells: pa.ChunkedArray, clock: Clock, origin: Origin) -> pa.ChunkedArray | pa.Array:
    """Arrivals in seconds, (n,) float64, from text written as `clock` says (see `Csv`).

    Raises:
        TraceError: naming the first cell that is neither a number nor a time, as asked for.
    """
    column = "arrival_s"
    if clock == "auto":
        first = next((cell for cell in cells.to_pylist() if cell is not None), "0")
        clock = "timestamp" if ":" in first or first.strip().count("-") > 1 else "seconds"
    if clock == "timestamp":
        times = timestamps(cells, origin, column)
        since = (times - times.min()).dt.total_seconds()
        return pa.array(since.to_numpy(), from_pandas=True)
    seconds = numbers(cells, origin, column)
    return pc.subtract(seconds, pc.min(seconds)) if clock == "unix" else seconds
