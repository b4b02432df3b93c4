"""Lines of text, some thousands at a time, none longer than agreed."""

from collections.abc import Callable, Iterator
from pathlib import Path

from traces.error import TraceError
from traces.table.limits import Limits, open_bounded

LINES, LINES_BYTES = 1 << 13, 1 << 22
"""Lines, and bytes of lines, handed over at a time."""

Group = tuple[list[int], list[str]]
"""Lines with their numbers in the file, counted from 0."""


def lines(
    path: Path, limits: Limits, longest: int, what: str, first: Callable[[str], None] | None = None
) -> Iterator[Group]:
    """The lines of a file, UTF-8, plain or gzipped, without their ends.

    Args:
        longest: bytes of a line, at most.
        what: what a line is, as errors call it.
        first: looks at the first line before anything else is read, and may refuse it.

    Raises TraceError: the file cannot be opened (see `traces.table.limits.open_bounded`), is not UTF-8, or has a longer
    line.
    """
    rows: list[int] = []
    texts: list[str] = []
    size = row = 0
    with open_bounded(path, limits) as stream:
        while line := stream.readline(longest + 2):
            bare = line.removesuffix(b"\n").removesuffix(b"\r")
            if len(bare) > longest:
                raise TraceError(
                    f"{path}: row {row}, column {what}: found a line of over {longest:,} bytes, expected a {what};"
                    " raise --max-prompt-bytes, or drop the line"
                )
            try:
                texts.append(bare.decode())
            except UnicodeDecodeError as error:
                raise TraceError(
                    f"{path}: row {row}, column {what}: found bytes that are not UTF-8 ({error.reason}), expected"
                    " UTF-8 text; convert the file, for example with iconv"
                ) from error
            if row == 0 and first is not None:
                first(texts[0])
            rows.append(row)
            row, size = row + 1, size + len(line)
            if len(texts) == LINES or size > LINES_BYTES:
                yield rows, texts
                rows, texts, size = [], [], 0
        yield rows, texts
