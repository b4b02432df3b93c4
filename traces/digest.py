"""A name for the content of a trace that does not depend on how the file is laid out."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

BLOCK = 65_536
"""Rows hashed at a time: bounds the memory; part of the digest's definition, so never changed."""


def content_digest(table: pa.Table) -> str:
    """SHA-256 over the columns' names, types, nulls and values, as 64 hexadecimal digits.

    Two tables have one digest exactly if they hold the same values in the same order: chunking, row
    groups, compression, metadata and the file's name do not enter. What lies behind a null does not
    either, and -0.0 is 0.0.
    """
    total = hashlib.sha256(f"mezzotint trace 1: {table.num_rows} rows".encode())
    for name in table.column_names:
        column = table.column(name)
        # Parquet renames the items of lists, so the type's own text is not stable
        kind = column.type
        kind = f"list of {kind.value_type}" if pa.types.is_list(kind) else str(kind)
        total.update(f"\n{name}: {kind}\n".encode())
        for start in range(0, table.num_rows, BLOCK):
            _update(total, _contiguous(column.slice(start, BLOCK)))
    return total.hexdigest()


def _contiguous(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.array([], column.type)
    return combined


def _update(total: "hashlib._Hash", array: pa.Array) -> None:
    total.update(np.packbits(array.is_null().to_numpy(zero_copy_only=False)).tobytes())
    if pa.types.is_list(array.type):
        total.update(array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).tobytes())
        _update(total, pc.list_flatten(array))
    elif pa.types.is_string(array.type):
        filled = array.fill_null("")
        total.update(pc.binary_length(filled).to_numpy(zero_copy_only=False).tobytes())
        if len(filled):
            _, offsets, data = filled.buffers()
            ends = np.frombuffer(offsets, np.int32)[filled.offset : filled.offset + len(filled) + 1]
            if data is not None:
                total.update(memoryview(data)[int(ends[0]) : int(ends[-1])])
    else:
        values = array.fill_null(0).to_numpy(zero_copy_only=False)
        total.update((values + values.dtype.type(0)).tobytes())
