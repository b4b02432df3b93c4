"""Read lines of text of a bounded length, some thousands at a time."""

from collections.abc import Iterator
from pathlib import Path

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.limits import Limits, open_bounded

LINES, LINES_BYTES = 1 << 13, 1 << 22
"""Lines, and bytes of lines, in a group."""

Group = tuple[list[int], list[str]]
"""Lines with their numbers in the file, counted from 0."""


def lines(path: Path, limits: Limits, max_bytes: int, column: str) -> Iterator[Group]:
    """Yield the lines of a file, UTF-8, plain or gzipped, without line ends.

    Args:
        max_bytes: bytes of a line, at most.
        column: name of a line's content in errors.

    Raises TraceError if the file cannot be opened (see `limits.open_bounded`), is not UTF-8, or has a
    longer line.
    """
    rows: list[int] = []
    texts: list[str] = []
    size = row = 0
    with open_bounded(path, limits) as stream:
        while line := stream.readline(max_bytes + 2):
            content = line.removesuffix(b"\n").removesuffix(b"\r")
            if len(content) > max_bytes:
                raise TraceError(
                    f"{path}: row {row}, column {column}: found a line of over {max_bytes:,} bytes, expected a"
                    f" {column}; raise --max-prompt-bytes, or drop the line"
                )
            try:
                texts.append(content.decode())
            except UnicodeDecodeError as error:
                raise TraceError(
                    f"{path}: row {row}, column {column}: found bytes that are not UTF-8 ({error.reason}), expected"
                    " UTF-8 text; convert the file, for example with iconv"
                ) from error
            rows.append(row)
            row, size = row + 1, size + len(line)
            if len(texts) == LINES or size > LINES_BYTES:
                yield rows, texts
                rows, texts, size = [], [], 0
        yield rows, texts
