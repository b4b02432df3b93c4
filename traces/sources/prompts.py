"""A list of prompts: lines of text, or JSON."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.formats.cells import refusal
from mezzotint.traces.sources.formats.jsontext import elements
from mezzotint.traces.sources.formats.lines import lines
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

JSON_START = re.compile(r'\[?\s*\{\s*"|\[\s*"|[\[{]\s*$')
"""Start of JSON; prompts have brackets too, such as [a fox:a hare:0.5] and {red|green}."""


@dataclass(slots=True, kw_only=True)
class Prompts(Streamed):
    """A file of prompts and nothing else, UTF-8, plain or gzipped.

    A file named .json or .jsonl (or the same with .gz) is a JSON array, or one JSON value after another. Its values are
    texts or objects with a member "prompt". Any other file has a prompt per line; blank lines are skipped and counted
    in the notes. Requests are named after their line or element, counted from 0, and arrive a second apart: an order
    and no times. A table (by its name, or by a header of columns), or JSON under another name, is an error.

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
        kept = 0
        for rows, prompts in lines(path, self.limits, self.limits.max_prompt_bytes, "prompt"):
            if rows and rows[0] == 0:
                _refuse_table(path, prompts[0])
            keep = [index for index, prompt in enumerate(prompts) if prompt.strip()]
            skipped["blank lines"] += len(prompts) - len(keep)
            origin = Origin(str(path), rows=np.array(rows, np.int64)[keep])
            yield untimed_batch({"prompt": [prompts[index] for index in keep]}, origin, kept)
            kept += len(keep)


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
