"""Read delimited text (CSV, TSV) a piece at a time, every column as text."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.ingest import slices
from mezzotint.traces.table.limits import GZIP, Limits, open_bounded, unchanged
from mezzotint.traces.table.validation import excerpt

MIN_BLOCK = 1 << 22
"""Bytes parsed at once, at least."""

MAX_BLOCK = (1 << 31) - 1
"""Bytes parsed at once, at most: Arrow counts them in 32 bits."""


def read_delimited(
    path: Path, limits: Limits, *, delimiter: str = ",", quote: str | None = '"'
) -> tuple[list[str], Iterator[pa.Table]]:
    """Return the names of the columns of a delimited file, plain or gzipped, and its rows as text; "" is null.

    Rows come in order, at most `mezzotint.traces.table.ingest.ROWS` at a time.

    Raises TraceError if the file cannot be opened (see `limits.open_bounded`), or its header is empty, not UTF-8, or
    names a column twice. The rows raise it if the file is truncated or not UTF-8, a row has another length than the
    header or exceeds the limits, or a quote is never closed.
    """
    header = _header(path, limits, delimiter, quote)
    return header, _rows(path, limits, header, delimiter, quote)


def _header(path: Path, limits: Limits, delimiter: str, quote: str | None) -> list[str]:
    with open_bounded(path, limits) as stream:
        try:
            line = stream.readline(_block_bytes(limits)).decode()
        except UnicodeDecodeError as error:
            raise TraceError(f"{path}: the header is not UTF-8 text ({error.reason}); convert the file") from error
    if not line:
        raise TraceError(f"{path}: cannot be read as delimited text: it is empty; name another file")
    try:
        quoting: Any = {"quoting": csv.QUOTE_NONE} if quote is None else {"quotechar": quote}
        names = next(csv.reader([line], delimiter=delimiter, **quoting), [])
    except csv.Error as error:
        raise TraceError(f"{path}: the header cannot be read ({error}); give the columns plain names") from error
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise TraceError(f"{path}: the header names column {excerpt(repr(name))} twice; rename one")
    return names


def _rows(path: Path, limits: Limits, header: list[str], delimiter: str, quote: str | None) -> Iterator[pa.Table]:
    parse = pa.csv.ParseOptions(delimiter=delimiter, quote_char=quote or False, newlines_in_values=quote is not None)
    convert = pa.csv.ConvertOptions(
        column_types={name: pa.string() for name in header}, null_values=[""], strings_can_be_null=True
    )
    # with one thread errors name the row
    read = pa.csv.ReadOptions(use_threads=False, block_size=_block_bytes(limits))
    done = 0
    last: pa.Table | None = None
    with unchanged(path) as state:
        zipped, paired = _scanned(path, limits, quote)
        try:
            # Arrow's own streams: a thread that holds one of Python's aborts when the interpreter ends
            file = pa.OSFile(str(path))
            source = pa.CompressedInputStream(file, "gzip") if zipped else file.get_stream(0, state.st_size)
            reader = pa.csv.open_csv(source, read, parse, convert)
            if reader.schema.names != header:
                raise TraceError(f"{path}: the header spans several lines or is empty; give the columns plain names")
            for batch in reader:
                for last in slices(pa.Table.from_batches([batch])):
                    yield last
                    done += last.num_rows
        except (pa.ArrowException, OSError) as error:
            raise _unparsed(str(error), path, done, header, delimiter) from error
    if not paired and last is not None and "\n" in (last.column(len(header) - 1)[-1].as_py() or ""):
        raise TraceError(
            f"{path}: row {done - 1}: found a quote that is opened and never closed, expected a second {quote};"
            " close it, or read quotes as plain characters (--no-quotes)"
        )


def _scanned(path: Path, limits: Limits, quote: str | None) -> tuple[bool, bool]:
    """Scan a file for its limits and damage. Returns True if it is gzipped, and True if its quotes are in pairs."""
    quotes = 0
    with open_bounded(path, limits) as stream:
        while block := stream.read(1 << 20):
            quotes += block.count(quote.encode()) if quote else 0
    with path.open("rb") as file:
        return file.read(len(GZIP)) == GZIP, quotes % 2 == 0


def _block_bytes(limits: Limits) -> int:
    return min(max(MIN_BLOCK, 4 * limits.max_prompt_bytes), MAX_BLOCK)


def _unparsed(message: str, path: Path, done: int, header: list[str], delimiter: str) -> TraceError:
    # Arrow counts rows from 1, and the header is one
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", message, re.DOTALL)
    if ragged:
        return TraceError(
            f"{path}: row {int(ragged[1]) - 2}: found {ragged[3]} cells ({excerpt(ragged[4], 60)}), expected"
            f" {ragged[2]} as in the header, with {delimiter!r} between them; fix or drop the row"
        )
    if "straddl" in message:
        return TraceError(
            f"{path}: after row {done - 1}: found a row longer than a cell may be; raise"
            " --max-prompt-bytes, or close the quote that is open there"
        )
    bad = re.search(r"In CSV column #(\d+): Row #(\d+): .*UTF-?8", message)
    if bad:
        name = excerpt(header[int(bad[1])])
        return TraceError(
            f"{path}: row {int(bad[2]) - 2}, column {name}: found bytes that are not UTF-8, expected"
            " UTF-8 text; convert the file, for example with iconv"
        )
    return TraceError(
        f"{path}: cannot be read as delimited text ({excerpt(message)}), expected UTF-8 with {delimiter!r} between"
        " cells; convert the file, or fetch it again if it is cut short"
    )
