"""Tables that may be larger than memory: kept on disk, sorted by an external merge.

Source: Knuth, The Art of Computer Programming, volume 3, section 5.4 (merging sorted runs).
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

RUN_BYTES = 1 << 25
"""Bytes of rows that are sorted in memory at once."""

FAN_IN = 32
"""Runs merged at once: their blocks together are as large as one run."""


class Spool:
    """A table to append to, on disk.

    Args:
        path: the file, in Arrow's IPC format.
        schema: the table's columns.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._path, self._schema = path, schema
        self._writer = pa.ipc.new_file(str(path), schema)

    def append(self, table: pa.Table) -> None:
        """Add rows, in blocks of about RUN_BYTES / FAN_IN bytes."""
        if table.num_rows:
            fit = RUN_BYTES // FAN_IN * table.num_rows // max(table.nbytes, 1)
            self._writer.write_table(table, max_chunksize=max(fit, 1))
            self.rows += table.num_rows

    def close(self) -> None:
        """End the writing; reading may begin."""
        self._writer.close()

    def remove(self) -> None:
        """Free the disk."""
        self._path.unlink(missing_ok=True)

    def tables(self) -> Iterator[pa.Table]:
        """The rows in order, block after block, each read from the disk when it is asked for."""
        with pa.OSFile(str(self._path)) as file:
            reader = pa.ipc.open_file(file)
            for index in range(reader.num_record_batches):
                yield pa.Table.from_batches([reader.get_batch(index)])

    def column(self, name: str) -> Iterator[pa.Array]:
        """The values of one column in order; the others are not read."""
        options = pa.ipc.IpcReadOptions(included_fields=[self._schema.get_field_index(name)])
        with pa.OSFile(str(self._path)) as file:
            reader = pa.ipc.open_file(file, options=options)
            for index in range(reader.num_record_batches):
                yield reader.get_batch(index).column(0)


class Runs:
    """Sorts a table of any length by one of its columns; equal keys keep their order.

    Args:
        key: the column to sort by, of integers, floats or timestamps, without nulls and NaN.
        folder: where sorted runs go once there are more than `RUN_BYTES` of rows; None keeps all of
            them in memory.
    """

    def __init__(self, key: str, folder: Path | None) -> None:
        self.rows = 0
        self._key, self._folder = key, folder
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self._runs: list[Spool] = []
        self._made = 0

    def add(self, table: pa.Table) -> None:
        """Add rows behind those added before."""
        self.rows += table.num_rows
        self._held.append(table)
        self._held_bytes += table.nbytes
        if self._folder is not None and self._held_bytes > RUN_BYTES:
            self._spill([self._take_held()])

    def tables(self) -> Iterator[pa.Table]:
        """All rows in order, in pieces. May be called again, as long as nothing is added in between."""
        if self._runs and self._held:
            self._spill([self._take_held()])
        while len(self._runs) > FAN_IN:
            waiting, self._runs = self._runs, []
            for first in range(0, len(waiting), FAN_IN):
                group = waiting[first : first + FAN_IN]
                self._spill(merged([run.tables() for run in group], self._key))
                for run in group:
                    run.remove()
        if self._runs:
            yield from merged([run.tables() for run in self._runs], self._key)
        elif self._held:
            self._held = [self._take_held()]
            yield from self._held

    def _take_held(self) -> pa.Table:
        held, self._held, self._held_bytes = self._held, [], 0
        return ordered(held, self._key)

    def _spill(self, tables: Iterable[pa.Table]) -> None:
        assert self._folder is not None
        spool: Spool | None = None
        for table in tables:
            if spool is None:
                spool = Spool(self._folder / f"run{self._made}", table.schema)
            spool.append(table)
        if spool is not None:
            spool.close()
            self._runs.append(spool)
            self._made += 1


def ordered(tables: Sequence[pa.Table], key: str) -> pa.Table:
    """One table with the rows of all, by `key`; equal keys keep their order."""
    table = pa.concat_tables(tables)
    keys = _keys(table, key)
    if (keys[1:] >= keys[:-1]).all():
        return table
    return table.take(pa.array(np.argsort(keys, kind="stable")))


def merged(runs: Sequence[Iterator[pa.Table]], key: str) -> Iterator[pa.Table]:
    """Merge tables that are each sorted by `key` and come in pieces; equal keys keep the order of the runs.

    One piece of each run is held at a time.
    """
    heads = [next(run, None) for run in runs]
    keys = [None if head is None else _keys(head, key) for head in heads]
    while True:
        # nothing that is still to come sorts before the end of the piece that ends first
        ends = [(own[-1], index) for index, own in enumerate(keys) if own is not None]
        if not ends:
            return
        end, which = min(ends)
        parts = []
        for index, (head, own) in enumerate(zip(heads, keys, strict=True)):
            if head is None or own is None or own[0] > end:
                continue
            cut = int(np.searchsorted(own, end, side="right" if index <= which else "left"))
            if cut:
                parts.append(head.slice(0, cut))
                rest = head.slice(cut) if cut < len(own) else next(runs[index], None)
                heads[index] = rest
                keys[index] = None if rest is None else own[cut:] if cut < len(own) else _keys(rest, key)
        yield ordered(parts, key)


def regrouped(tables: Iterable[pa.Table], rows: int = 1 << 20) -> Iterator[pa.Table]:
    """The same rows in pieces of at most `rows`, and of at most about `RUN_BYTES`, yet not many small ones."""
    held: list[pa.Table] = []
    count = size = 0
    for table in tables:
        if held and (count + table.num_rows > rows or size + table.nbytes > RUN_BYTES):
            yield pa.concat_tables(held)
            held, count, size = [], 0, 0
        held.append(table)
        count, size = count + table.num_rows, size + table.nbytes
    if held:
        yield pa.concat_tables(held)


def _keys(table: pa.Table, key: str) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    column = table.column(key)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: npt.NDArray[np.int64] | npt.NDArray[np.float64] = column.to_numpy()
    return values
