"""Read JSON one element at a time: an array, an object, or one value after another."""

import codecs
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from mezzotint.files.document import unique_keys
from mezzotint.traces.error import TraceError
from mezzotint.traces.table.limits import Limits, open_bounded
from mezzotint.traces.table.validation import excerpt

PIECE = 1 << 16
"""Bytes read at a time."""

GROUP, GROUP_CHARACTERS = 1 << 13, 1 << 22
"""Values, and characters of values, in a group."""

SPACE = re.compile(r"[ \t\r\n]*")

WRAPPERS = frozenset(
    ["requests", "data", "items", "records", "results", "logs", "entries", "rows", "traces", "events", "jobs"]
)
"""Names of the list of records in an object around it."""

OF_DIFFUSIONDB = {"p": "prompt", "se": "seed", "c": "cfg", "st": "steps", "sa": "sampler"}
"""Keys of an image in part-000001.json of DiffusionDB, which names each image, and their usual names."""

LABEL = re.compile(r"\d+$|\d{4}-\d\d-\d\d")
"""A row's label in a table that pandas wrote: a number or a date."""

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
        yield from text.grouped(text.listed("[", "]", text.value) if text.next_character() == "[" else text.lines())


def is_json(head: bytes) -> bool:
    """Return True if a file that begins with ``head`` holds JSON objects, or an array of them."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")


def records(path: Path, limits: Limits) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of JSON lines, or of a JSON array, with their places. Raises TraceError for another value."""
    for row, value in enumerate(unwrapped(elements(path, limits))[0]):
        if not isinstance(value, dict):
            raise TraceError(f"{path}: value {row}: found {excerpt(repr(value), 60)}, expected an object of a request")
        yield row, value


def unwrapped(groups: Iterator[list[Any]]) -> tuple[Iterator[Any], str]:
    """Return values, and in words where in the file they are.

    One object around a list of objects stands for the list. One of lists of equal lengths is a record of each place.
    One of objects with the numbers of rows as names is the table that pandas' to_json wrote. One of DiffusionDB's
    images is a record of each.
    """
    values = itertools.chain.from_iterable(groups)
    first = list(itertools.islice(values, 2))
    outer = first[0] if len(first) == 1 and isinstance(first[0], dict) else {}
    if (table := _of_pandas(outer)) is not None:
        return iter(table), ", as pandas writes a table"
    if outer and all(isinstance(image, dict) and image.keys() == OF_DIFFUSIONDB.keys() for image in outer.values()):
        images = ({OF_DIFFUSIONDB[key]: value for key, value in image.items()} for image in outer.values())
        return images, ", a part of DiffusionDB's images (its metadata.parquet has their times, users and sizes)"
    lists = {name: value for name, value in outer.items() if isinstance(value, list) and value}
    if len(lists) > 1 and len(lists) == len(outer) and len({len(value) for value in lists.values()}) == 1:
        return (dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)), ", a list a column"
    inside = [name for name in lists if name in WRAPPERS and all(isinstance(item, dict) for item in lists[name])]
    if len(inside) == 1 and not {"prompt", "messages", "request", "body", "status"} & outer.keys():
        beside = [name for name in outer if name != inside[0]]
        return iter(lists[inside[0]]), f" in {inside[0]}" + (f", without {', '.join(beside)} beside it" * bool(beside))
    return itertools.chain(first, values), ""


def _of_pandas(outer: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the rows of a table that pandas wrote by columns, by rows, or split; None of other objects.

    Labels of the rows that do not count from 0 are a column, those of times as in a frame.
    """
    if outer.keys() == {"columns", "index", "data"} and all(isinstance(part, list) for part in outer.values()):
        names, labels, rows = outer["columns"], outer["index"], outer["data"]
        if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
            return None
        found = [dict(zip(map(str, names), row, strict=True)) for row in rows]
    elif outer and all(isinstance(inner, dict) for inner in outer.values()):
        columns = next(iter(outer.values()))
        is_by_row = all(map(LABEL.match, outer)) and not all(map(LABEL.match, columns))
        labels = list(outer if is_by_row else columns)
        is_table = all(inner.keys() == columns.keys() for inner in outer.values())
        if not (labels and is_table and all(map(LABEL.match, labels))):
            return None
        if is_by_row:
            found = list(outer.values())
        else:
            found = [{name: inner[label] for name, inner in outer.items()} for label in labels]
    else:
        return None
    if [str(label) for label in labels] == [str(row) for row in range(len(found))]:
        return found
    name = "index" if all(len(str(label)) < len("1787000000") for label in labels) else "time"
    return [{name: label, **row} for label, row in zip(labels, found, strict=True)]


def members(path: Path, limits: Limits) -> Iterator[list[tuple[str, Any]]]:
    """Yield the names and values of a JSON object, in the file's order, duplicate names included.

    Raises TraceError as `elements`.
    """
    with open_bounded(path, limits) as stream:
        text = _Text(stream, path, limits)
        yield from text.grouped(text.listed("{", "}", text.member))


class _Text:
    """Decoder over the part of the file in memory."""

    def __init__(self, stream: BinaryIO, path: Path, limits: Limits) -> None:
        self._stream, self._path = stream, path
        self._longest = 16 * limits.max_prompt_bytes
        self._decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=unique_keys)
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._taken = "", 0, 0
        self._done = 0  # values yielded, and so the number of the next one in messages
        self._ended = False

    def grouped(self, values: Iterator[Any]) -> Iterator[list[Any]]:
        """Yield values in groups of a bounded number and length."""
        group: list[Any] = []
        for value in values:
            group.append(value)
            self._done += 1
            if len(group) == GROUP or self._taken > GROUP_CHARACTERS:
                yield group
                group, self._taken = [], 0
        if group:
            yield group

    def lines(self) -> Iterator[Any]:
        """Yield values one after another, to the end."""
        while self.next_character():
            yield self.value()

    def listed(self, first: str, last: str, item: Callable[[], Any]) -> Iterator[Any]:
        """Yield items with commas between them, from `first` to `last`, which has to end the file."""
        self._take(first, "a JSON object, { first")
        if self.next_character() != last:
            yield item()
            while self.next_character() != last:
                self._take(",", f"a comma or {last} after it")
                yield item()
        self._take(last, last)
        if self.next_character():
            self._refuse(f"found more text after the closing {last}, expected the end of the file")

    def next_character(self) -> str:
        """Return the next character that is not white space without taking it; "" at the end."""
        while True:
            self._at = SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read_on()

    def _take(self, character: str, expected: str) -> None:
        if self.next_character() != character:
            found = repr(self.next_character()) if self.next_character() else "the end of the file"
            self._refuse(f"found {found}, expected {expected}")
        self._at += 1

    def member(self) -> tuple[str, Any]:
        """Take the next name and value of an object."""
        name = self.value()
        if not isinstance(name, str):
            self._refuse(f"found {excerpt(repr(name), 60)}, expected the name of a member")
        self._take(":", "a colon after the name")
        return name, self.value()

    def value(self) -> Any:
        """Take the next value."""
        self.next_character()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
                # a number at the end of the piece may go on: 12 and then .5e3
                if self._ended or end + LONGEST_WORD < len(self._text):
                    break
            except RecursionError as error:
                self._refuse("found values nested too deeply to be read, expected a plain record", error)
            except ValueError as error:
                is_cut = isinstance(error, json.JSONDecodeError) and (
                    error.msg.startswith("Unterminated string") or error.pos > len(self._text) - LONGEST_WORD
                )
                if self._ended or not is_cut:
                    self._refuse(f"cannot be read as JSON ({excerpt(getattr(error, 'msg', str(error)))})", error)
            if len(self._text) - self._at > self._longest:
                self._refuse(f"found a value of over {self._longest:,} characters; raise --max-prompt-bytes")
            self._read_on()
        if "\\u" in self._text[self._at : end]:
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                self._refuse("found half of a surrogate pair, expected Unicode text", error)
        self._taken += end - self._at
        self._at = end
        return value

    def _refuse(self, what: str, error: Exception | None = None) -> NoReturn:
        """Raise TraceError about the next value."""
        raise TraceError(
            f"{self._path}: value {self._done}: {what}; correct the file, or fetch it again if it is cut short"
        ) from error

    def _read_on(self) -> None:
        """Read a piece more, at least as long as the part in memory, so that a long value is not parsed often."""
        data = self._stream.read(max(PIECE, len(self._text) - self._at))
        self._ended = not data
        try:
            self._text, self._at = self._text[self._at :] + self._utf8.decode(data, final=self._ended), 0
        except UnicodeDecodeError as error:
            self._refuse(f"found bytes that are not UTF-8 ({error.reason})", error)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
