"""Tables of requests: delimited text, JSON records, Parquet, Arrow and pandas frames, through one reader."""

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.clock import PER_SECOND, ClockName, DateOrder
from mezzotint.traces.formats.opening import open_table
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.interpret import SAID, Interpretation
from mezzotint.traces.table.ingest import Reading, store
from mezzotint.traces.table.limits import PARQUET, Limits, regular_file
from mezzotint.traces.table.trace import METADATA_KEY, read
from mezzotint.traces.table.validation import check_ranges, excerpt

IMPORT_FIRST = "make a trace of the file with it, and name that trace here"
"""What to do where a command takes a table and none of the options that say how to read it."""


@dataclass(slots=True, kw_only=True)
class Table(Streamed):
    """A table of requests of your own: CSV, TSV, JSON lines, a JSON array, Parquet or Arrow, plain or packed.

    The content tells the kind, not the suffix: delimited text with a header, JSON records without nesting, Parquet or
    Arrow IPC. Delimiters are comma, semicolon, tab and bar, encodings UTF-8, UTF-16 with its mark and Windows-1252.
    Text may be packed with gzip, zstd or zip.

    Columns go by their usual names, and times by their size and the unit in the column's name. What was taken, left
    out and guessed is printed. A column that looks like one that is missing must be mapped or left out. An empty cell
    is null. The rows are sorted by arrival, ties in the file's order. A missing request_id becomes the number of the
    row.

    Without a column of arrivals, request i arrives at i seconds: an order and no times. The notes say so; choose an
    arrival process for such a trace.

    Args:
        path: the file; a leading ~ is the home folder.
        columns: a column of a trace (or size, fps, video_s) = the file's name of that column, or nothing for none; may
            be repeated.
        leave_out: a column that is not wanted, so that it is not asked about; may be repeated.
        units: the unit of a column of times: ns, us, ms, s, min, h or d; may be repeated.
        delimiter: one character between cells; guessed if not given. A tab may be written as backslash and t.
        quote: the character around cells that contain the delimiter.
        no_quotes: treat quotes as plain characters, whatever the quote is.
        list_separator: separator of the names in controlnets and loras.
        arrival: how arrivals are written. "seconds" are of the trace's own clock and kept. "unix", "unix-ms",
            "unix-us" and "unix-ns" are seconds, milliseconds, microseconds and nanoseconds since 1970, "timestamp"
            dates; they count from the earliest. "auto" decides by the size of the numbers. Dates have a zone in all
            rows, or in none (UTC).
        dates: what comes first in dates such as 3/11/2026, if no row tells.

    Raises TraceError if the delimiter or quote is not one character.
    """

    NAME: ClassVar = "table"

    path: str | Path
    columns: Annotated[dict[str, str], typer.Option("--map", metavar="MEANING=COLUMN")] = field(default_factory=dict)
    leave_out: Annotated[list[str], typer.Option("--leave-out", metavar="COLUMN")] = field(default_factory=list)
    units: Annotated[dict[str, str], typer.Option("--unit", metavar="COLUMN=UNIT")] = field(default_factory=dict)
    delimiter: str | None = None
    quote: str | None = '"'
    no_quotes: bool = False
    list_separator: str = ";"
    arrival: ClockName = "auto"
    dates: Annotated[DateOrder | None, typer.Option("--dates", metavar="month-first|day-first")] = None
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.delimiter = {r"\t": "\t"}.get(self.delimiter or "", self.delimiter)
        self.quote = None if self.no_quotes else self.quote
        self.leave_out = [self.leave_out] if isinstance(self.leave_out, str) else self.leave_out
        for name, pairs in (("columns", self.columns), ("units", self.units)):
            if not isinstance(pairs, Mapping):
                raise TraceError(f"{self.path}: {name}: found {pairs!r}, expected a mapping; give a dict")
        if not self.list_separator:
            raise TraceError(f"{self.path}: list_separator='', expected a separator of names, such as ';'")
        for setting, value in (
            ("delimiter", self.delimiter or ","),
            ("quote", '"' if self.quote is None else self.quote),
        ):
            if len(value) != 1 or not value.isascii() or value in "\r\n\0":
                raise TraceError(f"{self.path}: {setting}={value!r}, expected one ASCII character")
        if self.dates not in (None, *get_args(DateOrder)):
            raise TraceError(f"{self.path}: dates={self.dates!r}, expected one of {', '.join(get_args(DateOrder))}")
        for column, unit in self.units.items():
            if unit not in PER_SECOND:
                raise TraceError(f"{self.path}: --unit {column}={unit}: expected one of {', '.join(PER_SECOND)}")

    def read(self, rng: np.random.Generator) -> Reading:
        check_ranges(str(self.path), self)
        check_ranges("limits", self.limits)
        path = Path(self.path).expanduser()
        table, kind = open_table(path, self.limits, self.delimiter, self.quote)
        return self.reading(table, kind)

    def reading(self, table: pa.Table, kind: str, numbers: npt.NDArray[np.int64] | None = None) -> Reading:
        """Return the reading of an opened table.

        Args:
            kind: how it was opened, in words.
            numbers: (n,) numbers of its rows in the file, if rows were skipped.
        """
        return Interpretation(self, table, kind, numbers).reading()


@contextmanager
def options_elsewhere(how: str, *own: str) -> Iterator[None]:
    """Say in an error whose remedy is an option of `mezzotint trace import table` how a caller without it goes on.

    Args:
        how: what the caller has in its place, or what to do.
        own: options that the caller has.
    """
    try:
        yield
    except TraceError as error:
        named = re.findall(r"(?<![\w-])--[a-z][a-z-]+", re.sub(r"`[^`]*`", "", str(error)))
        if set(named) <= {*own}:
            raise
        raise TraceError(f"{error} (an option of `mezzotint trace import table`; {how})") from error


def is_trace(path: Path) -> bool:
    """Return True if a file is Parquet and written by `mezzotint trace`, or so damaged that none can tell.

    Raises TraceError if the file cannot be opened.
    """
    regular_file(path)
    with path.open("rb") as file:
        if file.read(len(PARQUET)) != PARQUET:
            return False
    try:
        with pa.OSFile(str(path)) as file:
            return METADATA_KEY in (pq.read_schema(file).metadata or {})
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return True


def import_table(path: Path, folder: Path) -> Path:
    """Return the trace of a file: the file itself if it is one, else the trace made of it in ``folder``, made once.

    Prints what was taken of a table. Raises TraceError as `Table`.
    """
    if is_trace(path):
        return path.resolve()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    target = folder / f"{path.stem}-{digest}.parquet"
    if target.is_file():
        trace = read(target)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        with options_elsewhere(IMPORT_FIRST):
            trace = store(Table(path=path).read(np.random.default_rng(0)), target)
    say(trace.notes, path)
    return target.resolve()


def say(notes: Mapping[str, Any], path: Path) -> None:
    """Print what was taken of a table."""
    for line in notes.get(SAID, []):
        print(f"{excerpt(path.name)}: {line}", file=sys.stderr)
