"""The reader of tables of requests: from pieces of a file with declared columns to batches of a trace."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.cells import integers, numbers
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import Batch, Reading, order_times, own_clock
from mezzotint.traces.table.validation import Origin, excerpt

Content = TypeVar("Content", pa.Table, list[Any])

Rows = npt.NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class Columns:
    """The columns of a file, as they are read.

    Attributes:
        where: the file's name.
        names: canonical name -> the file's name of that column.
        notes: notes of the trace, to add to.
        kept: number of rows kept so far.
    """

    where: str
    names: Mapping[str, str]
    notes: dict[str, Any] = field(default_factory=dict)
    kept: int = 0

    def require(self, header: list[str], *more: str) -> None:
        """Raise TraceError if the file lacks a declared column, or one of ``more``."""
        for name in (*self.names.values(), *more):
            if name not in header:
                raise TraceError(
                    f"{self.where}: column {name!r} is missing, found {excerpt(', '.join(header))}; check the file or"
                    " the map"
                )

    def origin(self, rows: Rows) -> Origin:
        """Return the names of these rows, for messages."""
        return Origin(self.where, self.names, rows)

    def cells(self, table: pa.Table, origin: Origin, *but: str) -> dict[str, Any]:
        """Return the declared columns, (n,) each, without arrivals and ``but``; text as the type that a trace has.

        Raises TraceError naming the first cell that is not of that type.
        """
        return {
            name: self._converted(table.column(theirs), name, origin)
            for name, theirs in self.names.items()
            if name not in ("arrival_s", *but)
        }

    def _converted(self, cells: pa.ChunkedArray, name: str, origin: Origin) -> pa.ChunkedArray | pa.Array:
        kind = SCHEMA.field(name).type
        if not pa.types.is_string(cells.type) or pa.types.is_string(kind):
            return cells
        if pa.types.is_list(kind):
            parts = [
                None if cell is None else [part.strip() for part in cell.split(";") if part.strip()]
                for cell in cells.to_pylist()
            ]
            return pa.array(parts, kind)
        return (integers if pa.types.is_integer(kind) else numbers)(cells, origin, name)

    def keep(self, rows: Rows, reasons: Mapping[str, npt.NDArray[np.bool_]]) -> Rows:
        """Return the positions of the rows without a reason to skip them; count the others by their first reason."""
        skipped = self.notes.setdefault("skipped", {})
        keep = np.ones(len(rows), np.bool_)
        for reason, holds in reasons.items():
            skipped[reason] = skipped.get(reason, 0) + int((keep & holds).sum())
            keep &= ~holds
        self.notes["rows"] = self.notes.get("rows", 0) + len(rows)
        self.kept += int(keep.sum())
        return np.flatnonzero(keep)

    def check_kept(self, remedy: str, detail: str = "") -> None:
        """Raise TraceError if the file has rows and none is kept."""
        rows = self.notes.get("rows", 0)
        if rows and not self.kept:
            raise TraceError(f"{self.where}: no requests are left of {rows:,}{detail}; {remedy}")


def make_reading(
    source: Any,
    origin: str,
    batches: Iterator[Batch],
    notes: dict[str, Any],
    settle: Callable[[pa.Table], pa.Table] = own_clock,
) -> Reading:
    """Return the reading of a source's file; ``origin`` describes it in words."""
    path = Path(source.path).expanduser()
    name = source.name or path.name.split(".")[0]
    return Reading(
        where=str(path), name=name, source=origin, batches=batches, notes=notes, settle=settle, limits=source.limits
    )


def with_row_numbers(pieces: Iterable[Content]) -> Iterator[tuple[Rows, Content]]:
    """Yield the numbers of the rows, counted from 0, with each piece of a file."""
    first = 0
    for piece in pieces:
        yield np.arange(first, first + len(piece)), piece
        first += len(piece)


def untimed_batch(columns: Mapping[str, Any], origin: Origin, first: int) -> Batch:
    """Return a batch that has an order and no times; ``first`` requests precede it."""
    return Batch(columns, order_times(len(next(iter(columns.values()))), first), origin, relative=True)
