"""Detect a table or JSON in a file that should have a prompt per line."""

import csv
import json
import re

from mezzotint.traces.table.columns import SCHEMA

TEXTS = frozenset({"prompt", "prompts", "caption", "captions"})
"""Names of columns of prompts; none of these words alone is a likely prompt."""

NAMES = TEXTS | frozenset(SCHEMA.names) | frozenset({
    "id", "text", "time", "timestamp", "created_at", "category", "challenge", "user", "user_name", "model", "step",
    "cfg", "sampler", "image", "image_name", "status",
})  # fmt: skip
"""Names of columns in the traces that can be imported and elsewhere."""

NAME = re.compile(r"[A-Za-z_]\w*")
JSON_START = re.compile(r'\[?\s*\{\s*"|\[\s*"|[\[{]\s*$')
"""Start of JSON; prompts have brackets too, such as [a fox:a hare:0.5] and {red|green}."""


def not_prompts(line: str) -> str | None:
    """Return what a first line shows the file to be, and which importer to use; None if it may be a prompt.

    A table has a header: two or more names of columns, or one that names prompts. Prompts may contain commas.
    """
    line = line.strip().removeprefix("\ufeff")
    if JSON_START.match(line) or _is_json(line):
        return "JSON, which is read only from .json and .jsonl files; rename the file"
    for delimiter, name in ((",", "commas"), ("\t", "tabs"), (";", "semicolons"), ("|", "bars")):
        try:
            cells = next(csv.reader([line], delimiter=delimiter), [])
        except csv.Error:  # a carriage return, or a cell of over 131,072 characters
            continue
        names = [cell.lower() for cell in cells if NAME.fullmatch(cell)]
        known = NAMES.intersection(names)
        if len(names) == len(cells) and (known & TEXTS or len(known) > 1):
            how = "" if delimiter == "," else " --delimiter " + repr(delimiter)
            between = f" with {name} between its columns" if len(cells) > 1 else ""
            return f"the header of a table{between}; use `trace import csv{how} --map prompt=COLUMN`, or drop the line"
    return None


def _is_json(line: str) -> bool:
    if line[:1] not in ("{", "["):
        return False
    try:
        return isinstance(json.loads(line), dict | list)
    except (ValueError, RecursionError):
        return False
