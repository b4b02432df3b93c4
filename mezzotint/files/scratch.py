"""Long columns outside of a process's memory: in a file without a name, whose pages the system reads and drops."""

import mmap
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

MEMORY_BYTES = 64 << 20
"""Bytes of columns that stay in memory: those of 200,000 requests while they run."""

CHUNK_BYTES = 1 << 20
"""Bytes written at a time."""


class Scratch:
    """Columns in memory while they are short, and in files while they are long.

    A file is written in full before it is mapped, so that a full disk is an OSError here and no fault later. It has no
    name and goes with the last array on it.

    Args:
        folder: where the files are; None is the system's folder for temporary files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._maps: WeakSet[mmap.mmap] = WeakSet()
        self._left = MEMORY_BYTES

    def fits(self, length: int) -> bool:
        """Take ``length`` bytes of those that may stay in memory; return False if too few are left."""
        if length > self._left:
            return False
        self._left -= length
        return True

    def buffer(self, rows: int, value: NDArray[Any]) -> bytearray | mmap.mmap:
        """Return memory that holds ``value``, (1,), ``rows`` times end to end, and can be written."""
        if self.fits(rows * value.itemsize):
            return bytearray(value.tobytes()) * rows
        file, block = self.file(), value.tobytes() * (CHUNK_BYTES // value.itemsize)
        for left in range(rows * value.itemsize, 0, -len(block)):
            file.write(block[:left])  # in full, and not a hole, so that a full disk is an error here
        return self._map(file)

    def full(self, rows: int, value: Any, dtype: DTypeLike) -> NDArray[Any]:
        """Return a column of ``rows`` times ``value``, (rows,), that can be written."""
        return np.frombuffer(self.buffer(rows, np.full(1, value, dtype)), dtype)

    def growing(self, rows: int, dtype: DTypeLike) -> "Growing":
        """Return a column of at most ``rows`` that is written from its head on."""
        kind = np.dtype(dtype)
        return Growing(self, kind, np.empty(rows, kind) if self.fits(rows * kind.itemsize) else None)

    def copy(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return ``column``, (n,), or a copy of it in a file if it is long."""
        if not column.strides[0] or self.fits(column.nbytes):  # the first is of one value, which takes no memory
            return column
        copied, rows = self.growing(len(column), column.dtype), CHUNK_BYTES // column.itemsize
        for start in range(0, len(column), rows):
            copied.append(column[start : start + rows])
        return copied.array()

    def table(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the table of ``batches``, whose columns can be read and not written."""
        kept: list[pa.RecordBatch] = []
        file: IO[bytes] | None = None
        writer: pa.ipc.RecordBatchFileWriter | None = None
        for batch in batches:
            kept.append(batch)
            if writer is None and not self.fits(batch.nbytes):
                file = self.file()
                writer = pa.ipc.new_file(pa.PythonFile(file, "w"), schema)
            if writer is not None:
                for each in kept:
                    writer.write_batch(each)
                kept = []
        if writer is None or file is None:
            return pa.Table.from_batches(kept, schema)
        writer.close()
        return pa.ipc.open_file(pa.py_buffer(self._map(file))).read_all()

    def file(self) -> IO[bytes]:
        """Return a new file, open for reading and writing, without a name."""
        return tempfile.TemporaryFile(dir=self._folder)

    def mapped(self, file: IO[bytes], dtype: DTypeLike) -> NDArray[Any]:
        """Return the content of ``file`` as an array of ``dtype``; what is written there is in the file."""
        return np.frombuffer(self._map(file), dtype)

    @property
    def has_files(self) -> bool:
        """True if a column is in a file."""
        return len(self._maps) > 0

    def _map(self, file: IO[bytes]) -> mmap.mmap:
        file.flush()
        made = mmap.mmap(file.fileno(), 0)
        self._maps.add(made)
        return made

    def release(self) -> None:
        """Let the pages of all files go, which are read again where they are used; for the system to write them."""
        if hasattr(mmap, "MADV_DONTNEED"):  # where it is not, the system takes them when it lacks memory
            for each in self._maps:
                each.madvise(mmap.MADV_DONTNEED)


class Growing:
    """A column that is written from its head on: in ``memory``, or in a file if that is None."""

    def __init__(self, scratch: Scratch, dtype: np.dtype[Any], memory: NDArray[Any] | None) -> None:
        self._scratch, self._dtype, self._memory, self._length = scratch, dtype, memory, 0
        self._file = scratch.file() if memory is None else None

    def append(self, values: NDArray[Any]) -> None:
        """Write ``values``, (n,), after those before."""
        if self._file is not None:
            self._file.write(values.astype(self._dtype, copy=False).tobytes())
        elif self._memory is not None:
            self._memory[self._length : self._length + len(values)] = values
        self._length += len(values)

    def array(self) -> NDArray[Any]:
        """Return what was written, which can be changed."""
        if self._file is None or not self._length:
            return np.empty(0, self._dtype) if self._memory is None else self._memory[: self._length]
        return self._scratch.mapped(self._file, self._dtype)
