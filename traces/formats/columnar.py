"""Read Parquet and Arrow a piece at a time, from a file or the Hugging Face hub."""

import itertools
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mezzotint.extras import remedy
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.ingest import ROWS, TEXT_BYTES, slices
from mezzotint.traces.table.limits import Limits, unchanged
from mezzotint.traces.table.validation import excerpt

ARROW = b"ARROW1"
ARROW_STREAM = b"\xff\xff\xff\xff"


def read_parquet(
    path: Path, limits: Limits, wanted: Collection[str] | None, expected: str
) -> tuple[list[str], Iterator[pa.Table]]:
    """Return the wanted columns of a Parquet file, as far as it has them, and its rows in pieces; text is plain.

    Without ``wanted``, all columns.

    Raises TraceError if the file cannot be opened, is not Parquet (``expected`` describes it), is truncated or damaged,
    or unpacks to more than the limits allow.
    """
    tables = _pieces(path, limits, wanted, expected)
    return next(tables).column_names, tables


def read_arrow(path: Path, limits: Limits) -> pa.Table:
    """Return the rows of an Arrow IPC file or stream; text is plain.

    Raises TraceError if the file cannot be opened, is damaged, or unpacks to more than the limits allow.
    """
    with unchanged(path) as state:
        try:
            with pa.OSFile(str(path)) as file:
                is_file = file.read(len(ARROW)) == ARROW
                file.seek(0)
                reader = pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)
                batches = (reader.get_batch(index) for index in range(reader.num_record_batches)) if is_file else reader
                read, unpacked = [], 0
                for batch in batches:
                    unpacked += batch.nbytes
                    limits.check(unpacked, state.st_size, str(path))
                    read.append(batch)
                return plain_text(pa.Table.from_batches(read, reader.schema))
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise TraceError(
                f"{path}: cannot be read as Arrow IPC ({excerpt(str(error))}), expected a table of requests; write it"
                " again"
            ) from error


def from_hub(file: str) -> tuple[list[str], Iterator[pa.Table]]:
    """Return the columns and rows of a Parquet file on the Hugging Face hub. Raises TraceError if it cannot be had."""
    try:
        import datasets
    except ImportError:
        raise TraceError(f"{file}: name a file, or fetch it, which needs datasets; {remedy('hub')}") from None
    try:
        table = datasets.load_dataset("parquet", data_files=file, split="train").with_format("arrow")[:]
    except Exception as error:  # network layers raise many types; the remedy is the same
        page, _, name = file.removeprefix("hf://").rpartition("/")
        raise TraceError(
            f"{file}: cannot be loaded ({type(error).__name__}: {excerpt(str(error))}); where the network can be"
            f" reached, download {name} from huggingface.co/{page}, and name that file"
        ) from error
    return table.column_names, slices(plain_text(table))


def _pieces(path: Path, limits: Limits, wanted: Collection[str] | None, expected: str) -> Iterator[pa.Table]:
    """Yield a table without rows, which has the columns, and then the rows."""
    with unchanged(path) as state:
        unpacked = 0
        try:
            schema = pq.read_schema(pa.OSFile(str(path)))  # opened here: Arrow takes a path with a colon for a URI
            names = [name for name in schema.names if wanted is None or name in wanted]
            # read as dictionaries, so that a text repeated a million times is in memory once
            texts = [name for name in names if _is_text(schema.field(name).type)]
            file = pq.ParquetFile(pa.OSFile(str(path)), read_dictionary=texts)
            yield file.schema_arrow.empty_table().select(names)
            for batch in file.iter_batches(batch_size=ROWS, columns=names):
                for piece in _small(pa.Table.from_batches([batch])):
                    table = plain_text(piece)
                    unpacked += table.nbytes
                    limits.check(unpacked, state.st_size, str(path))
                    yield table
        except TraceError:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise TraceError(
                f"{path}: cannot be read as Parquet ({excerpt(str(error))}), expected {expected}; fetch it again if it"
                " is cut short"
            ) from error


def plain_text(table: pa.Table) -> pa.Table:
    """Return `table` with every kind of text (64-bit offsets, dictionaries, views) as plain strings."""
    kinds = [pa.string() if _is_text(kind) else kind for kind in table.schema.types]
    return table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _small(table: pa.Table) -> Iterator[pa.Table]:
    """Yield `table` in pieces with at most about `TEXT_BYTES` of text each, or single rows."""
    size = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        for chunk in column.chunks if pa.types.is_dictionary(column.type) else []:
            lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
            size += lengths.take(chunk.indices).fill_null(0).to_numpy()
    part = np.cumsum(size) // TEXT_BYTES
    edges = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), table.num_rows]
    for start, end in itertools.pairwise(edges):
        yield table.slice(start, end - start)
