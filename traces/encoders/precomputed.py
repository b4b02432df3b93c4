"""Vectors of prompts made by the user with another model, looked up by prompt."""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mezzotint.files.digest import digest
from mezzotint.traces.encoders.vectors import BLOCK, Floats, map_vectors, unit
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.limits import regular_file
from mezzotint.traces.table.validation import excerpt

PROMPT, VECTOR = "prompt", "vector"
"""Columns of the user's file."""

APART = 1e-3
"""Largest difference of numbers of two equal unit vectors; half precision is that exact."""

READ_BYTES = 1 << 20


@dataclass
class Precomputed:
    """Encoder that looks vectors up in a file and scales them to length 1; an empty prompt is all zeros.

    The file is read once, piece by piece, and every vector is checked. Vectors of a Parquet file are then kept in a
    temporary file; those of an ``.npy`` file are read in place.

    Args:
        path: a Parquet file with the columns ``prompt`` (text) and ``vector`` (lists of d numbers); or an ``.npy``
            file of (n, d) numbers.
        prompts: with an ``.npy`` file, a Parquet file of n rows with a column ``prompt``, such as the trace itself;
            null otherwise.

    Raises:
        TraceError: ``prompts`` does not go with ``path``. At first use: a file is missing, damaged or lacks a column.
            A vector is null, not finite, of another length, or all zeros for a prompt that is not empty. A prompt
            has two different vectors, or none.
    """

    path: str | Path
    prompts: str | Path | None = None

    def __post_init__(self) -> None:
        if (Path(self.path).suffix == ".npy") != (self.prompts is not None):
            raise TraceError(
                f"encoder: path={self.path}, prompts={self.prompts}; expected prompts=PARQUET with an .npy file, and "
                "prompts=null with a Parquet file, which holds the prompts itself"
            )

    @cached_property
    def name(self) -> str:
        return f"given-{digest(self._files(), TraceError)[:16]}-v1"

    @cached_property
    def dim(self) -> int:
        if self.prompts is not None:
            return int(map_vectors(Path(self.path)).shape[1])
        for batch in _batches(Path(self.path), [VECTOR], 1):
            return int(_numbers(batch.column(0), None, 0, Path(self.path)).shape[1])
        raise TraceError(f"{self.path}: found no rows, expected a vector per prompt; name another file")

    def encode(self, prompts: Sequence[str], progress: bool) -> Floats:
        row_of, rows = self._table
        vectors = np.zeros((len(prompts), rows.shape[1]), np.float32)
        filled = [index for index, prompt in enumerate(prompts) if prompt.strip()]
        missing = [prompts[index] for index in filled if _key(prompts[index]) not in row_of]
        if missing:
            raise TraceError(
                f"{self._files()[-1]}: has no vector for {len(missing)} of {len(filled)} prompts searched, the "
                f"first is {excerpt(repr(missing[0]))}; add them, each exactly as the trace spells it"
            )
        if filled:
            vectors[filled] = unit(rows[[row_of[_key(prompts[index])] for index in filled]], 0, Path(self.path))
        return vectors

    def _files(self) -> list[Path]:
        return [Path(path) for path in (self.path, self.prompts) if path is not None]

    @cached_property
    def _table(self) -> tuple[dict[bytes, int], NDArray[Any]]:
        """Rows of the prompts, by hash, and the checked vectors."""
        path, row_of, row = Path(self.path), dict[bytes, int](), 0
        repeats: list[tuple[int, int]] = []
        copy = None if self.prompts else tempfile.TemporaryFile(prefix="mezzotint-")  # noqa: SIM115
        for prompts, block in self._pieces():
            scaled = unit(block, row, path)
            lengths = np.abs(scaled).max(axis=1).tolist()
            for at, (prompt, length) in enumerate(zip(prompts, lengths, strict=True), row):
                if not prompt or not prompt.strip():
                    continue
                if not length:
                    found = f"{path}: row {at}: found a vector of zeros for {excerpt(repr(prompt))}"
                    raise TraceError(f"{found}, expected a direction; encode the prompt again or drop the row")
                first = row_of.setdefault(_key(prompt), at)
                if first != at:
                    repeats.append((first, at))
            if copy is not None:
                copy.write(scaled.tobytes())
            row += len(prompts)
        if copy is not None:
            copy.flush()
        rows = map_vectors(path) if copy is None else np.memmap(copy, np.float32, "r", shape=(row, self.dim))
        for start in range(0, len(repeats), BLOCK):
            one, other = np.array(repeats[start : start + BLOCK]).T
            gap = np.abs(unit(rows[one], 0, path) - unit(rows[other], 0, path)).max(axis=1)
            if (gap > APART).any():
                at = int(np.flatnonzero(gap > APART)[0])
                raise TraceError(
                    f"{self._files()[-1]}: rows {one[at]} and {other[at]} hold one prompt and their vectors disagree "
                    f"by {gap[at]:.2g}, expected {APART:g} at most; keep one of them"
                )
        return row_of, rows

    def _pieces(self) -> Iterator[tuple[list[str | None], NDArray[Any]]]:
        """Yield the prompts and their vectors, some rows at a time."""
        path, row, dim = Path(self.path), 0, self.dim
        if self.prompts is None:
            for batch in _batches(path, [PROMPT, VECTOR], BLOCK):
                yield batch.column(0).to_pylist(), _numbers(batch.column(1), dim, row, path)
                row += len(batch)
            return
        vectors = map_vectors(path)
        for batch in _batches(Path(self.prompts), [PROMPT], BLOCK, len(vectors)):
            yield batch.column(0).to_pylist(), vectors[row : row + len(batch)]
            row += len(batch)


def _key(prompt: str) -> bytes:
    """Return a hash that stands for the prompt, so that a million prompts take 140 MB."""
    return hashlib.blake2b(prompt.encode(), digest_size=16).digest()


def _batches(path: Path, columns: list[str], size: int, rows: int | None = None) -> Iterator[pa.RecordBatch]:
    """Yield columns of a Parquet file by ``size`` rows; with ``rows``, the file must have that many."""
    regular_file(path)
    try:
        # with pre-buffering, Arrow keeps all that was read of the file in memory
        file = pq.ParquetFile(pa.OSFile(str(path)), pre_buffer=False, buffer_size=READ_BYTES)
        names, count = file.schema_arrow.names, file.metadata.num_rows
        for column in columns:
            if column not in names:
                raise TraceError(f"{path}: found columns {', '.join(names)}, expected one named {column}; rename it")
        kind = file.schema_arrow.field(PROMPT).type if PROMPT in columns else pa.string()
        if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
            raise TraceError(f"{path}: column {PROMPT}: found {kind}, expected text; write it as strings")
        if rows not in (None, count):
            raise TraceError(f"{path}: found {count} prompts, expected {rows}, one per vector; name the vectors' own")
        for batch in file.iter_batches(size, columns=columns):
            yield batch.select(columns)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # the last: a column's name
        raise TraceError(f"{path}: cannot be read as Parquet ({excerpt(str(error))}); write it again") from error


def _numbers(column: pa.Array, dim: int | None, first: int, path: Path) -> NDArray[Any]:
    """Return lists of numbers as (k, d); ``dim`` is the d of earlier rows, ``first`` the number of the first row."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise TraceError(f"{path}: column {VECTOR}: found {kind}, expected lists of numbers; write it again")
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    width = int(lengths[0]) if dim is None else dim
    if (lengths != width).any() or width == 0:
        at = int(np.flatnonzero((lengths != width) | (lengths == 0))[0])
        found = f"{lengths[at]} numbers" if column[at].is_valid else "null"
        raise TraceError(
            f"{path}: row {first + at}, column {VECTOR}: found {found}, expected {width or 'some'} as in the first "
            "row; correct or drop the row"
        )
    values = column.flatten()
    if values.null_count:
        at = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // width
        raise TraceError(f"{path}: row {first + at}, column {VECTOR}: found a null among the numbers; correct the row")
    numbers: NDArray[Any] = values.to_numpy(zero_copy_only=False).reshape(-1, width)
    return numbers
