"""Conversion of text cells to numbers and times, with errors that name the cell."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import LATEST_S, LONGEST_S, Origin, excerpt

ClockName = Literal["auto", "seconds", "unix", "unix-ms", "timestamp"]

ZONE = r"[T ].*([zZ]|[+-]\d{2}(:?\d{2})?)\s*$"
"""Pattern of a time with a zone."""


def refusal(origin: Origin, index: int, column: str, found: str, expected: str) -> TraceError:
    """Return the error for a cell of ``column`` that holds ``found`` instead of ``expected``."""
    return TraceError(
        f"{origin.cell(index, column)}: found {excerpt(found, 60)}, expected {expected}; fix or drop the row"
    )


def integers(cells: pa.ChunkedArray, origin: Origin, column: str) -> pa.ChunkedArray:
    """Return text as int64, (n,); "50.0" is 50. Raises TraceError naming the first cell that is no whole number."""
    whole = pc.replace_substring_regex(pc.utf8_trim_whitespace(cells), r"\.0*$", "")
    return _cast(whole, cells, pa.int64(), "a whole number", origin, column)


def numbers(cells: pa.ChunkedArray, origin: Origin, column: str) -> pa.ChunkedArray:
    """Return text as float64, (n,). Raises TraceError naming the first cell that is no number."""
    return _cast(pc.utf8_trim_whitespace(cells), cells, pa.float64(), "a number", origin, column)


def _cast(
    texts: pa.ChunkedArray, cells: pa.ChunkedArray, kind: pa.DataType, expected: str, origin: Origin, column: str
) -> pa.ChunkedArray:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid as error:
        for index, text in enumerate(texts):
            try:
                text.cast(kind)
            except pa.ArrowInvalid:
                raise refusal(origin, index, column, repr(cells[index].as_py()), expected) from error
        raise


@dataclass(slots=True)
class Timestamps:
    """Parser of times, all with a zone or all without; ``zoned`` is None before the first."""

    zoned: bool | None = None

    def read(self, cells: pa.ChunkedArray, origin: Origin, column: str) -> pa.Array:
        """Return ISO 8601 cells as UTC, (n,) timestamps in microseconds; null stays null.

        Times of several zones are converted to UTC; times without a zone are UTC. Raises TraceError naming the first
        cell that is no time, or that differs from earlier ones in having a zone.
        """
        text = pd.Series(cells.to_pylist(), dtype="object")
        times = pd.to_datetime(text, utc=True, format="ISO8601", errors="coerce")
        bad = np.flatnonzero((times.isna() & text.notna()).to_numpy())
        if bad.size:
            found, expected = repr(text.iloc[bad[0]]), "a time such as 2022-08-14 00:45:00+00:00"
            raise refusal(origin, int(bad[0]), column, found, expected)
        for index, zoned in enumerate(pc.match_substring_regex(cells, ZONE).to_pylist()):
            self.zoned = zoned if self.zoned is None else self.zoned
            if zoned not in (None, self.zoned):
                found, before = ("a zone", "none") if zoned else ("no zone", "one")
                raise TraceError(
                    f"{origin.cell(index, column)}: found {excerpt(repr(text.iloc[index]))} with {found}, expected"
                    f" {before} as in the rows before; write all times with their zone or all without (UTC)"
                )
        return pa.array(times.dt.as_unit("us"), pa.timestamp("us", "UTC"), from_pandas=True)


WRITTEN: Mapping[ClockName, str] = {
    "seconds": "seconds of the file's own clock",
    "unix": "seconds since 1970",
    "unix-ms": "milliseconds since 1970",
    "timestamp": "ISO 8601 dates",
}


def _format(cell: str) -> ClockName:
    """Return the format of a time; seconds since 1970 exceed the longest span of a trace's own clock."""
    if ":" in cell or cell.count("-") > 1:
        return "timestamp"
    try:
        number = float(cell)
    except ValueError:
        return "seconds"
    return "seconds" if number <= LONGEST_S else "unix" if number <= LATEST_S else "unix-ms"


@dataclass(slots=True)
class ArrivalParser:
    """Parser of a column of arrivals, batch after batch.

    Attributes:
        name: "seconds", "unix" and "unix-ms" are numbers, "timestamp" is ISO 8601; "auto" becomes one of them with
            the first cell.
        notes: notes of the trace; the format of arrivals is added once the first cell is read.
    """

    name: ClockName
    stamps: Timestamps
    notes: dict[str, Any]

    def read(self, cells: pa.ChunkedArray, origin: Origin) -> pa.Array | pa.ChunkedArray:
        """Return arrivals, (n,): float64 seconds ("unix-ms" divided by 1000), or UTC timestamps in microseconds.

        Raises TraceError naming the first cell of another format.
        """
        if self.name == "auto":
            first = next((cell for cell in cells.to_pylist() if cell is not None), "0")
            self.name = _format(first.strip())
        self.notes["arrival_written"] = WRITTEN[self.name]
        if self.name == "timestamp":
            return self.stamps.read(cells, origin, "arrival_s")
        seconds = numbers(cells, origin, "arrival_s")
        return pc.divide(seconds, 1000.0) if self.name == "unix-ms" else seconds
