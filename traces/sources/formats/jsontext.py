"""Read JSON one element at a time: an array, an object, or a line for each value."""

import codecs
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from mezzotint.traces.error import TraceError
from mezzotint.traces.table.limits import Limits, open_bounded
from mezzotint.traces.table.validation import excerpt

PIECE = 1 << 16
"""Bytes read at a time."""

GROUP, GROUP_CHARACTERS = 1 << 13, 1 << 22
"""Values, and characters of values, in a group."""

SPACE = re.compile(r"[ \t\r\n]*")

LONGEST_WORD = 16
"""Longest literal, number or escape, which the end of a piece may cut."""


def elements(path: Path, limits: Limits) -> Iterator[list[Any]]:
    """Yield the values of a JSON array, or of a file of JSON values one after another (JSON lines), in groups.

    The file is UTF-8, plain or gzipped. A value has at most 16 times the longest text of the limits.

    Raises TraceError if the file cannot be opened (see `limits.open_bounded`), is not UTF-8, not JSON,
    truncated, or holds a value that is too long or nested too deeply. Values count from 0.
    """
    with open_bounded(path, limits) as stream:
        text = _Text(stream, path, limits)
        yield from _grouped(text, text.listed("[", "]", text.value) if text.next_character() == "[" else text.lines())


def members(path: Path, limits: Limits) -> Iterator[list[tuple[str, Any]]]:
    """Yield the names and values of a JSON object, in the file's order, duplicate names included.

    Raises TraceError as `elements`.
    """
    with open_bounded(path, limits) as stream:
        text = _Text(stream, path, limits)
        yield from _grouped(text, text.listed("{", "}", text.member))


def _grouped(text: "_Text", values: Iterator[Any]) -> Iterator[list[Any]]:
    group: list[Any] = []
    since = 0
    for value in values:
        group.append(value)
        if len(group) == GROUP or text.taken - since > GROUP_CHARACTERS:
            yield group
            group, since = [], text.taken
    if group:
        yield group


class _Text:
    """Decoder over the part of the file in memory."""

    def __init__(self, stream: BinaryIO, path: Path, limits: Limits) -> None:
        self._stream, self._path = stream, path
        self._longest = 16 * limits.max_prompt_bytes
        self._decoder = json.JSONDecoder(parse_constant=_no_constant)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._done = "", 0, 0
        self._ended = False
        self.taken = 0
        """Characters of the values taken so far."""

    def lines(self) -> Iterator[Any]:
        """Yield values one after another, to the end."""
        while self.next_character():
            yield self.value()

    def listed(self, first: str, last: str, item: Callable[[], Any]) -> Iterator[Any]:
        """Yield items with commas between them, from `first` to `last`, which has to end the file."""
        self.take(first, "a JSON object, { first")
        if self.next_character() != last:
            yield item()
            while self.next_character() != last:
                self.take(",", f"a comma or {last} after it")
                yield item()
        self.take(last, last)
        if self.next_character():
            self.refuse(f"found more text after the closing {last}, expected the end of the file")

    def next_character(self) -> str:
        """Return the next character that is not white space without taking it; "" at the end."""
        while True:
            self._at = SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more(PIECE)

    def take(self, character: str, expected: str) -> None:
        """Take the next character, which has to be this one."""
        if self.next_character() != character:
            found = repr(self.next_character()) if self.next_character() else "the end of the file"
            self.refuse(f"found {found}, expected {expected}")
        self._at += 1

    def value(self) -> Any:
        """Take the next value."""
        self.next_character()
        while True:
            # a value at the end of the piece may go on: 12 and then .5e3
            value, end = self._decoded()
            if end is not None and (end + LONGEST_WORD < len(self._text) or self._ended):
                self._check_text(value, self._text[self._at : end])
                self.taken += end - self._at
                self._at = end
                self._done += 1
                return value
            if len(self._text) - self._at > self._longest:
                self.refuse(f"found a value of over {self._longest:,} characters; raise --max-prompt-bytes")
            self._more(max(PIECE, len(self._text) - self._at))

    def member(self) -> tuple[str, Any]:
        """Take the next name and value of an object."""
        done = self._done
        name = self.value()
        if not isinstance(name, str):
            self._done = done
            self.refuse(f"found {excerpt(repr(name), 60)}, expected the name of a member")
        self.take(":", "a colon after the name")
        value = self.value()
        self._done = done + 1
        return name, value

    def refuse(self, what: str, error: Exception | None = None) -> NoReturn:
        """Raise TraceError about the next value."""
        raise TraceError(
            f"{self._path}: value {self._done}: {what}; correct the file, or fetch it again if it is cut short"
        ) from error

    def _decoded(self) -> tuple[Any, int | None]:
        """Return the next value and its end; the end is None if more text is needed."""
        try:
            return self._decoder.raw_decode(self._text, self._at)
        except RecursionError as error:
            self.refuse("found values nested too deeply to be read, expected a plain record", error)
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated string") or error.pos > len(self._text) - LONGEST_WORD
            if self._ended or not cut:
                self.refuse(f"cannot be read as JSON ({excerpt(error.msg)})", error)
            return None, None
        except ValueError as error:
            self.refuse(f"cannot be read as JSON ({excerpt(str(error))})", error)

    def _check_text(self, value: Any, raw: str) -> None:
        if "\\u" in raw:
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                self.refuse("found half of a surrogate pair, expected Unicode text", error)

    def _more(self, count: int) -> None:
        data = self._stream.read(count)
        self._ended = not data
        try:
            self._text, self._at = self._text[self._at :] + self._utf8.decode(data, final=self._ended), 0
        except UnicodeDecodeError as error:
            self.refuse(f"found bytes that are not UTF-8 ({error.reason})", error)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
