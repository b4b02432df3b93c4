"""A name for the content of a trace that does not depend on how the file is laid out."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traces.table.columns import LATER

Numbers = npt.NDArray[Any]

BLOCK = 65_536
"""Rows hashed at a time: part of the digest's definition, so never changed."""


def content_digest(table: pa.Table) -> str:
    """SHA-256 over the columns' names, types, nulls and values, as 64 hexadecimal digits.

    Two tables have one digest exactly if they hold the same values in the same order: chunking, row
    groups, compression, metadata and the file's name do not enter. What lies behind a null does not
    either, and -0.0 is 0.0. A column of `traces.table.columns.LATER` that is null throughout does not enter.
    """
    total = hashlib.sha256(f"mezzotint trace 1: {table.num_rows} rows".encode())
    for field in table.schema:
        chunks = table.column(field.name).chunks
        if field.name in LATER and all(chunk.null_count == len(chunk) for chunk in chunks):
            continue
        # Parquet renames the items of lists, so the type's own text is not stable
        kind = f"list of {field.type.value_type}" if pa.types.is_list(field.type) else str(field.type)
        total.update(f"\n{field.name}: {kind}\n".encode())
        # where a block's values begin and end is hashed before the values themselves
        values = _pieces(chunks)
        for shape in _shapes(_pieces(chunks)):
            total.update(shape)
            for piece, ends in values:
                total.update(_content(piece))
                if ends:
                    break
    return total.hexdigest()


def _pieces(chunks: Iterable[pa.Array]) -> Iterator[tuple[pa.Array, bool]]:
    """The same values in pieces that are each of one block, and whether the block of `BLOCK` rows ends there."""
    missing = BLOCK
    for chunk in chunks:
        while len(chunk):
            piece, chunk = chunk.slice(0, missing), chunk.slice(missing)
            missing -= len(piece)
            yield piece, not missing
            missing = missing or BLOCK


def _shapes(pieces: Iterable[tuple[pa.Array, bool]]) -> Iterator[bytes]:
    """For each block: which values are null and how long each is; of lists, then the same of their items."""
    block: list[list[Numbers]] = []
    for piece, ends in pieces:
        block.append(_shape(piece))
        if ends:
            yield _joined(block)
            block = []
    if block:
        yield _joined(block)


def _shape(piece: pa.Array) -> list[Numbers]:
    shape = [piece.is_null().to_numpy(zero_copy_only=False)]
    if pa.types.is_list(piece.type):
        shape.append(piece.value_lengths().fill_null(0).to_numpy(zero_copy_only=False))
        shape += _shape(pc.list_flatten(piece))
    elif pa.types.is_string(piece.type):
        shape.append(pc.binary_length(piece).fill_null(0).to_numpy(zero_copy_only=False))
    return shape


def _joined(block: Sequence[Sequence[Numbers]]) -> bytes:
    parts = (np.concatenate(part) for part in zip(*block, strict=True))
    return b"".join((np.packbits(part) if part.dtype == np.bool_ else part).tobytes() for part in parts)


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
