"""Where traces come from: one small file for each source."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from traces.table.ingest import Batch, Reading, gather, order_times, own_clock
from traces.table.trace import Trace
from traces.table.validation import Origin, check_ranges

Piece = TypeVar("Piece", pa.Table, list[Any])


@runtime_checkable
class Source(Protocol):
    """Anything that can produce a canonical trace."""

    def load(self, rng: np.random.Generator) -> Trace:
        """Produce the trace, in memory.

        Args:
            rng: for whatever the source has to make up. Source and stream determine the digest.

        Raises TraceError: what the source reads is missing or malformed.
        """
        ...


class Streamed(Source, Protocol):
    """A source that is read from a file, batch by batch.

    A class in this package that names it as its base is a source of `mezzotint trace import`: called after its module,
    with the arguments of the class as options and their lines in its docstring as help. Each has a path, a name, which
    is what reports call the trace (the file's if None), and limits: how much is read.
    """

    def read(self, rng: np.random.Generator) -> Reading:
        """Open the source; `traces.table.ingest.store` of the reading and `load` give one and the same trace.

        Raises TraceError: the file is missing, cut short or of another format; a column or cell is not valid; nothing
        is left; most of it only when the reading's batches are read.
        """
        ...

    def load(self, rng: np.random.Generator) -> Trace:
        # the command and the configuration hold arguments to their annotations; a caller in Python comes straight here
        reading = self.read(rng)
        check_ranges(reading.where, self)
        check_ranges("limits", reading.limits)
        return gather(reading)


def make_reading(
    source: Any,
    said: str,
    batches: Iterator[Batch],
    notes: dict[str, Any],
    settle: Callable[[pa.Table], pa.Table] = own_clock,
) -> Reading:
    """Return the reading of a source's file; ``said`` tells in words where the trace came from."""
    path = Path(source.path).expanduser()
    name = source.name or path.name.split(".")[0]
    return Reading(
        where=str(path), name=name, source=said, batches=batches, notes=notes, settle=settle, limits=source.limits
    )


def with_row_numbers(pieces: Iterable[Piece]) -> Iterator[tuple[npt.NDArray[np.int64], Piece]]:
    """Yield each piece of a file after the numbers of its rows, counted from 0."""
    first = 0
    for piece in pieces:
        yield np.arange(first, first + len(piece)), piece
        first += len(piece)


def untimed_batch(columns: Mapping[str, Any], origin: Origin, first: int) -> Batch:
    """Return a batch that has an order and no times; ``first`` requests are before it."""
    return Batch(columns, order_times(len(next(iter(columns.values()))), first), origin, relative=True)


def keep_rows(
    count: int, reasons: Mapping[str, npt.NDArray[np.bool_]], skipped: dict[str, int]
) -> npt.NDArray[np.bool_]:
    """Return the rows that no reason leaves out, (count,); the others are counted by the first reason that holds."""
    keep = np.ones(count, np.bool_)
    for reason, holds in reasons.items():
        skipped[reason] = skipped.get(reason, 0) + int((keep & holds).sum())
        keep &= ~holds
    return keep
