"""Read delimited text (CSV, TSV) a piece at a time, every column as text."""

import csv
import re
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from traces.error import TraceError
from traces.table.ingest import slices
from traces.table.limits import Limits, open_bounded
from traces.table.validation import shown

LEAST_BLOCK = 1 << 22
"""Bytes of a file that are parsed at once, at least."""

RELEASE_S = 5.0
"""Longest wait for Arrow's threads to release what they read from."""


def read_header(path: Path, limits: Limits, *, delimiter: str = ",", quote: str | None = '"') -> list[str]:
    """The names of the columns of a delimited file.

    Raises:
        TraceError: the file cannot be opened (see `traces.table.limits.open_bounded`), or its first line is
            empty, not UTF-8, or names a column twice.
    """
    with open_bounded(path, limits) as stream:
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
        The rows in order, at most `traces.table.ingest.ROWS` at a time.

    Raises:
        TraceError: the file cannot be opened (see `traces.table.limits.open_bounded`), is cut short or not UTF-8,
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
    with open_bounded(path, limits) as stream:
        source = _Source(stream, quote)
        try:
            for batch in _batches(source, header, path, read, parse, convert):
                for last in slices(pa.Table.from_batches([batch])):
                    yield last
                    done += last.num_rows
        except pa.ArrowException as error:
            source.check()
            raise _unparsed(str(error), path, done, header, delimiter) from error
        finally:
            source.wait_released()
        source.check()
    if source.open_quote and last is not None and "\n" in (last.column(len(header) - 1)[-1].as_py() or ""):
        raise TraceError(
            f"{path}: row {done - 1}: found a quote that is opened and never closed, expected a second {quote};"
            " close it, or say that quotes mean nothing (--no-quotes)"
        )


def _batches(
    source: "_Source",
    header: list[str],
    path: Path,
    read: pa.csv.ReadOptions,
    parse: pa.csv.ParseOptions,
    convert: pa.csv.ConvertOptions,
) -> Iterator[pa.RecordBatch]:
    """Parse `source`, and drop Arrow's reader in the end, whatever the end is."""
    reader = pa.csv.open_csv(source.lend(), read, parse, convert)
    try:
        if reader.schema.names != header:
            raise TraceError(f"{path}: the header spans several lines or is empty; give the columns plain names")
        yield from reader
    finally:
        del reader  # an error's traceback would keep it


class _Source:
    """A stream that Arrow reads from threads of its own, with a count of its quotes.

    Arrow takes an open quote as closed by the end of the file, hence the count. After an error, a thread of Arrow's may
    be the last to hold the Python object that it reads from. A thread that releases it while the interpreter ends
    aborts the process, so `wait_released` has to follow every reading.
    """

    def __init__(self, stream: Any, quote: str | None) -> None:
        self._stream = stream
        self._quote = (quote or "").encode()
        self._error: Exception | None = None
        self._lent: list[weakref.ref[Any]] = []
        self.open_quote = False

    def lend(self) -> "_Lent":
        """Return a file for Arrow to read from; nothing else may keep it."""
        lent: _Lent = self._noted(_Lent(self._read))
        return lent

    def check(self) -> None:
        """Raise the error of the stream, if there was one."""
        if self._error is not None:
            raise self._error

    def wait_released(self) -> None:
        """Wait until Arrow holds neither the file nor a block of it."""
        deadline = time.monotonic() + RELEASE_S
        while any(each() is not None for each in self._lent) and time.monotonic() < deadline:
            time.sleep(0.001)

    def _read(self, size: int = -1) -> Any:
        data = self._data(size)
        if self._quote:
            self.open_quote ^= data.count(self._quote) % 2 == 1
        return self._noted(np.frombuffer(data, np.uint8))  # unlike bytes, it tells when it is released

    def _data(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except Exception as error:  # `check` raises it
            self._error = error
            return b""
        return data

    def _noted(self, lent: Any) -> Any:
        self._lent = [each for each in self._lent if each() is not None] + [weakref.ref(lent)]
        return lent


class _Lent:
    """A file that Arrow reads from; no frame of a reading holds it, so the traceback of an error does not."""

    closed = False

    def __init__(self, read: Callable[[int], Any]) -> None:
        self.read = read

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
