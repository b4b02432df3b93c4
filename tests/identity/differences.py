"""What differs between the files of two runs, in one line each.

``form`` brings the names of classes in the second run into those of the first (forms.py).
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.identity.forms import Form


def tables(before: Path, after: Path, form: Form = str) -> str | None:
    """Return the first value, by row and then by column, in which two Parquet files differ; None for equal bytes."""
    if before.read_bytes() == after.read_bytes():
        return None
    old, new = pq.read_table(before), pq.read_table(after)
    if form is not str:
        new = _renamed(new, form)
        if old.equals(new):
            return None
    if old.schema != new.schema:
        gone = [str(field) for field in old.schema if field not in list(new.schema)]
        come = [str(field) for field in new.schema if field not in list(old.schema)]
        if not gone and new.select(old.column_names).equals(old):
            names = ", ".join(name for name in new.column_names if name not in old.column_names)
            return f"columns: {names} new, all others as before"
        return f"columns: {', '.join(gone) or 'none'} gone, {', '.join(come) or 'none'} new"
    first = {name: row for name in old.column_names if (row := _first(old.column(name), new.column(name))) is not None}
    if first:
        column = min(first, key=lambda name: first[name])
        row = first[column]
        return (
            f"{column}, row {row}: {old.column(column)[row]}, then {new.column(column)[row]}"
            f" ({len(first)} of {old.num_columns} columns differ)"
        )
    if old.num_rows != new.num_rows:
        return f"rows: {old.num_rows}, then {new.num_rows}, the same as far as both go"
    return "the same values, in other bytes"


def summaries(before: Path, after: Path, form: Form = str) -> str | None:
    """Return the first differing key of two summaries, ``wall`` aside, and their number; None for equal ones."""
    old, new = json.loads(before.read_text(encoding="utf-8")), json.loads(form(after.read_text(encoding="utf-8")))
    found = list(_keys(*({key: value for key, value in each.items() if key != "wall"} for each in (old, new))))
    return f"{found[0]} (keys that differ: {len(found)})" if found else None


RESULTS = "requests.parquet", "attempts.parquet"
"""The files that are the same where two runs are; a run without attempts writes only the first."""

FILES: dict[str, Callable[[Path, Path, Form], str | None]] = {
    **dict.fromkeys(RESULTS, tables),
    "cluster.parquet": tables,
    "summary.json": summaries,
}
"""What is compared of two runs, and how."""


def runs(before: Path, after: Path, form: Form = str) -> dict[str, str]:
    """Return the difference of each file of two run directories; none for equal files, and for one that both lack."""
    found = {
        name: _file(before / name, after / name, partial(difference, form=form)) for name, difference in FILES.items()
    }
    return {name: difference for name, difference in found.items() if difference is not None}


def _renamed(table: pa.Table, form: Form) -> pa.Table:
    """Return ``table`` with its texts in another form."""
    for place, field in enumerate(table.schema):
        if field.type == pa.string():
            texts = [None if text is None else form(text) for text in table.column(place).to_pylist()]
            table = table.set_column(place, field, pa.array(texts, pa.string()))
    return table


def _file(before: Path, after: Path, difference: Callable[[Path, Path], str | None]) -> str | None:
    """Return ``difference`` of two files, or which run alone wrote one."""
    written = [side for side, path in (("before", before), ("after", after)) if path.exists()]
    if len(written) == 1:
        return f"written only {written[0]}"
    return difference(before, after) if written else None


def _first(old: pa.ChunkedArray, new: pa.ChunkedArray) -> int | None:
    """Return the first row in which two columns differ, up to the shorter; NaN equals itself, and 0 does not equal
    -0."""
    pairs = zip(old.to_pylist(), new.to_pylist(), strict=False)
    return next((row for row, (a, b) in enumerate(pairs) if repr(a) != repr(b)), None)


def _keys(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """Yield every key at which two values differ, with both."""
    if isinstance(old, dict) and isinstance(new, dict):
        inside = [(str(key), old.get(key, "absent"), new.get(key, "absent")) for key in {**old, **new}]
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        inside = [(str(i), *pair) for i, pair in enumerate(zip(old, new, strict=True))]
    else:
        if repr(old) != repr(new):
            yield f"{at}: {_short(old)}, then {_short(new)}"
        return
    for key, *pair in inside:
        yield from _keys(*pair, f"{at}.{key}" if at else key)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
