"""Text of users, escaped for a terminal, a page or a figure."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

_OF_LINES = re.compile(r"(\n)")
_OF_BARS = re.compile(r"(\n|\r|\x1b\[A)")
"""What tqdm writes to draw its bars over one another."""


def printable(text: str) -> str:
    """Escape unprintable characters: control characters would act on a terminal.

    Line ends and tabs become blanks.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape").decode() for c in text)


@contextmanager
def printable_output() -> Iterator[None]:
    """Escape unprintable characters in whatever is printed while the block runs, except line ends and tqdm's bars."""
    with redirect_stdout(_Printable(sys.stdout, _OF_LINES)), redirect_stderr(_Printable(sys.stderr, _OF_BARS)):
        yield


class _Printable:
    """A stream whose text is escaped outside of what ``kept`` matches."""

    def __init__(self, stream: TextIO, kept: re.Pattern[str]) -> None:
        self._stream, self._kept = stream, kept

    def write(self, text: str) -> int:
        parts = self._kept.split(text)
        parts[::2] = map(printable, parts[::2])
        return self._stream.write("".join(parts))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
