"""A list of prompts: lines of text, or JSON."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.cells import refusal
from mezzotint.traces.formats.jsontext import elements
from mezzotint.traces.formats.lines import lines
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.interpret import SAID
from mezzotint.traces.sources.reader import make_reading, untimed_batch, with_row_numbers
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import ORDER_ONLY, Batch, Reading
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin, excerpt

TABLE = re.compile(r"\.(csv|tsv|parquet|xlsx?)(\.gz)?$")

TEXTS = frozenset({"prompt", "prompts", "caption", "captions"})
"""Names of columns of prompts; none of these words alone is a likely prompt."""

NAMES = TEXTS | frozenset(SCHEMA.names) | frozenset({
    "id", "text", "time", "timestamp", "created_at", "category", "challenge", "user", "user_name", "model", "step",
    "cfg", "sampler", "image", "image_name", "status",
})  # fmt: skip
"""Names of columns in the traces that can be imported and elsewhere."""

TIMED = re.compile(r"\s*(\d+)(?:[,;\t ]\s*(\d+))(?:[,;\t ]\s*(.*))?")
"""A line of two whole numbers, and perhaps a prompt after them."""

JSON_START = re.compile(r'\[?\s*\{\s*"|\[\s*"|[\[{]\s*$')
"""Start of JSON; prompts have brackets too, such as [a fox:a hare:0.5] and {red|green}."""


@dataclass(slots=True, kw_only=True)
class Prompts(Streamed):
    """A file of prompts and nothing else, UTF-8, plain or gzipped.

    A file named .json or .jsonl (or the same with .gz) is a JSON array, or one JSON value after another. Its values are
    texts or objects with a member "prompt". Any other file has a prompt per line; blank lines are skipped and counted
    in the notes. Requests are named after their line or element, counted from 0, and arrive a second apart: an order
    and no times. A table (by its name, or by a header of columns), or JSON under another name, is an error.

    Lines that all begin with milliseconds, which never fall, and a running number, in either order, have times. The
    rest of such a line is the prompt.

    Args:
        path: the file; a leading ~ is the home folder.
    """

    path: str | Path
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        notes: dict[str, Any] = {"file": path.name, "arrival_s": ORDER_ONLY}
        if TABLE.search(path.name.lower()):
            raise TraceError(
                f"{path}: is a table by its name, expected a prompt per line; use `trace import csv` (or diffusiondb,"
                " for its Parquet), or rename the file if its lines are prompts"
            )
        suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix
        batches = self._from_json(path) if suffix in (".json", ".jsonl") else self._from_lines(path, notes)
        return make_reading(self, f"prompt list, {path.name}", batches, notes)

    def _from_json(self, path: Path) -> Iterator[Batch]:
        for rows, values in with_row_numbers(elements(path, self.limits)):
            origin = Origin(str(path), rows=rows)
            prompts = [value.get("prompt") if isinstance(value, dict) else value for value in values]
            for index, prompt in enumerate(prompts):
                if not isinstance(prompt, str):
                    expected = "a text or an object with a text named prompt"
                    raise refusal(origin, index, "prompt", repr(values[index]), expected)
            yield untimed_batch({"prompt": prompts}, origin, int(rows[0]))

    def _from_lines(self, path: Path, notes: dict[str, Any]) -> Iterator[Batch]:
        skipped = notes["skipped"] = {"blank lines": 0}
        kept, clock = 0, None
        for rows, prompts in lines(path, self.limits, self.limits.max_prompt_bytes, "prompt"):
            if rows and rows[0] == 0:
                _refuse_table(path, prompts[0])
                clock = _clock_of([text for text in prompts if text.strip()])
            keep = [index for index, prompt in enumerate(prompts) if prompt.strip()]
            skipped["blank lines"] += len(prompts) - len(keep)
            origin = Origin(str(path), rows=np.array(rows, np.int64)[keep])
            texts = [prompts[index] for index in keep]
            if clock is None:
                yield untimed_batch({"prompt": texts}, origin, kept)
            else:
                notes.pop("arrival_s", None)
                notes[SAID] = [f"taken: milliseconds from number {clock} of each line as arrival_s, the rest as prompt"]
                yield _timed(texts, clock, origin)
            kept += len(keep)


def _clock_of(texts: list[str]) -> int | None:
    """Return which of two numbers, 1 or 2, at the start of each line is milliseconds; None if the lines are prompts.

    The other number counts the lines, from 0 or 1.
    """
    found = [TIMED.fullmatch(text) for text in texts]
    if len(found) < 2 or not all(found):
        return None
    pairs = [(int(match[1]), int(match[2])) for match in found if match]
    for clock in (1, 2):
        times, counts = ([pair[place] for pair in pairs] for place in (clock - 1, 2 - clock))
        if counts == [*range(counts[0], counts[0] + len(counts))] and counts[0] in (0, 1) and times == sorted(times):
            return clock
    return None


def _timed(texts: list[str], clock: int, origin: Origin) -> Batch:
    """Return lines with the milliseconds that `_clock_of` saw. Raises TraceError for a line of another form."""
    found = [TIMED.fullmatch(text) for text in texts]
    for index, match in enumerate(found):
        if match is None:
            expected = "two whole numbers, milliseconds and the number of the line, as in the lines before"
            raise refusal(origin, index, "prompt", repr(texts[index]), expected)
    arrival_s = [int(match[clock]) / 1000.0 for match in found if match]
    prompts = pa.array([(match[3] or "").strip('"') or None for match in found if match], pa.string())
    return Batch({"prompt": prompts}, pa.chunked_array([pa.array(arrival_s, pa.float64())]), origin, relative=True)


def _refuse_table(path: Path, line: str) -> None:
    """Raise TraceError if the first line shows a table or JSON, with the importer to use.

    A table has a header: two or more names of columns, or one that names prompts. Prompts may contain commas.
    """
    text, what = line.strip(), ""
    if JSON_START.match(text) or (text[:1] in ("{", "[") and _is_json(text)):
        what = "JSON, which is read only from .json and .jsonl files; rename the file"
    for delimiter in ",\t;|":
        cells = [cell.strip('"') for cell in text.lower().split(delimiter)]
        known = NAMES.intersection(cells)
        if all(re.fullmatch(r"[a-z_]\w*", cell) for cell in cells) and (known & TEXTS or len(known) > 1):
            what = what or (
                f"the header of a table with {delimiter!r} between its columns; use `trace import csv --delimiter"
                f" {delimiter!r} --map prompt=COLUMN`, or drop the line"
            )
    if what:
        raise TraceError(f"{path}: row 0: found {excerpt(repr(line), 60)}, {what}")


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict | list)
    except (ValueError, RecursionError):
        return False
