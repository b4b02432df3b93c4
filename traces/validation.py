"""What makes a trace valid, cell by cell, in messages that a person can act on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traces.error import TraceError

POSITIVE = ("width", "height", "steps", "images")


@dataclass(frozen=True, slots=True)
class Origin:
    """How to point at a cell in the terms of the file that it came from.

    Attributes:
        where: the file's name.
        columns: canonical column name -> the source's name for it, where they differ.
        rows: (n,) row numbers in the source of the rows at hand; None if they are 0..n-1.
    """

    where: str
    columns: Mapping[str, str] = field(default_factory=dict)
    rows: npt.NDArray[np.int64] | None = None

    def row(self, index: int) -> int:
        """The source's number of the row at position `index`."""
        return index if self.rows is None else int(self.rows[index])

    def cell(self, index: int, column: str) -> str:
        """The start of a message: file, row, column."""
        return f"{self.where}: row {self.row(index)}, column {self.columns.get(column, column)}"


def shown(text: str, limit: int = 120) -> str:
    """`text` on one line, cut to `limit` characters, fit for an error message."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def check_cells(table: pa.Table, origin: Origin) -> None:
    """Check every rule of a canonical trace that does not depend on the order of its rows.

    Args:
        table: columns as in `traces.schema.SCHEMA`, (n, 12).
        origin: how to name the file, its rows and columns.

    Raises:
        TraceError: see `traces.schema.validate`.
    """
    if table.num_rows == 0:
        raise TraceError(f"{origin.where}: found no rows, expected at least one request; name another file")
    try:
        table.validate(full=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise TraceError(
            f"{origin.where}: holds data that is not valid ({shown(str(error))}), expected UTF-8 text and"
            " whole columns; write the file again"
        ) from error
    for name in ("request_id", "arrival_s"):
        _refuse(table, name, pc.is_null(table.column(name)), "a value", origin)
    arrival_s = table.column("arrival_s")
    bad = pc.or_(pc.invert(pc.is_finite(arrival_s)), pc.less(arrival_s, 0.0))
    _refuse(table, "arrival_s", bad, "finite seconds, 0 or later", origin)
    for name in POSITIVE:
        _refuse(table, name, pc.less_equal(table.column(name), 0), "a positive integer", origin)
    _refuse(table, "seed", pc.less(table.column("seed"), 0), "an integer, 0 or more, or null", origin)
    _check_unique(table.column("request_id"), origin)


def check_order(table: pa.Table, origin: Origin) -> None:
    """Check that arrivals never fall.

    Raises:
        TraceError: a row arrives before the row above it.
    """
    arrival_s = table.column("arrival_s").to_numpy()
    falls = np.flatnonzero(arrival_s[1:] < arrival_s[:-1])
    if falls.size:
        index = int(falls[0]) + 1
        raise TraceError(
            f"{origin.cell(index, 'arrival_s')}: found {arrival_s[index]}, expected at least"
            f" {arrival_s[index - 1]} as in the row before; sort the rows by arrival"
        )


def _refuse(table: pa.Table, column: str, bad: Any, expected: str, origin: Origin) -> None:
    # pc.index has no notion of null, and a null comparison is not a fault
    index = pc.index(pc.fill_null(bad, False), True).as_py()
    if index >= 0:
        value = table.column(column)[index].as_py()
        found = "null" if value is None else shown(repr(value))
        raise TraceError(f"{origin.cell(index, column)}: found {found}, expected {expected}; fix or drop the row")


def _check_unique(ids: pa.ChunkedArray, origin: Origin) -> None:
    if pc.count_distinct(ids).as_py() == len(ids):
        return
    seen: dict[str, int] = {}
    for index, name in enumerate(ids.to_pylist()):
        if name in seen:
            raise TraceError(
                f"{origin.cell(index, 'request_id')}: found {shown(repr(name))}, which row"
                f" {origin.row(seen[name])} has already, expected a unique name; rename or drop the row"
            )
        seen[name] = index


def check_number(
    where: str,
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
) -> None:
    """Check a setting typed by hand, where text and true or false turn up as well as numbers.

    Raises:
        TraceError: `value` is not a finite number, or not > `above`, >= `least` and <= `most`.
    """
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if fits and above < value and least <= value <= most:  # type: ignore[operator]
        return
    bounds = [f"above {above:g}"] if above > -math.inf else []
    bounds += [f"at least {least:g}"] if least > -math.inf else []
    bounds += [f"at most {most:g}"] if most < math.inf else []
    raise TraceError(f"{where}: {name}={value!r}, expected a finite number, {' and '.join(bounds)}")


def check_count(where: str, name: str, value: object) -> None:
    """Check that a setting is a whole number of 1 or more. Raises TraceError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TraceError(f"{where}: {name}={value!r}, expected a whole number, 1 or more")
