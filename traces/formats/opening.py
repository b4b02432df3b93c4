"""Open a table of requests: its content tells what kind of file it is."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.columnar import ARROW, ARROW_STREAM, plain_text, read_arrow, read_parquet
from mezzotint.traces.formats.delimited import HEAD_BYTES, read_delimited, sniff
from mezzotint.traces.formats.headers import RATES_REMEDY
from mezzotint.traces.formats.jsontext import elements, is_json, unwrapped
from mezzotint.traces.formats.recognise import nested, other_format
from mezzotint.traces.table.limits import PARQUET, Limits, open_unpacked
from mezzotint.traces.table.validation import check_whole, excerpt


def open_table(
    path: Path,
    limits: Limits,
    delimiter: str | None = None,
    quote: str | None = '"',
    headless: tuple[str, ...] = (),
) -> tuple[pa.Table, str]:
    """Return the content of a file, text as text, and in words how it was read.

    Args:
        delimiter: the character between cells; None to guess it.
        quote: the character around cells; None if quotes are plain characters.
        headless: names of the columns of a file that has none, the last ones if it has fewer columns; empty refuses it.

    Raises TraceError if the file cannot be read, is of the format of another source, or has no names of columns.
    """
    with open_unpacked(path, limits) as stream:
        head = stream.read(HEAD_BYTES)
    if not head.strip():
        raise TraceError(f"{path}: is empty, expected a table; name another file")
    with path.open("rb") as raw:
        start = raw.read(len(ARROW))
    if start.startswith(PARQUET):
        header, tables = read_parquet(path, limits, None, "a table of requests")
        pieces = list(tables)
        empty = pa.table({name: pa.nulls(0) for name in header})
        return check_whole(pa.concat_tables(pieces) if pieces else empty, str(path)), "Parquet"
    if start == ARROW or start.startswith(ARROW_STREAM):
        return check_whole(read_arrow(path, limits), str(path)), "Arrow IPC"
    if head.startswith((PARQUET, ARROW)):
        raise TraceError(f"{path}: holds Parquet or Arrow that is packed once more; unpack it")
    if head[257:262] == b"ustar":
        raise TraceError(f"{path}: is a tar archive, expected one table; unpack it and name one")
    other = other_format(head)
    if other is not None:
        raise TraceError(
            f"{path}: looks like the format {other}, expected a table of requests; read it with `mezzotint trace"
            f" import {other} FILE`"
        )
    if is_json(head):
        return _records(path, limits, headless)
    text, dialect = sniff(path, limits, head, delimiter, quote)
    if _is_headless(text):
        if not headless:
            raise _headless(text, path)
        columns = len(next(iter(text.splitlines())).split(dialect.delimiter))
        dialect = replace(dialect, names=headless[-columns:])
    header, tables = read_delimited(path, limits, dialect)
    shown = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}.get(dialect.delimiter, dialect.delimiter)
    named = {"utf-8-sig": "UTF-8", "utf-16": "UTF-16", "cp1252": "Windows-1252 (a guess: it is not UTF-8)"}
    encoding = named[dialect.encoding]
    before = f", without {dialect.skipped} lines before the header" if dialect.skipped else ""
    pieces = list(tables)
    empty = pa.table({name: pa.array([], pa.string()) for name in header})
    return (pa.concat_tables(pieces) if pieces else empty), f"delimited by {shown}, {encoding}{before}"


def _cells(text: str) -> list[str]:
    """Return the cells of the first line, whatever the delimiter."""
    line = next(iter(text.splitlines()), "")
    return [cell.strip().strip('"') for cell in re.split(r"[,;\t| ]+", line.strip()) if cell.strip()]


def _is_headless(text: str) -> bool:
    """Return True if the first line holds numbers and dates, and no names of columns."""
    value = r"[+-]?\d+([.,]\d*)?([eE][+-]?\d+)?|\d{4}-\d{2}-\d{2}(T.*)?|\d{2}:\d{2}:\d{2}\S*"
    cells = _cells(text)
    return bool(cells) and all(re.fullmatch(value, cell) for cell in cells)


def _headless(text: str, path: Path) -> TraceError:
    line = next(iter(text.splitlines()))
    found = f"{path}: found numbers ({excerpt(line, 40)}) in the first line, expected the names of the columns"
    if len(_cells(text)) > 1:
        return TraceError(f"{found}; put them before it, such as arrival_ms,prompt")
    return TraceError(
        f"{found}; if a line is an interval, {RATES_REMEDY}; if it is the time of a request, put a line arrival_s or"
        " arrival_ms before it"
    )


def _records(path: Path, limits: Limits, headless: tuple[str, ...]) -> tuple[pa.Table, str]:
    """Return JSON records as a table of text, and in words where they are; a list or an object in a cell is JSON.

    Values that are no records are rows of the columns ``headless``, if there are such.
    """
    cells: dict[str, list[str | None]] = {}
    inside, where = unwrapped(elements(path, limits))
    for done, record in enumerate(inside):
        values = record if isinstance(record, list) else [record]
        if not isinstance(record, dict) and 0 < len(values) <= len(headless):
            record = dict(zip(headless[-len(values) :], values, strict=True))
        if not isinstance(record, dict):
            number = isinstance(record, int | float)
            remedy = RATES_REMEDY if number else "`trace import prompts` reads texts"
            if isinstance(record, list):
                remedy = "give each cell the name of its column"
            raise TraceError(
                f"{path}: value {done}: found {excerpt(repr(record), 60)}, expected a record such as"
                f' {{"prompt": "a fox", "arrival_s": 1.5}}; {remedy}'
            )
        if way_out := nested(record, path.name):
            raise TraceError(f"{path}: value {done}: {way_out}")
        for name in record:
            if name not in cells:
                cells[name] = [None] * done
        for name, column in cells.items():
            value = record.get(name)
            column.append(value if value is None or isinstance(value, str) else json.dumps(value))
    table = pa.table({name: pa.array(column, pa.string()) for name, column in cells.items()})
    return table, f"JSON records{where}"


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose index, if it has a name or times, is in columns. Raises TraceError."""
    index = frame.index
    if isinstance(index, pd.DatetimeIndex | pd.TimedeltaIndex | pd.PeriodIndex):
        names = [index.name or "time"]
    elif all(name is None for name in index.names):
        return frame
    else:
        names = [f"level_{level}" if name is None else name for level, name in enumerate(index.names)]
    for level, name in enumerate(names):
        if name in frame.columns:
            if not index.get_level_values(level).equals(pd.Index(frame[name])):
                raise TraceError(f"frame: found {name!r} in the index and in a column, with other values; rename one")
            frame = frame.drop(columns=name)
    return frame.reset_index(names=names)


def frame_table(frame: pd.DataFrame) -> pa.Table:
    """Return a pandas frame as a table; an index with a name or of times becomes a column, a period its start.

    Raises TraceError if it is no frame, or a column holds values of several kinds.
    """
    if not isinstance(frame, pd.DataFrame):
        raise TraceError(
            f"frame: found {type(frame).__name__}, expected a pandas DataFrame or the name of a file; make a"
            " frame with a row a request, as in pandas.DataFrame(records) or series.to_frame('prompt')"
        )
    try:
        named = _with_index(frame).rename(columns=str)
        periods = [str(name) for name, kind in named.dtypes.items() if isinstance(kind, pd.PeriodDtype)]
        named = named.assign(**{name: named[name].dt.to_timestamp() for name in periods})
        return plain_text(pa.Table.from_pandas(named, preserve_index=False))
    except TraceError:
        raise
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise TraceError(
            f"frame: cannot be read ({excerpt(str(error))}); give each column values of one kind"
        ) from error
