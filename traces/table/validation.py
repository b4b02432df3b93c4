"""Checks of the cells of a trace and of settings, with messages that name the cell and the remedy."""

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from annotated_types import Ge, Gt, Le

from mezzotint.files.printable import printable
from mezzotint.traces.error import TraceError

LONGEST_S = 1e9
"""Longest span of a trace, 31.7 years. Seconds since 1970 are more."""

EARLIEST_S, LATEST_S = -2_208_988_800, 4_102_444_800
"""The years 1900 and 2100 in seconds since 1970; milliseconds since 1970 read as seconds are beyond."""

MILLISECONDS = " (--arrival unix-ms of `trace import table` reads milliseconds since then)"
OWN = (
    "seconds since the start of the trace (`trace import table` reads seconds since 1970 with --arrival unix,"
    " milliseconds with unix-ms)"
)

BOUNDS: Mapping[type, str] = {Gt: "above", Ge: "min_value", Le: "max_value"}
"""Bounds of an annotation -> arguments of `check_number`."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Names of a file, its columns and rows, to point at a cell in messages.

    Attributes:
        where: the file's name.
        columns: canonical column name -> the source's name, if they differ.
        rows: (n,) row numbers in the source; None is 0..n-1.
    """

    where: str
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: npt.NDArray[np.int64] | None = None

    def row(self, index: int) -> int:
        """Return the source's number of the row at position `index`."""
        return index if self.rows is None else int(self.rows[index])

    def column(self, name: str) -> str:
        """Return the source's name of a column."""
        return excerpt(self.columns.get(name, name))

    def cell(self, index: int, column: str) -> str:
        """Return the start of a message: file, row, column."""
        return f"{self.where}: row {self.row(index)}, column {self.column(column)}"


def excerpt(text: str, limit: int = 120) -> str:
    """Return `text` on one line for an error message, cut to `limit` characters, unprintable ones escaped."""
    line = printable(" ".join(text[: 4 * limit].split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def check_times(times: pa.ChunkedArray, origin: Origin, *, relative: bool = True) -> None:
    """Check arrivals, (n,) seconds or timestamps; `relative` ones count from the start of the trace.

    Raises:
        TraceError: one is null, not finite, not between 1900 and 2100, or relative and negative or above `LONGEST_S`.
    """
    refuse(times, pc.is_null(times), "arrival_s", "a value", origin)
    if pa.types.is_timestamp(times.type):
        ticks = times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(pa.int64())
        bad = pc.or_(pc.less(ticks, EARLIEST_S * 10**6), pc.greater(ticks, LATEST_S * 10**6))
        refuse(times, bad, "arrival_s", "a time between 1900 and 2100", origin)
        return
    bad = pc.invert(pc.is_finite(times))
    if relative:
        refuse(times, pc.or_(bad, pc.less(times, 0.0)), "arrival_s", "finite seconds, 0 or later", origin)
        refuse(times, pc.greater(times, LONGEST_S), "arrival_s", f"at most {LONGEST_S:g} {OWN}", origin)
    else:
        refuse(times, bad, "arrival_s", "finite seconds", origin)
        bad = pc.or_(pc.less(times, EARLIEST_S), pc.greater(times, LATEST_S))
        refuse(times, bad, "arrival_s", f"seconds since 1970, between 1900 and 2100{MILLISECONDS}", origin)


def check_span(arrival_s: pa.ChunkedArray, rows: pa.ChunkedArray, origin: Origin) -> None:
    """Check that sorted arrivals, (n,) seconds since the first, end within `LONGEST_S`; `rows` are their (n,) numbers.

    Raises TraceError naming the first and the late row, since either may be wrong.
    """
    late = int(np.searchsorted(arrival_s.to_numpy(), LONGEST_S, side="right"))
    if late < len(arrival_s):
        row, years = rows[late].as_py(), arrival_s[late].as_py() / 31_557_600
        raise TraceError(
            f"{origin.where}: row {row}, column {origin.column('arrival_s')}: found a time"
            f" {years:,.0f} years after that of row {rows[0].as_py()}, expected at most {LONGEST_S:g} s (31.7 years)"
            " from the first request to the last; fix or drop one of the two"
        )


def check_whole(table: pa.Table, where: str) -> pa.Table:
    """Return ``table``. Raises TraceError, naming ``where`` it is from, if a text is not UTF-8 or a column is cut."""
    try:
        table.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise TraceError(
            f"{where}: holds data that is not valid ({excerpt(str(error))}), expected UTF-8 text and whole columns;"
            " write the file again"
        ) from error
    return table


def check_text(table: pa.Table, origin: Origin, limit: int) -> None:
    """Check the texts, valid UTF-8 of unknown origin, in the cells of a table, (n, columns).

    Raises TraceError if a text is longer than `limit` bytes, or holds a NUL character.
    """
    for name in table.column_names:
        column, rows = table.column(name), None
        if pa.types.is_list(column.type):
            rows, column = pc.list_parent_indices(column), pc.list_flatten(column)
        if not pa.types.is_string(column.type):
            continue
        for bad, expected in (
            (pc.greater(pc.binary_length(column), limit), f"at most {limit:,} bytes; raise --max-prompt-bytes,"),
            (pc.match_substring(column, "\0"), "text without NUL characters; save the file as UTF-8,"),
        ):
            index = _first(bad)
            if index is not None:
                row, text = index if rows is None else rows[index].as_py(), column[index].as_py()
                raise TraceError(
                    f"{origin.cell(row, name)}: found {excerpt(repr(text[:200]), 60)} of {len(text.encode()):,} bytes,"
                    f" expected {expected} or fix or drop the row"
                )


def check_order(table: pa.Table, origin: Origin, release: Callable[[], None] = lambda: None) -> None:
    """Raise TraceError if a row arrives before the row above it; ``release`` is called at times."""
    start, before_s = 0, np.full(1, -np.inf)
    for piece in table.column("arrival_s").chunks:
        arrival_s = np.concatenate([before_s, piece])
        falls = np.flatnonzero(arrival_s[1:] < arrival_s[:-1])
        if falls.size:
            index = int(falls[0])
            raise TraceError(
                f"{origin.cell(start + index, 'arrival_s')}: found {arrival_s[index + 1]}, expected at least"
                f" {arrival_s[index]} as in the row before; sort the rows by arrival"
            )
        start, before_s = start + len(piece), arrival_s[-1:]
        release()


def refuse(column: pa.ChunkedArray, bad: Any, name: str, expected: str, origin: Origin) -> None:
    """Raise TraceError naming the first `bad` cell of `column`, (n,), if any.

    Args:
        bad: (n,) booleans; null is not bad.
        name: the column's canonical name.
        expected: content of a good cell, in words.
    """
    index = _first(bad)
    if index is not None:
        try:
            value = column[index].as_py()
        except (ValueError, OverflowError):  # a time after the year 9999
            value = column[index].cast(pa.int64()).as_py()
        found = "null" if value is None else excerpt(str(value) if isinstance(value, datetime) else repr(value))
        raise TraceError(f"{origin.cell(index, name)}: found {found}, expected {expected}; fix or drop the row")


def _first(bad: Any) -> int | None:
    """Return the position of the first true value; a null comparison is not a fault."""
    index = pc.index(pc.fill_null(bad, False), True).as_py()
    return None if index < 0 else int(index)


def check_unique(ids: pa.ChunkedArray, origin: Origin, release: Callable[[], None] = lambda: None) -> None:
    """Raise TraceError naming the first row whose name an earlier row already has; ``release`` is called at times."""
    if _ascends(ids, release) or pc.count_distinct(ids).as_py() == len(ids):
        return
    firsts: dict[str, int] = {}
    for index, name in enumerate(ids.to_pylist()):
        if firsts.setdefault(name, index) < index:
            raise TraceError(
                f"{origin.cell(index, 'request_id')}: found {excerpt(repr(name))}, which row"
                f" {origin.row(firsts[name])} has already, expected a unique name; rename or drop the row"
            )


def _ascends(ids: pa.ChunkedArray, release: Callable[[], None]) -> bool:
    """Return True if each name is longer than the one before, or as long and later in the alphabet: all differ."""
    before = pa.array([], ids.type)
    for names in ids.chunks:
        if not len(names):
            continue
        names = pa.concat_arrays([before, names])
        first, second = names[:-1], names[1:]
        length, more = pc.binary_length(first), pc.binary_length(second)
        is_after = pc.or_(pc.less(length, more), pc.and_(pc.equal(length, more), pc.less(first, second)))
        if not pc.all(is_after, min_count=0).as_py():
            return False
        before = pa.array([names[-1].as_py()], ids.type)
        release()
    return True


def check_number(
    where: str,
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    min_value: float = -math.inf,
    max_value: float = math.inf,
) -> None:
    """Check a setting of unknown type, which may be text or a bool.

    Raises TraceError if `value` is not a finite number, or not > `above`, >= `min_value` and <= `max_value`.
    """
    # compared, since an int may be too large for math.isfinite; NaN fails every comparison
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and -math.inf < value < math.inf and above < value and min_value <= value <= max_value:  # type: ignore[operator]
        return
    limits = (("above", above), ("at least", min_value), ("at most", max_value))
    bounds = [f"{word} {limit:g}" for word, limit in limits if math.isfinite(limit)]
    raise TraceError(f"{where}: {name}={value!r}, expected a finite number, {' and '.join(bounds)}")


def check_ranges(where: str, settings: Any) -> None:
    """Raise TraceError if a number of a dataclass is outside its annotation's range, or a word is not a choice."""
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise TraceError(f"{where}: {name}={value!r}, expected one of {', '.join(get_args(hint))}")
        for part in (hint, *get_args(hint)):  # a range, or a range or None
            kind, *bounds = get_args(part) if get_origin(part) is Annotated else (None,)
            if kind not in (int, float) or (value is None and part is not hint):
                continue
            check_number(where, name, value, **{BOUNDS[type(bound)]: astuple(bound)[0] for bound in bounds})
            if kind is int and not isinstance(value, int):
                raise TraceError(f"{where}: {name}={value!r}, expected a whole number")
