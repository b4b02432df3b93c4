"""Digest of the content of a trace, independent of the layout of its file."""

import hashlib
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.table.columns import LATER

BLOCK = 65_536
"""Rows hashed at a time; part of the digest's definition, so it must never change."""


def content_digest(table: pa.Table, recipe: str | None = None, release: Callable[[], None] = lambda: None) -> str:
    """Return SHA-256 over the columns' names, types, nulls and values, as 64 hexadecimal digits.

    Two tables have one digest exactly if they hold the same values in the same order. Chunking, row groups,
    compression, metadata, the file's name and bytes behind nulls do not enter, and -0.0 is 0.0. An all-null column of
    `mezzotint.traces.table.columns.LATER` does not enter.

    Args:
        recipe: stands for the prompts, which are not made yet; None if they are there.
        release: called after each block of a column.
    """
    total = hashlib.sha256(f"mezzotint trace 1: {table.num_rows} rows".encode())
    for field in table.schema:
        column = table.column(field.name)
        if field.name in LATER and column.null_count == len(column):
            continue
        # Parquet renames the items of lists, so the type's own text is not stable
        kind = f"list of {field.type.value_type}" if pa.types.is_list(field.type) else str(field.type)
        if field.type == pa.uint64():
            kind = "int64"  # of seeds, as digests had it before seeds from 2^63 on were taken
        if recipe is not None and field.name == "prompt":
            kind, column = f"made by {recipe}", column.slice(0, 0)
        total.update(f"\n{field.name}: {kind}\n".encode())
        for start in range(0, len(column), BLOCK):
            block = column.slice(start, BLOCK)
            total.update(_shape(block))
            for chunk in block.chunks:
                total.update(_content(chunk))
            release()
    return total.hexdigest()


def _shape(block: pa.ChunkedArray) -> bytes:
    """Return nulls and lengths of the values, and for lists the same of their items, as bytes."""
    shape: bytes = np.packbits(block.is_null().to_numpy()).tobytes()
    if pa.types.is_list(block.type):
        shape += pc.list_value_length(block).fill_null(0).to_numpy().tobytes() + _shape(pc.list_flatten(block))
    elif pa.types.is_string(block.type):
        shape += pc.binary_length(block).fill_null(0).to_numpy().tobytes()
    return shape


def _content(piece: pa.Array) -> bytes | memoryview:
    if pa.types.is_list(piece.type):
        return _content(pc.list_flatten(piece))
    if not pa.types.is_string(piece.type):
        values = piece.fill_null(0).to_numpy(zero_copy_only=False)
        content: bytes = (values + values.dtype.type(0)).tobytes()
        return content
    piece = piece.fill_null("")
    _, offsets, data = piece.buffers()
    if not len(piece) or data is None:
        return b""
    ends = np.frombuffer(offsets, np.int32)[piece.offset : piece.offset + len(piece) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]
