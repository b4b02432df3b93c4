"""The canonical trace: one typed table of requests in the order of their arrival."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mezzotint.files.atomic import atomic_write
from mezzotint.files.document import parse_json
from mezzotint.files.scratch import Growing, Scratch
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.columns import SCHEMA, TEXT, UNITS, check_cells, conform
from mezzotint.traces.table.digest import content_digest
from mezzotint.traces.table.limits import FREE_BYTES, RATIO, regular_file
from mezzotint.traces.table.validation import Origin, check_order, check_unique, excerpt

VERSION = 1
"""Version of the file layout, kept in the file's metadata."""

METADATA_KEY = b"mezzotint"

BLOCK = 1 << 16
"""Rows of a file that are read and checked together."""

ENCODED = 1 << 20
"""Texts that are encoded together: a copy of all is large, and all texts known before are read for each lot."""

ROW_BYTES = sum(
    kind.bit_width // 8 if pa.types.is_primitive(kind) else np.dtype(np.int32).itemsize for kind in SCHEMA.types
)
"""Bytes of a row in memory, without its texts; the most compressible traces take 24 times their file."""

ADDON_BYTES = "addon_bytes"
"""Key of the note on the sizes of add-ons: name -> bytes."""


@dataclass(frozen=True)
class LatePrompts:
    """Prompts that are made when they are first read, none of them null; most systems compare none.

    Attributes:
        recipe: names all that decides them.
        make: returns them, (n,).
    """

    recipe: str
    make: Callable[[], pa.ChunkedArray]

    @cached_property
    def texts(self) -> pa.ChunkedArray:
        """The prompts, (n,)."""
        return self.make()

    def take(self, rows: npt.NDArray[np.int64]) -> "LatePrompts":
        """Return the prompts of these rows."""
        recipe = hashlib.sha256(self.recipe.encode() + rows.astype(np.int64).tobytes()).hexdigest()
        return LatePrompts(recipe, lambda: self.texts.take(pa.array(rows)))


@dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival.

    Attributes:
        known: n rows with exactly the columns of `SCHEMA`; prompts that are made late are null.
        name: its name in reports.
        source: its origin, in words.
        identity: the digest, in which the recipe stands for late prompts.
        notes: JSON-able facts about it: licence, filters, rows skipped, whether it is synthetic.
        path: the file it was read from or written to, if any.
        late: the prompts, if they are made late.
        scratch: where the columns of a long trace are; None is memory.
    """

    known: pa.Table
    name: str
    source: str
    identity: str
    notes: dict[str, Any]
    path: Path | None = None
    late: LatePrompts | None = None
    scratch: Scratch | None = field(default=None, repr=False, compare=False)

    def __len__(self) -> int:
        return int(self.known.num_rows)

    @property
    def table(self) -> pa.Table:
        """All rows with exactly the columns of `SCHEMA`; this makes late prompts."""
        if self.late is None:
            return self.known
        place = SCHEMA.get_field_index("prompt")
        return self.known.set_column(place, SCHEMA.field(place), self.late.texts)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content (see `content_digest`); this makes late prompts."""
        return self.identity if self.late is None else content_digest(self.table, release=self.release)

    def release(self) -> None:
        """Let the pages of a long trace go; they are read again where they are used."""
        if self.scratch is not None:
            self.scratch.release()

    def cells(self, name: str) -> pa.ChunkedArray:
        """Return a column, (n,), as `SCHEMA` has it."""
        self.release()
        return self.late.texts if name == "prompt" and self.late is not None else self.known.column(name)

    def has(self, name: str) -> bool:
        """Return True if a request has a value in the column `name`; an empty list is none."""
        self.release()
        if name == "prompt" and self.late is not None:
            return True
        column = self.known.column(name)
        is_null = column.null_count == len(column)
        if is_null or not pa.types.is_list(column.type):
            return not is_null
        return any(pc.any(pc.greater(pc.list_value_length(piece), 0)).as_py() for piece in column.chunks)

    @cached_property
    def requests_of_several_images(self) -> int:
        """Number of requests that ask for several images."""
        self.release()
        pieces = self.known.column("images").chunks
        return sum(pc.sum(pc.greater(piece, 1)).as_py() or 0 for piece in pieces)

    @property
    def arrival_s(self) -> npt.NDArray[np.float64]:
        """Arrival times on the trace's own clock, shape (n,), seconds, never falling."""
        column = self.known.column("arrival_s")
        return np.asarray(column.chunk(0)) if column.num_chunks == 1 else self._whole(np.asarray, column, np.float64)

    def take(self, rows: npt.NDArray[np.int64]) -> "Trace":
        """Return a trace of these rows, in this order; arrivals may then fall, and names come twice."""
        return self._of(self.known.take(pa.array(rows)), rows)

    def head(self, rows: int) -> "Trace":
        """Return a trace of the first `rows` requests; the trace itself if it has no more."""
        if rows >= len(self):
            return self
        head = self.known.slice(0, rows)
        return self._of(head if self.scratch is not None else head.combine_chunks(), np.arange(rows))

    def _of(self, known: pa.Table, rows: npt.NDArray[np.int64]) -> "Trace":
        late = None if self.late is None else self.late.take(rows)
        return replace(
            self,
            known=known,
            identity=content_digest(known, late.recipe if late else None, self.release),
            late=late,
            path=None,
        )

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last."""
        arrival_s = self.known.column("arrival_s")
        return float(arrival_s[len(self) - 1].as_py() - arrival_s[0].as_py())

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a numeric column, (n,): float64 for `arrival_s`, `gen_s` and `slo_s`, int64 for the
        others.

        A null integer is -1, which no valid trace contains. A null float is NaN.
        """
        self.release()
        column = self.known.column(name)
        if column.null_count == len(column):  # of most columns, which then take no memory
            return np.broadcast_to(np.nan if pa.types.is_floating(column.type) else np.int64(-1), len(column))
        if pa.types.is_floating(column.type):
            return self._whole(np.asarray, column, np.float64)
        return self._whole(lambda piece: np.asarray(piece.cast(pa.int64()).fill_null(-1)), column, np.int64)

    def _whole(
        self, values: Callable[[pa.Array], npt.NDArray[Any]], column: pa.ChunkedArray, dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """Return ``values`` of a whole column, (n,)."""
        found = self._growing(dtype)
        for piece in column.chunks:
            found.append(values(piece))
            self.release()
        return found.array()

    def _growing(self, dtype: npt.DTypeLike) -> Growing:
        """Return a column to be written; it is in a file if the trace is in files."""
        is_long, kind = self.scratch is not None and self.scratch.has_files, np.dtype(dtype)
        return Growing(self.scratch or Scratch(), kind, None if is_long else np.empty(len(self), kind))

    def codes(self, name: str) -> npt.NDArray[np.int32]:
        """Return a whole number for every row, (n,): equal where the values of column ``name`` are equal, and -1 where
        there is none. An empty text is none, and the order of a list does not count."""
        return np.asarray(self.encoded(name).indices.fill_null(-1))

    def encoded(self, name: str) -> pa.DictionaryArray:
        """Return a column as a dictionary of its different values, and the number of its value for every row, as
        `codes` has them."""
        column = self.cells(name)
        if pa.types.is_list(column.type):
            lists = (None if names is None else sorted(name or "" for name in names) for names in column.to_pylist())
            column = pa.chunked_array([pa.array([None if names is None else repr(names) for names in lists], TEXT)])
        elif pa.types.is_string(column.type):
            return self._encoded(column)
        return column.dictionary_encode().combine_chunks()

    def _encoded(self, column: pa.ChunkedArray) -> pa.DictionaryArray:
        """Return a column of texts as `encoded` does, `ENCODED` rows at a time."""
        known, found = pa.array([], TEXT), self._growing(np.int32)
        for start in range(0, len(column), ENCODED):
            pieces = [pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), known)]  # so that known codes stay
            for piece in column.slice(start, ENCODED).chunks:
                pieces.append(pc.if_else(pc.equal(piece, ""), pa.scalar(None, TEXT), piece).dictionary_encode())
                self.release()
            unified = pa.chunked_array(pieces).unify_dictionaries()
            known = unified.chunk(0).dictionary
            for piece in unified.chunks:
                found.append(piece.indices.fill_null(-1).to_numpy())
        codes = found.array()
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), known)

    def prompts(self) -> pa.ChunkedArray:
        """Return the prompts, (n,) strings, null if the source has none."""
        return self.cells("prompt")


def make(
    table: pa.Table | Mapping[str, Any],
    *,
    name: str,
    source: str,
    notes: dict[str, Any] | None = None,
    where: str = "trace",
    path: Path | None = None,
    late: LatePrompts | None = None,
) -> Trace:
    """Make a trace of columns: convert, check, and digest them.

    Args:
        table: columns by name, (n,) each, in order of arrival; see `conform`.
        where: what error messages call the columns.
        late: prompts that are made when they are read, if `table` has none.

    Raises:
        TraceError: as `conform`. There are no rows, a required value is null, or text is not UTF-8. An arrival is
            negative, not finite, or earlier than the one before it. A request_id occurs twice, a size or a deadline is
            not positive, or a seed or priority is negative. `notes` is not JSON-able.
    """
    notes = dict(notes or {})
    check_notes(notes, where)
    origin = Origin(where)
    canonical = conform(table, origin)
    check_cells(canonical, origin)
    check_unique(canonical.column("request_id"), origin)
    check_order(canonical, origin)
    identity = content_digest(canonical, late.recipe if late else None)
    return Trace(canonical, name, source, identity, notes, path, late)


def check_notes(notes: dict[str, Any], where: str) -> None:
    """Raise TraceError unless `notes` can be written as JSON."""
    try:
        json.dumps(notes, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TraceError(f"{where}: notes cannot be kept as JSON ({error}); use plain values") from error


def write(trace: Trace, path: Path | str) -> Trace:
    """Write `trace` as Parquet, completely or not at all. Returns the trace with its path.

    Raises TraceError if the path cannot be written (a folder, a missing folder, a full disk).
    """
    trace = replace(trace, known=trace.table, identity=trace.digest, late=None, path=Path(path))
    about = {
        "schema": VERSION,
        "name": trace.name,
        "source": trace.source,
        "units": dict(UNITS),
        "notes": trace.notes,
        "digest": trace.digest,
    }
    schema = SCHEMA.with_metadata({METADATA_KEY: json.dumps(about, sort_keys=True)})
    with atomic_write(Path(path), TraceError) as temporary, temporary.open("wb") as file:
        pq.write_table(trace.table.cast(schema), file, compression="zstd")
    return trace


def read(path: Path | str) -> Trace:
    """Read and verify a trace that `write` made.

    Raises:
        TraceError: the file is missing, truncated, not Parquet, not a mezzotint trace, of a later version, or invalid
            (see `make`); or its content does not match its digest.
    """
    path, scratch = Path(path), Scratch()
    origin = Origin(str(path))
    with _opened(path) as file:
        about = _about_of(file, path)
        table = scratch.table(SCHEMA, _checked(file, origin))
    check_unique(table.column("request_id"), origin, scratch.release)
    check_order(table, origin, scratch.release)
    identity = content_digest(table, release=scratch.release)
    trace = Trace(table, about["name"], about["source"], identity, about["notes"], path, scratch=scratch)
    if trace.digest != about["digest"]:
        raise TraceError(
            f"{path}: found content with digest {trace.digest[:12]}, expected {about['digest'][:12]} as its"
            " metadata says; the file was changed after it was written, import it again"
        )
    return trace


def about(path: Path | str) -> tuple[int, str]:
    """Return the number of rows and the digest in the metadata of a trace's file, without verifying the content.

    Raises TraceError as `read`, for faults of the metadata.
    """
    with _opened(Path(path)) as file:
        return file.metadata.num_rows, str(_read_about(file.schema_arrow, Path(path))["digest"])


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    regular_file(path)
    try:
        with pa.OSFile(str(path)) as file:  # opened here: Arrow takes a path with a colon for a URI
            yield pq.ParquetFile(file)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: a column's name
        raise TraceError(
            f"{path}: cannot be read as Parquet ({excerpt(str(error))}), expected a trace written by `mezzotint trace`;"
            " it may be cut short or of another format, import it again"
        ) from error


def _about_of(file: pq.ParquetFile, path: Path) -> dict[str, Any]:
    """Return the metadata of a trace's file, whose size and types are checked before its rows are read."""
    about = _read_about(file.schema_arrow, path)
    check_notes(about["notes"], str(path))
    _check_size(file.metadata, path.stat().st_size, path)
    for column in file.schema_arrow:
        wanted = SCHEMA.field(column.name).type if column.name in SCHEMA.names else column.type
        if column.type != wanted and (column.type, wanted) != (pa.int64(), pa.uint64()):  # seeds of older files
            found = f"{path}: column {column.name}: found type {column.type}"
            raise TraceError(f"{found}, expected {wanted}; write the file again")
    return about


def _checked(file: pq.ParquetFile, origin: Origin) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a trace's file, `BLOCK` at a time, with each cell checked."""
    if not file.metadata.num_rows:
        check_cells(conform(file.read(), origin), origin)
    start = 0
    for group in range(file.num_row_groups):  # one by one, since a reader keeps what it has read
        for batch in file.iter_batches(BLOCK, [group]):
            rows = replace(origin, rows=np.arange(start, start + batch.num_rows))
            table = conform(pa.Table.from_batches([batch]), rows)
            check_cells(table, rows)
            yield from table.to_batches()
            start += batch.num_rows


def _check_size(found: pq.FileMetaData, packed: int, path: Path) -> None:
    """Raise TraceError if the rows take far more memory than a trace in a file of ``packed`` bytes would."""
    encoded = sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))
    unpacked = max(encoded, found.num_rows * ROW_BYTES)
    if unpacked > max(FREE_BYTES, RATIO * packed):
        raise TraceError(
            f"{path}: found {found.num_rows:,} rows, at least {unpacked:,} bytes in memory, in {packed:,} bytes,"
            f" expected at most {RATIO} times the file; it is no trace that `mezzotint trace` wrote, import its source"
        )


def _read_about(schema: pa.Schema, path: Path) -> dict[str, Any]:
    raw = (schema.metadata or {}).get(METADATA_KEY)
    if raw is None:
        raise TraceError(
            f"{path}: is Parquet but not a mezzotint trace (its metadata has no `mezzotint` key);"
            " bring it in with `mezzotint trace import`"
        )
    try:
        about = parse_json(raw)
        version = about["schema"]
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path}: its `mezzotint` metadata is damaged; import the file again") from error
    if version != VERSION:
        raise TraceError(
            f"{path}: found trace layout {version!r}, expected {VERSION}; read it with the version of"
            " mezzotint that wrote it, or import it again"
        )
    for key, kind in {"name": str, "source": str, "digest": str, "notes": dict}.items():
        if not isinstance(about.get(key), kind):
            raise TraceError(f"{path}: its `mezzotint` metadata lacks a valid {key!r}; import the file again")
    return dict(about)
