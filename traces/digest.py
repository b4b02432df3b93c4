"""A name for the content of a trace that does not depend on how the file is laid out."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence

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
    return streamed_digest(table.schema, table.num_rows, lambda name: table.column(name).chunks)


def streamed_digest(schema: pa.Schema, rows: int, chunks: Callable[[str], Iterable[pa.Array]]) -> str:
    """`content_digest` of a table that need not be in memory.

    Args:
        schema: the table's columns.
        rows: the number of its rows.
        chunks: gives one column's values from its name, in pieces of any length. Each column is asked
            for once, in order, and only `BLOCK` rows of it are held at a time.
    """
    total = hashlib.sha256(f"mezzotint trace 1: {rows} rows".encode())
    for field in schema:
        # Parquet renames the items of lists, so the type's own text is not stable
        kind = f"list of {field.type.value_type}" if pa.types.is_list(field.type) else str(field.type)
        total.update(f"\n{field.name}: {kind}\n".encode())
        for block in _blocks(chunks(field.name)):
            _update(total, block)
    return total.hexdigest()


def _blocks(chunks: Iterable[pa.Array]) -> Iterator[list[pa.Array]]:
    """The same values in lists of pieces that add up to `BLOCK` rows each, the last one to fewer."""
    block: list[pa.Array] = []
    missing = BLOCK
    for chunk in chunks:
        while len(chunk):
            piece, chunk = chunk.slice(0, missing), chunk.slice(missing)
            block.append(piece)
            missing -= len(piece)
            if not missing:
                yield block
                block, missing = [], BLOCK
    if block:
        yield block


def _update(total: "hashlib._Hash", block: Sequence[pa.Array]) -> None:
    nulls = [piece.is_null().to_numpy(zero_copy_only=False) for piece in block]
    total.update(np.packbits(np.concatenate(nulls)).tobytes())
    kind = block[0].type
    if pa.types.is_list(kind):
        for piece in block:
            total.update(piece.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).tobytes())
        _update(total, [pc.list_flatten(piece) for piece in block])
    elif pa.types.is_string(kind):
        filled = [piece.fill_null("") for piece in block]
        for piece in filled:
            total.update(pc.binary_length(piece).to_numpy(zero_copy_only=False).tobytes())
        for piece in filled:
            if len(piece):
                _, offsets, data = piece.buffers()
                ends = np.frombuffer(offsets, np.int32)[piece.offset : piece.offset + len(piece) + 1]
                if data is not None:
                    total.update(memoryview(data)[int(ends[0]) : int(ends[-1])])
    else:
        for piece in block:
            values = piece.fill_null(0).to_numpy(zero_copy_only=False)
            total.update((values + values.dtype.type(0)).tobytes())
