"""Conversion of text cells to numbers and times, with errors that name the cell."""

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.validation import Origin, excerpt

ZONE = r"[T ].*([zZ]|[+-]\d{2}(:?\d{2})?)\s*$"
"""Pattern of a time with a zone."""


def refusal(origin: Origin, index: int, column: str, found: str, expected: str) -> TraceError:
    """Return the error for a cell of ``column`` that holds ``found`` instead of ``expected``."""
    return TraceError(
        f"{origin.cell(index, column)}: found {excerpt(found, 60)}, expected {expected}; fix or drop the row"
    )


def integers(cells: pa.ChunkedArray, origin: Origin, column: str, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    """Return text as ``kind`` (int64), (n,); "50.0" is 50. Raises TraceError naming the first cell that is none."""
    whole = pc.replace_substring_regex(pc.utf8_trim_whitespace(cells), r"\.0*$", "")
    expected = "a whole number from 0 to 2^64 - 1" if kind == pa.uint64() else "a whole number"
    return _cast(whole, cells, kind or pa.int64(), expected, origin, column)


def numbers(cells: pa.ChunkedArray, origin: Origin, column: str) -> pa.ChunkedArray:
    """Return text as float64, (n,). Raises TraceError naming the first cell that is no number."""
    return _cast(pc.utf8_trim_whitespace(cells), cells, pa.float64(), "a number", origin, column)


def name_of(item: Any) -> str | None:
    """Return the name of a model or an add-on, a text or an object with a name."""
    if isinstance(item, dict):
        keys = ("name", "lora_name", "model", "path", "lora_path", "id")
        item = next((item[key] for key in keys if isinstance(item.get(key), str)), None)
    return None if item is None else str(item)


def unit_of(kind: pa.DataType) -> str | None:
    """Return the unit of durations, whose cells `as_text` counts in it; None for another kind."""
    return str(kind.unit) if pa.types.is_duration(kind) else None


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return a column's cells as text, (n,), "" and NaN as null, lists as JSON; None for a kind without such values."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        texts = [None if cell is None else json.dumps(cell, default=str) for cell in column.to_pylist()]
        column = pa.chunked_array([pa.array(texts, pa.string())])
    elif pa.types.is_nested(kind) or pa.types.is_binary(kind):
        return None
    elif not pa.types.is_string(kind):
        if pa.types.is_floating(kind):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        try:
            column = column.cast(pa.string())
        except (pa.ArrowException, pa.ArrowNotImplementedError):
            return None
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def pointed(cells: pa.ChunkedArray, origin: Origin, name: str) -> pa.ChunkedArray:
    """Return numbers with a decimal comma as numbers with a point; other cells stay.

    Raises TraceError if each comma may as well stand between thousands.
    """
    both = pc.match_substring_regex(cells, r"^\s*[+-]?\d{1,3}(,\d{3})+\.\d+\s*$").fill_null(False)
    if pc.any(both).as_py():  # 1,234.5: both marks say which is which, here and in the cells with one
        return pc.replace_substring(cells, ",", "")
    if pc.any(pc.match_substring_regex(cells, r"^\s*[+-]?\d{1,3}(\.\d{3})+,\d+\s*$").fill_null(False)).as_py():
        return pc.replace_substring(pc.replace_substring(cells, ".", ""), ",", ".")
    commas = pc.match_substring_regex(cells, r"^\s*[+-]?\d+,\d+\s*$").fill_null(False)
    if not pc.any(commas).as_py():
        return cells
    decimal = pc.match_substring_regex(cells, r"^\s*[+-]?(0\d*|\d{4,}),\d+\s*$|,(\d{1,2}|\d{4,})\s*$")
    if not pc.any(decimal.fill_null(False)).as_py():
        index = pc.index(commas, pa.scalar(True)).as_py()
        raise refusal(
            origin, index, name, repr(cells[index].as_py()),
            "a number whose comma is clearly decimal or between thousands; write it with a point or without",
        )  # fmt: skip
    return pc.replace_substring_regex(cells, r"^(\s*[+-]?\d+),(\d+\s*)$", r"\1.\2")


def are_dates(cells: pa.ChunkedArray) -> bool:
    """Return True if the first cell that is not null looks like a date."""
    first = next((cell for cell in cells.to_pylist() if cell is not None), "")
    return ":" in first or len(re.findall(r"[-/.]", first)) > 1


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
    """Parser of times, all with a zone or all without.

    Attributes:
        zoned: whether they have a zone; None before the first.
        unit: the finest unit kept; nanoseconds where there are none become microseconds.
    """

    zoned: bool | None = None
    unit: Literal["us", "ns"] = "us"

    def read(
        self, cells: pa.ChunkedArray, origin: Origin, column: str, written: pa.ChunkedArray | None = None
    ) -> pa.Array:
        """Return ISO 8601 cells as UTC, (n,) timestamps; null stays null.

        Times of several zones are converted to UTC; times without a zone are UTC. Raises TraceError naming the first
        cell that is no time, or that differs from earlier ones in having a zone.

        Args:
            written: the cells as the file has them, for messages.
        """
        text = pd.Series(cells.to_pylist(), dtype="object")
        times = pd.to_datetime(text, utc=True, format="ISO8601", errors="coerce")
        bad = np.flatnonzero((times.isna() & text.notna()).to_numpy())
        if bad.size:
            found = repr((cells if written is None else written)[int(bad[0])].as_py())
            zone = " with the offset of its zone, not its name," if re.search(r"\d ?[A-Za-z_/]{2,}'$", found) else ""
            raise refusal(origin, int(bad[0]), column, found, f"a time{zone} such as 2022-08-14 00:45:00+00:00")
        for index, zoned in enumerate(pc.match_substring_regex(cells, ZONE).to_pylist()):
            self.zoned = zoned if self.zoned is None else self.zoned
            if zoned not in (None, self.zoned):
                found, before = ("a zone", "none") if zoned else ("no zone", "one")
                raise TraceError(
                    f"{origin.cell(index, column)}: found {excerpt(repr(text.iloc[index]))} with {found}, expected"
                    f" {before} as in the rows before; write all times with their zone or all without (UTC)"
                )
        finest = times.dt.as_unit("us")
        unit = self.unit if (times.dropna() != finest.dropna()).any() else "us"
        return pa.array(times if unit == "ns" else finest, pa.timestamp(unit, "UTC"), from_pandas=True)
