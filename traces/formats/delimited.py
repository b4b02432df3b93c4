"""Read delimited text (CSV, TSV) a piece at a time, every column as text."""

import codecs
import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.recognise import foreign_format
from mezzotint.traces.table.ingest import slices
from mezzotint.traces.table.limits import GZIP, UTF16, ZIP, ZSTD, Limits, open_unpacked, unchanged
from mezzotint.traces.table.validation import excerpt

MIN_BLOCK = 1 << 22
"""Bytes parsed at once, at least."""

MAX_BLOCK = (1 << 31) - 1
"""Bytes parsed at once, at most: Arrow counts them in 32 bits."""


HEAD_BYTES = 1 << 16
"""Bytes from which the format and the delimiter are guessed."""

DELIMITERS = ",;\t|"
"""The usual delimiters, those of most files first."""

UTF8 = "utf-8-sig"
"""UTF-8, with a byte order mark or without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Delimiter, quotes and encoding of a text of rows.

    Attributes:
        quote: the character around cells that contain the delimiter; None if quotes are plain characters.
        encoding: Python's name of the encoding.
        spaced: whether a space after the delimiter belongs to it.
        skipped: lines before the header: Excel's `sep=;`, blank ones and comments.
        names: the columns of a text without a header; empty if it has one.
    """

    delimiter: str = ","
    quote: str | None = '"'
    encoding: str = UTF8
    spaced: bool = False
    skipped: int = 0
    names: tuple[str, ...] = ()


def sniff(
    path: Path, limits: Limits, start: bytes, delimiter: str | None = None, quote: str | None = '"'
) -> tuple[str, Dialect]:
    """Return the first lines of a text, of its first `HEAD_BYTES`, and how it is delimited.

    The delimiter is the one that gives most rows as many cells as the header, which are two or more; of several, the
    one with the most cells. A header that names the delimiter (`sep=;`) is believed.

    Raises TraceError as `encoding_of`, or if the text is of a kind that is not delimited.
    """
    encoding = encoding_of(path, limits)
    head = start.decode(encoding, "ignore")
    if foreign := foreign_format(head):
        raise TraceError(f"{path}: looks like {foreign}")
    declared = re.match(r"sep=(.)\r?\n", head)
    lines = head.splitlines(keepends=True)
    skipped = 1 if declared else _count_comments(lines)
    head, delimiter = "".join(lines[skipped:]), delimiter or (declared[1] if declared else None)
    if delimiter is None:
        scores = {word: _score(head, word, quote) for word in DELIMITERS}
        delimiter = max(scores, key=lambda word: scores[word])
    header = next(iter(head.splitlines()), "")
    cells = header.split(delimiter)[1:]
    spaced = bool(cells) and delimiter != " " and all(cell.startswith(" ") for cell in cells)
    return head, Dialect(delimiter=delimiter, quote=quote, encoding=encoding, spaced=spaced, skipped=skipped)


def _count_comments(lines: list[str]) -> int:
    """Return the number of lines before the header that are blank or begin with #.

    The last one is the header if it has as many cells as the line after it, and more than one.
    """
    comments = list(itertools.takewhile(lambda line: not line.strip() or line.startswith("#"), lines))
    following = lines[len(comments) : len(comments) + 1]
    if not comments or not following:
        return 0
    last, after = (len(re.split(r"[,;\t|]", line)) for line in (comments[-1], following[0]))
    return len(comments) - (last == after > 1)


def _score(head: str, delimiter: str, quote: str | None) -> tuple[float, int]:
    """Return the share of rows with as many cells as the header, and how many these are."""
    try:
        rows = [row for row in csv.reader(io.StringIO(head), delimiter=delimiter, **_quoting(quote)) if row]
    except csv.Error:
        return 0.0, 0
    rows = rows[: max(2, len(rows) - 1)]  # the last one may be cut
    cells = len(rows[0]) if rows else 0
    return (sum(len(row) == cells for row in rows) / len(rows), cells) if cells > 1 else (0.0, cells)


def _quoting(quote: str | None) -> dict[str, Any]:
    return {"quoting": csv.QUOTE_NONE} if quote is None else {"quotechar": quote}


def encoding_of(path: Path, limits: Limits) -> str:
    """Return the encoding of a text: by its byte order mark, else UTF-8, else Windows-1252.

    Raises TraceError if the file cannot be read, or holds NUL characters, which text does not.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    with open_unpacked(path, limits) as stream:
        head = stream.peek(4)[:4]
        if head[:2] in UTF16 and head[2:] != b"\0\0":  # otherwise UTF-32
            return "utf-16"
        is_utf8 = True
        while block := stream.read(1 << 20):
            if b"\0" in block:
                raise TraceError(
                    f"{path}: found NUL characters, expected text; it is binary, or UTF-16 without a mark: save it as"
                    " UTF-8"
                )
            try:
                if is_utf8:
                    decoder.decode(block)
            except UnicodeDecodeError:
                is_utf8 = False
    return UTF8 if is_utf8 else "cp1252"


def read_delimited(path: Path, limits: Limits, dialect: Dialect = Dialect()) -> tuple[list[str], Iterator[pa.Table]]:
    """Return the names of the columns of a delimited file, plain or packed, and its rows as text; "" is null.

    Rows come in order, at most `mezzotint.traces.table.ingest.ROWS` at a time.

    Raises TraceError if the file cannot be opened (see `limits.open_unpacked`), or its header is empty, not of the
    encoding, or names a column twice. The rows raise it if the file is truncated or not of the encoding, a row has
    another length than the header or exceeds the limits, or a quote is never closed.
    """
    header = _header(path, limits, dialect)
    return header, _rows(path, limits, header, dialect)


def _header(path: Path, limits: Limits, dialect: Dialect) -> list[str]:
    if dialect.names:
        return list(dialect.names)
    with open_unpacked(path, limits) as stream:
        try:
            text = io.TextIOWrapper(stream, dialect.encoding)
            line = [text.readline(_block_bytes(limits)) for _ in range(1 + dialect.skipped)][-1]
        except UnicodeDecodeError as error:
            raise TraceError(f"{path}: the header is not UTF-8 text ({error.reason}); convert the file") from error
    if not line:
        raise TraceError(f"{path}: cannot be read as delimited text: it is empty; name another file")
    try:
        names = next(
            csv.reader([line], delimiter=dialect.delimiter, skipinitialspace=dialect.spaced, **_quoting(dialect.quote)),
            [],
        )
    except csv.Error as error:
        raise TraceError(f"{path}: the header cannot be read ({error}); give the columns plain names") from error
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise TraceError(f"{path}: the header names column {excerpt(repr(name))} twice; rename one")
    return names


def _rows(path: Path, limits: Limits, header: list[str], dialect: Dialect) -> Iterator[pa.Table]:
    quote = dialect.quote
    parse = pa.csv.ParseOptions(
        delimiter=dialect.delimiter, quote_char=quote or False, newlines_in_values=quote is not None
    )
    convert = pa.csv.ConvertOptions(
        column_types={name: pa.string() for name in header}, null_values=[""], strings_can_be_null=True
    )
    # with one thread errors name the row
    read = pa.csv.ReadOptions(
        use_threads=False,
        block_size=_block_bytes(limits),
        skip_rows=dialect.skipped,
        column_names=list(dialect.names) or None,
    )
    done = 0
    last: pa.Table | None = None
    with unchanged(path):
        paired = _are_paired(path, limits, dialect)
        try:
            reader = pa.csv.open_csv(_stream(path, limits, dialect), read, parse, convert)
            if reader.schema.names != header:
                raise TraceError(f"{path}: the header spans several lines or is empty; give the columns plain names")
            for batch in reader:
                for last in slices(pa.Table.from_batches([batch])):
                    yield last
                    done += last.num_rows
        except (pa.ArrowException, OSError) as error:
            raise _unparsed(str(error), path, done, header, dialect.delimiter) from error
    if not paired and last is not None and "\n" in (last.column(len(header) - 1)[-1].as_py() or ""):
        raise TraceError(
            f"{path}: row {done - 1}: found a quote that is opened and never closed, expected a second {quote};"
            " close it, or read quotes as plain characters (--no-quotes)"
        )


def _stream(path: Path, limits: Limits, dialect: Dialect) -> pa.NativeFile:
    """Return a file's content in UTF-8, for Arrow to read.

    Arrow's own streams where possible: a thread that holds one of Python's aborts when the interpreter ends.
    """
    with path.open("rb") as raw:
        head = raw.read(4)
    if dialect.encoding == UTF8 and not dialect.spaced and head != ZIP:
        file = pa.OSFile(str(path))
        if head[:2] == GZIP or head == ZSTD:
            return pa.CompressedInputStream(file, "zstd" if head == ZSTD else "gzip")
        return file.get_stream(0, path.stat().st_size)
    with open_unpacked(path, limits) as stream:
        try:
            text = stream.read().decode(dialect.encoding)
        except UnicodeDecodeError as error:
            raise TraceError(f"{path}: is no text in {dialect.encoding} ({error.reason}); save it as UTF-8") from error
    if dialect.spaced:
        quoting, written = _quoting(dialect.quote), io.StringIO()
        try:
            rows = csv.reader(io.StringIO(text), delimiter=dialect.delimiter, skipinitialspace=True, **quoting)
            csv.writer(written, delimiter=dialect.delimiter, lineterminator="\n", **quoting).writerows(rows)
        except csv.Error as error:
            raise TraceError(f"{path}: cannot be read as delimited text ({error}); save it again as CSV") from error
        text = written.getvalue()
    return pa.BufferReader(text.encode())


def _are_paired(path: Path, limits: Limits, dialect: Dialect) -> bool:
    """Scan a file for its limits and damage. Returns True if its quotes are in pairs.

    Raises TraceError for text between the quote that ends a cell and the next delimiter, which Arrow would take.
    """
    quotes, quote, ends = 0, re.escape(dialect.quote or ""), re.escape(f"{dialect.delimiter}\r\n")
    # where no cell begins or ends: text on both sides of a quote, or two after a backslash at the end of a cell
    odd = re.compile(rf"{quote}(?:(?<=[^{quote}{ends}]{quote})[^{quote}{ends}]|(?<=\\{quote}){quote}[{ends}])".encode())
    is_suspect, tail = dialect.encoding == "utf-16", b""
    with open_unpacked(path, limits) as stream:
        while block := stream.read(1 << 20):
            if dialect.quote is not None:
                quotes += block.count(dialect.quote.encode())
                is_suspect = is_suspect or odd.search(tail + block) is not None
                tail = block[-2:]
    if is_suspect and dialect.quote is not None:
        _check_quotes(path, limits, dialect)
    return quotes % 2 == 0


def _check_quotes(path: Path, limits: Limits, dialect: Dialect) -> None:
    spaces = re.compile(rf"{re.escape(dialect.quote or '')}[ \t]+(?={re.escape(dialect.delimiter)}|\r?\n|$)")
    row, line = -1 if dialect.names else -2, ""

    def trimmed(stream: Iterable[str]) -> Iterator[str]:
        nonlocal line
        for line in stream:
            yield spaces.sub(dialect.quote or "", line)

    with open_unpacked(path, limits) as stream:
        text = itertools.islice(io.TextIOWrapper(stream, dialect.encoding, newline=""), dialect.skipped, None)
        rows = csv.reader(
            trimmed(text),
            delimiter=dialect.delimiter,
            strict=True,
            skipinitialspace=dialect.spaced,
            **_quoting(dialect.quote),
        )
        try:
            for cells in rows:
                row += bool(cells)
        except UnicodeDecodeError:
            return  # said by the reader
        except csv.Error as error:
            if "expected after" not in str(error):  # a cell beyond csv's limit, or a quote that is never closed
                return
            two = f"{dialect.quote}{dialect.quote}"
            remedy = (
                f"write {two} for \\{dialect.quote} (Spark: option escape={dialect.quote})"
                if f"\\{dialect.quote}" in line
                else f"write a quote within a cell twice ({two}), or read quotes as plain characters (--no-quotes)"
            )
            where = f"row {row + 1}" if row > -2 else "the header"
            raise TraceError(
                f"{path}: {where}: found text after the quote that ends a cell ({excerpt(line, 60)}), expected"
                f" {dialect.delimiter!r}; {remedy}"
            ) from None


def _block_bytes(limits: Limits) -> int:
    return min(max(MIN_BLOCK, 4 * limits.max_prompt_bytes), MAX_BLOCK)


def _unparsed(message: str, path: Path, done: int, header: list[str], delimiter: str) -> TraceError:
    # Arrow counts rows from 1, and the header is one
    ragged = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", message, re.DOTALL)
    if ragged:
        lines = "" if len(header) > 1 else "; `mezzotint trace import prompts` reads a prompt a line"
        return TraceError(
            f"{path}: row {int(ragged[1]) - 2}: found {ragged[3]} cells ({excerpt(ragged[4], 60)}), expected"
            f" {ragged[2]} as in the header, with {delimiter!r} between them; quote the cell, or fix or drop the row"
            f"{lines}"
        )
    if "straddl" in message:
        return TraceError(
            f"{path}: row {done} or one after it: found a row longer than a cell may be; raise"
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
