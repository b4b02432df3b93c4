"""Read a column of times: numbers or dates, of which unit, since when, and where they go back."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.cells import Timestamps, numbers, refusal
from mezzotint.traces.table.validation import EARLIEST_S, LATEST_S, LONGEST_S, Origin, excerpt

ClockName = Literal["auto", "seconds", "unix", "unix-ms", "unix-us", "unix-ns", "timestamp"]
DateOrder = Literal["month-first", "day-first"]

PER_SECOND: Mapping[str, float] = {
    "ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "min": 1 / 60, "h": 1 / 3600, "d": 1 / 86_400,
}  # fmt: skip
"""Unit of time -> how many make a second."""

WORDS: Mapping[str, str] = {
    "ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds", "min": "minutes", "h": "hours",
    "d": "days",
}  # fmt: skip

UNIX: Mapping[ClockName, str] = {"unix": "s", "unix-ms": "ms", "unix-us": "us", "unix-ns": "ns"}

EXCEL_DAYS = (20_000, 80_000)
"""Days of a spreadsheet, counted from 1899-12-30: the years 1954 to 2119."""

NUMBER = re.compile(r"\s*[+-]?(\d+([.,]\d*)?|\.\d+)(e[+-]?\d+)?\s*|\s*[+-]?(nan|inf)\s*", re.IGNORECASE)

ROUNDED = r"^\s*\d(?:[.,](\d*))?[eE]\+?(\d{1,2})\s*$"
"""A number in scientific notation: its digits after the point, and its power."""

MAX_ROUNDED_S = 60.0
"""Seconds to which times in scientific notation may be rounded."""

DATE = re.compile(r"[A-Za-z:]|\d[-/]|[.].*[.]")
"""What a date has and a malformed number has not."""

TIME_OF_DAY = r"^\s*([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:[.,]\d*)?))?\s*(?:([AaPp])\.?[Mm]\.?)?\s*$"
"""A time without a day: hour, minute, second, and the first letter of am or pm."""

DIGITS = re.compile(r"(19|20)\d{2}(0\d|1[0-2])([0-2]\d|3[01])([01]\d|2[0-3])([0-5]\d){2}")
"""A date and a time in digits alone, 20261103100000, which no count since 1970 is."""

ZONES: Mapping[str, str] = {
    "EST": "-05:00", "EDT": "-04:00", "MST": "-07:00", "MDT": "-06:00", "PST": "-08:00", "PDT": "-07:00",
    "CET": "+01:00", "CEST": "+02:00",
}  # fmt: skip
"""Names of zones with one offset; the American ones as RFC 5322, 4.3 has them, less CST, which is China's, too."""

REWRITTEN: Mapping[str, str] = {
    r"(:\d{2}),(\d)": r"\1.\2",  # 10:36:37,988, as Python logs
    r" @ (\d)": r" \1",  # Nov 3, 2026 @ 10:00:00.000, as Kibana writes it
    r"\[[A-Z][A-Za-z_/+-]*\]$": "",  # 10:36:37+01:00[Europe/Berlin], as Java writes it
    r"\s*(UTC?|GMT)$": "Z",
    **{rf"(\d) ?{zone}$": rf"\1{offset}" for zone, offset in ZONES.items()},
    r"^(\d{1,2})/([A-Za-z]{3})/(\d{4}):": r"\1 \2 \3 ",  # 03/Nov/2026:10:00:00, as web servers log
    r"^((?:19|20)\d{2})(\d{2})(\d{2})(\d{2})(\d{2})(\d{2})$": r"\1-\2-\3 \4:\5:\6",  # 20261103100000
    r"^(\d{4})[/.](\d{2})[/.](\d{2})": r"\1-\2-\3",
}
"""Forms of dates, as regular expressions -> the same as pandas reads them."""

DAY = r"^(\d{1,2})([/.-])(\d{1,2})[/.-](\d{4}|\d{2})\b,?\s*(.*)$"
"""A date whose year comes last: two numbers of which one is the month, a separator, the year, the time of day."""

WORDED = r"\d{4}.*[AaPp]\.?[Mm]\b|[A-Za-z]{3}.*\d{4}"
"""A date that needs a parser of words: am and pm, names of months."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A column of times, read.

    Attributes:
        times: (n,) float64 seconds, or UTC timestamps.
        relative: whether times count from the start of the trace.
        written: how the file writes them, in words.
        remarks: what was guessed or looks odd, a sentence each.
        is_local: whether times are dates without a zone.
    """

    times: Any
    relative: bool
    written: str
    remarks: list[str] = field(default_factory=list)
    is_local: bool = False

    @property
    def seconds(self) -> npt.NDArray[np.float64]:
        """Times in seconds, (n,), NaN where there is none."""
        if pa.types.is_timestamp(self.times.type):
            per_second = PER_SECOND[self.times.type.unit]
            ticks = self.times.cast(pa.int64())
            return np.asarray(pc.divide(ticks.cast(pa.float64(), safe=False), per_second))
        return np.asarray(self.times, np.float64)


def read_clock(
    cells: pa.ChunkedArray,
    origin: Origin,
    *,
    name: ClockName = "auto",
    unit: str | None = None,
    dates: DateOrder | None = None,
    has_date: bool = False,
) -> Clock:
    """Read times, (n,) text.

    Numbers count from 1970 if as seconds, milliseconds, microseconds or nanoseconds they lie in the years 2001 to 2100;
    the median decides. Smaller ones count from the start of the trace, in seconds or ``unit``.

    Args:
        name: how the times are written, if known.
        unit: of numbers, as the column's name states it.
        dates: what comes first in dates such as 3/11/2026.
        has_date: the column's name speaks of a date, so that numbers of days are a spreadsheet's.

    Raises TraceError naming the first cell that is no such time, or the order of day and month if no row decides it.
    """
    first = next((cell for cell in cells.to_pylist() if cell is not None), "0")
    is_date = DIGITS.fullmatch(first) or (not NUMBER.fullmatch(first) and DATE.search(first))
    if name == "timestamp" or (name == "auto" and is_date):
        is_of_day = re.match(TIME_OF_DAY, first)
        clock = _read_times_of_day(cells, origin) if is_of_day else _read_dates(cells, origin, dates)
    else:
        clock = _read_numbers(cells, origin, name, unit, has_date)
    clock.remarks.extend(_backward(clock, origin))
    return clock


def _read_numbers(cells: pa.ChunkedArray, origin: Origin, name: ClockName, stated: str | None, has_date: bool) -> Clock:
    values = numbers(cells, origin, "arrival_s")
    known = values.drop_null().to_numpy()
    median = float(np.median(known)) if len(known) else 0.0
    remarks = []
    may_be_days = name == "auto" and EXCEL_DAYS[0] < median < EXCEL_DAYS[1]
    if may_be_days and (stated == "d" or (stated is None and has_date)):
        days = pc.subtract(values, 25_569.0)  # 1970-01-01
        return Clock(pc.multiply(days, 86_400.0), False, "days of a spreadsheet since 1899-12-30")
    if may_be_days and stated is None and EXCEL_DAYS[0] < known.min() and known.max() < EXCEL_DAYS[1]:
        column = origin.column("arrival_s")
        raise TraceError(
            f"{origin.where}: column {column}: found numbers about {median:.8g}, which may be a spreadsheet's days, or"
            f" seconds of the file's own clock; say --unit {shlex.quote(column)}=d, or s, or put _days or"
            " _s after the column's name"
        )
    by_size = next((unit for unit in ("s", "ms", "us", "ns") if median / PER_SECOND[unit] <= LATEST_S), "ns")
    unit = UNIX.get(name) or stated or "s"
    absolute = name in UNIX or (name == "auto" and median / PER_SECOND[unit] > LONGEST_S)
    if name == "auto" and absolute and median / PER_SECOND[unit] > LATEST_S:
        if stated is not None:
            remarks.append(f"the name says {WORDS[stated]}, the size of the numbers {WORDS[by_size]}: the size counts")
        unit = by_size
    seconds = values if unit == "s" else pc.divide(values, PER_SECOND[unit])
    word = WORDS[unit]
    if absolute:
        # a small number among times since 1970 is a time of another unit, or none
        earliest, year = (EARLIEST_S, 1900) if name in UNIX else (LONGEST_S, 2001)
        out = pc.or_(pc.less(seconds, earliest), pc.greater(seconds, LATEST_S)).fill_null(False)
        _refuse(
            cells,
            out,
            origin,
            f"{word} since 1970 between {year} and 2100; say what they are with --arrival, or",
        )
        _refuse_rounded(cells, origin, unit)
        return Clock(_exact(cells, unit, seconds), False, f"{word} since 1970", remarks)
    if unit != "s":
        _refuse(cells, pc.less(seconds, 0.0).fill_null(False), origin, f"{word}, 0 or later;")
    written = "seconds of the file's own clock" if unit == "s" else f"{word} of the file's own clock"
    return Clock(seconds, True, written, remarks)


def _refuse(cells: pa.ChunkedArray, bad: pa.ChunkedArray, origin: Origin, expected: str) -> None:
    index = pc.index(bad, pa.scalar(True)).as_py()
    if index >= 0:
        raise TraceError(
            f"{origin.cell(index, 'arrival_s')}: found {excerpt(repr(cells[index].as_py()), 60)}, expected {expected}"
            " fix or drop the row"
        )


def _refuse_rounded(cells: pa.ChunkedArray, origin: Origin, unit: str) -> None:
    """Raise TraceError if several times are written with so few digits that a minute does not show."""
    known = cells.drop_null().to_pylist() if pc.all(pc.match_substring_regex(cells, ROUNDED)).as_py() else []
    if len(known) < 2:
        return
    parts = [match.groups() for cell in known if (match := re.fullmatch(ROUNDED, cell))]
    digits, power = max(len(digits or "") for digits, _ in parts), max(int(power) for _, power in parts)
    apart_s = 10.0 ** (power - digits) / PER_SECOND[unit]
    if apart_s > MAX_ROUNDED_S:
        raise TraceError(
            f"{origin.cell(cells.to_pylist().index(known[0]), 'arrival_s')}: found {known[0]!r}, which is rounded to"
            f" {apart_s:,g} s, expected all digits of the time; in a spreadsheet, format the column as a number before"
            " you save it"
        )


def _exact(cells: pa.ChunkedArray, unit: str, seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return times since 1970 as timestamps, which a float64 of seconds would round; seconds if a ns is too coarse."""
    digits = {"s": 9, "ms": 6, "us": 3, "ns": 0}.get(unit)
    if digits is None:
        return seconds
    texts = pc.utf8_trim_whitespace(cells)
    # whole numbers first, since decimals take longer
    for kind, factor in ((pa.int64(), 10**digits), (pa.decimal128(20, digits), Decimal(10**digits))):
        try:
            return pc.multiply(texts.cast(kind), factor).cast(pa.int64()).cast(pa.timestamp("ns", "UTC"))
        except pa.ArrowInvalid:
            pass
    return seconds


def _read_dates(cells: pa.ChunkedArray, origin: Origin, dates: DateOrder | None) -> Clock:
    text = pc.utf8_trim_whitespace(cells).combine_chunks()
    for pattern, iso in REWRITTEN.items():
        text = pc.replace_substring_regex(text, pattern, iso)
    written, remarks = "ISO 8601 dates", []
    if pc.any(pc.match_substring_regex(text, DAY)).as_py():
        order = _order(text, dates, cells, origin)
        written = f"dates with the {order.replace('-', ' ')}"
        text = pc.replace_substring_regex(text, DAY, r"\4-\1-\3 \5" if order == "month-first" else r"\4-\3-\1 \5")
        text = pc.replace_substring_regex(text, r"^(\d{2})-", r"20\1-")
        for _ in ("month", "day"):
            text = pc.replace_substring_regex(text, r"^([\d-]*-)(\d)(-| |$)", r"\10\2\3")
    worded = pc.match_substring_regex(text, WORDED).fill_null(False)
    if pc.any(worded).as_py():
        of_words = pd.Series(text.filter(worded).to_pylist())
        parsed = pd.to_datetime(of_words, format="mixed", errors="coerce", utc=True).dt.strftime("%Y-%m-%d %H:%M:%S.%f")
        zone = np.where(of_words.str.contains(r"Z$|[+-]\d{2}:?\d{2}$"), "Z", "")
        # what is no date stays as it is, for the message
        text = pc.replace_with_mask(text, worded, pa.array((parsed + zone).fillna(of_words), pa.string()))
    stamps = Timestamps(unit="ns")
    times = pa.chunked_array([stamps.read(pa.chunked_array([text]), origin, "arrival_s", cells)])
    if stamps.zoned is False:
        remarks.append("the times have no zone and are read as UTC")
    return Clock(times, False, written, remarks, is_local=stamps.zoned is False)


def _read_times_of_day(cells: pa.ChunkedArray, origin: Origin) -> Clock:
    """Read times without a day, from the earliest on; one half a day before the last is of the next day."""
    is_other = pc.invert(pc.match_substring_regex(cells, TIME_OF_DAY)).fill_null(False)
    _refuse(cells, is_other, origin, "a time of day such as 13:05:07;")
    parts = pd.Series(cells.to_pylist(), dtype="object").str.extract(TIME_OF_DAY)
    hour, minute, second = (pd.to_numeric(parts[part].str.replace(",", ".")).fillna(0.0) for part in (0, 1, 2))
    of_day = 3600 * (hour % 12 + 12 * parts[3].str.lower().eq("p")).where(parts[3].notna(), hour)
    seconds = (of_day + 60 * minute + second).where(parts[0].notna())
    known = seconds.dropna()
    days = (known.diff() < -86_400 / 2).cumsum()
    seconds.update(known + 86_400 * days)
    times = pa.chunked_array([pa.array(seconds - seconds.min(), pa.float64(), from_pandas=True)])
    return Clock(times, True, f"times of day over {days.iloc[-1] + 1:,} days, from the earliest on")


def _order(text: pa.Array, dates: DateOrder | None, cells: pa.ChunkedArray, origin: Origin) -> DateOrder:
    """Return what comes first in dates whose year comes last."""
    if dates is not None:
        return dates
    parts = pd.Series(text.to_pylist(), dtype="object").str.extract(DAY)
    days_first, months_first = pd.to_numeric(parts[0]) > 12, pd.to_numeric(parts[2]) > 12
    if days_first.any() and months_first.any():
        index = int(np.flatnonzero(months_first)[0])
        raise refusal(
            origin, index, "arrival_s", repr(cells[index].as_py()), "day and month in the order of other rows"
        )
    if days_first.any() or ((parts[1] == ".").any() and not months_first.any()):
        return "day-first"
    if months_first.any():
        return "month-first"
    index = int(np.flatnonzero(parts[0].notna())[0])
    raise TraceError(
        f"{origin.cell(index, 'arrival_s')}: found {excerpt(repr(cells[index].as_py()), 60)}, and no row tells the"
        f" month from the day; say --dates month-first or --dates day-first,"
        " or write them as 2026-11-03"
    )


def _backward(clock: Clock, origin: Origin) -> list[str]:
    """Return remarks about rows at which a clock that runs forward otherwise goes back."""
    seconds = clock.seconds
    steps = np.diff(seconds)
    back = np.flatnonzero(steps < 0)
    if not back.size:
        return []
    if back.size > max(3, len(steps) // 100):
        return ["the rows are not in the order of arrival, and were sorted"]
    remarks = []
    for index in back[:3].tolist():
        drop = -float(steps[index])
        cause = ""
        if clock.is_local and 1800 < drop <= 3600:
            cause = ", as at the end of daylight saving: write times with their zone, or an hour is told twice"
        elif clock.relative and seconds[index + 1] < 0.01 * max(seconds[index], 1.0):
            cause = ", as at the start of another run: its requests now arrive among those before"
        remarks.append(f"row {origin.row(index + 1)}: the clock goes back by {drop:,.6g} s{cause}")
    if back.size > len(remarks):
        remarks.append(f"the clock goes back in {back.size - len(remarks)} more rows")
    return remarks
