"""Sources of traces: one file for each."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.traces.table.ingest import Batch, Reading, gather, order_times, own_clock
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.validation import Origin, check_ranges

Piece = TypeVar("Piece", pa.Table, list[Any])


@runtime_checkable
class Source(Protocol):
    """A source of a canonical trace."""

    def load(self, rng: np.random.Generator) -> Trace:
        """Return the trace, in memory.

        Args:
            rng: stream for values that the source draws. Source and stream determine the digest.

        Raises TraceError if the file of the source is missing or malformed.
        """
        ...


class Streamed(Source, Protocol):
    """A source that is read from a file, batch by batch.

    A subclass in this package is a source of `mezzotint trace import`, named after its module. Its arguments become
    options, and their lines in its docstring the help texts. Each has a path, a name of the trace in reports (the
    file's name if None), and limits on the bytes read.
    """

    def read(self, rng: np.random.Generator) -> Reading:
        """Open the source; `mezzotint.traces.table.ingest.store` of the reading gives the same trace as `load`.

        Raises TraceError if the file is missing, truncated or of another format, a column or cell is not valid, or no
        row is left. Most of these are raised while the reading's batches are read.
        """
        ...

    def load(self, rng: np.random.Generator) -> Trace:
        # the command line and the configuration check annotations; a caller in Python does not
        reading = self.read(rng)
        check_ranges(reading.where, self)
        check_ranges("limits", reading.limits)
        return gather(reading)


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


def with_row_numbers(pieces: Iterable[Piece]) -> Iterator[tuple[npt.NDArray[np.int64], Piece]]:
    """Yield the numbers of the rows, counted from 0, with each piece of a file."""
    first = 0
    for piece in pieces:
        yield np.arange(first, first + len(piece)), piece
        first += len(piece)


def untimed_batch(columns: Mapping[str, Any], origin: Origin, first: int) -> Batch:
    """Return a batch that has an order and no times; ``first`` requests precede it."""
    return Batch(columns, order_times(len(next(iter(columns.values()))), first), origin, relative=True)


def keep_rows(
    count: int, reasons: Mapping[str, npt.NDArray[np.bool_]], skipped: dict[str, int]
) -> npt.NDArray[np.bool_]:
    """Return True for rows without a reason to skip them, (count,); count the others by their first reason."""
    keep = np.ones(count, np.bool_)
    for reason, holds in reasons.items():
        skipped[reason] = skipped.get(reason, 0) + int((keep & holds).sum())
        keep &= ~holds
    return keep
