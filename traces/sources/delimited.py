"""Tables of requests as delimited text (CSV, TSV), plain or gzipped, with a map of the columns."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import typer

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.formats.cells import ArrivalParser, ClockName, Timestamps
from mezzotint.traces.sources.formats.delimited import read_delimited
from mezzotint.traces.sources.reader import Columns, make_reading, with_row_numbers
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import ORDER_ONLY, Batch, Reading, order_times, own_clock, since_earliest
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import excerpt

BY_NAME: Mapping[str, frozenset[str]] = {
    "prompt": frozenset({"prompt", "prompts", "text", "caption", "captions"}),
    "arrival_s": frozenset({
        "arrival_s", "arrival", "arrival_time", "arrived_at", "timestamp", "time", "ts", "datetime", "date_time",
        "created", "created_at", "request_time", "received_at", "submitted_at",
    }),
    "user_id": frozenset({"user_id", "userid", "user", "user_name", "username"}),
}  # fmt: skip
"""Canonical name -> usual names of the column in other tables, in lower case."""


@dataclass(slots=True, kw_only=True)
class Csv(Streamed):
    """A delimited text file with a header, UTF-8, plain or gzipped.

    Columns with a canonical name (see `columns.SCHEMA`) need no mapping, nor does the one column with
    another usual name of a prompt, a time or a user (`BY_NAME`). Other columns are dropped and named in the notes. An
    empty cell is null, an empty line is no row. The rows are sorted by arrival, ties in the file's order. A missing
    request_id becomes the number of the row.

    Without a column of arrivals, request i arrives at i seconds: an order and no times. The notes say so; choose an
    arrival process for such a trace.

    Args:
        path: the file; a leading ~ is the home folder.
        columns: canonical name -> the file's name of that column, or "" for none; other columns go by their own
            names.
        delimiter: one character between cells; a tab may be written as backslash and t.
        quote: the character around cells that contain the delimiter; None if quotes are plain characters.
        no_quotes: treat quotes as plain characters, whatever `quote` is.
        list_separator: separator of the names in controlnets and loras.
        arrival: format of arrivals. "seconds" are of the trace's own clock and kept. "unix" seconds, milliseconds
            since 1970 ("unix-ms") and ISO 8601 "timestamp" count from the earliest. "auto" decides by the first
            cell: a number of 1e9 or more counts from 1970. Timestamps have a zone in all rows, or in none (UTC).

    Raises TraceError if the delimiter or quote is not one character.
    """

    NAME: ClassVar = "csv"

    path: str | Path
    columns: Annotated[dict[str, str], typer.Option("--map", metavar="CANONICAL=SOURCE")] = field(default_factory=dict)
    delimiter: str = ","
    quote: str | None = '"'
    no_quotes: bool = False
    list_separator: str = ";"
    arrival: ClockName = "auto"
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.delimiter = {r"\t": "\t"}.get(self.delimiter, self.delimiter)
        self.quote = None if self.no_quotes else self.quote
        if not self.list_separator:
            raise TraceError(f"{self.path}: list_separator='', expected a separator of names, such as ';'")
        for setting, value in (("delimiter", self.delimiter), ("quote", '"' if self.quote is None else self.quote)):
            if len(value) != 1 or not value.isascii() or value in "\r\n\0":
                raise TraceError(f"{self.path}: {setting}={value!r}, expected one ASCII character")

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        header, tables = read_delimited(path, self.limits, delimiter=self.delimiter, quote=self.quote)
        names = self._names(header, path)
        notes: dict[str, Any] = {"file": path.name, "columns": dict(names)}
        dropped = [name for name in header if name not in names.values()]
        if dropped:
            notes["columns_left_out"] = dropped
        if "arrival_s" not in names:
            notes["arrival_s"] = ORDER_ONLY
        clock = ArrivalParser(self.arrival, Timestamps(), notes)
        columns = Columns(where=str(path), names=names, list_separator=self.list_separator)

        def settle(table: pa.Table) -> pa.Table:  # the meaning of "auto" is known once the first cell was read
            is_own = "arrival_s" not in names or clock.name == "seconds"
            return (own_clock if is_own else since_earliest)(table)

        batches = self._batches(tables, columns, clock)
        return make_reading(self, f"delimited text, {path.name}", batches, notes, settle)

    def _batches(self, tables: Iterator[pa.Table], columns: Columns, clock: ArrivalParser) -> Iterator[Batch]:
        for rows, table in with_row_numbers(tables):
            origin = columns.origin(rows)
            cells = columns.cells(table, origin)
            if "arrival_s" in columns.names:
                times = clock.read(table.column(columns.names["arrival_s"]), origin)
            else:
                times = order_times(len(rows), int(rows[0]))
            yield Batch(cells, times, origin, relative=clock.name == "seconds")

    def _names(self, header: list[str], path: Path) -> dict[str, str]:
        for name, source in self.columns.items():
            if name not in SCHEMA.names:
                raise TraceError(
                    f"{path}: cannot map {source!r} to {name!r}, expected a column of a trace:"
                    f" {', '.join(SCHEMA.names)}"
                )
        Columns(where=str(path), names={name: source for name, source in self.columns.items() if source}).require(
            header
        )
        chosen = {**{name: name for name in header if name in SCHEMA.names}, **self.columns}
        by_name = {name: _by_name(header, name, chosen, path) for name in BY_NAME if name not in chosen}
        names = {name: source for name, source in {**chosen, **by_name}.items() if source}
        if not names:
            raise TraceError(
                f"{path}: found the columns {excerpt(', '.join(header))}, none of which is a column of a trace;"
                " map some with canonical=source"
            )
        return names


def _by_name(header: list[str], name: str, chosen: Mapping[str, str], path: Path) -> str:
    """Return the one column with a usual name of ``name``, "" if there is none.

    Raises TraceError if there are several.
    """
    candidates = [
        column
        for column in header
        if column not in chosen.values() and re.sub(r"[\s-]+", "_", column.strip().lower()) in BY_NAME[name]
    ]
    if len(candidates) > 1:
        raise TraceError(
            f"{path}: found the columns {excerpt(', '.join(candidates))}, each of which may be {name}; choose one, as"
            f" in --map {name}={excerpt(candidates[0])}, or --map {name}= for none"
        )
    return candidates[0] if candidates else ""
