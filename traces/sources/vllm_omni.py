"""The trace of vLLM-Omni's diffusion benchmark, one `Request(...)` per line, read and written."""

import ast
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf, nextafter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.formats.cells import refusal
from mezzotint.traces.sources.formats.lines import lines as text_lines
from mezzotint.traces.sources.formats.records import extras
from mezzotint.traces.sources.reader import make_reading
from mezzotint.traces.table.ingest import ORDER_ONLY, Batch, Reading, order_times, own_clock, since_earliest
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.validation import Origin, excerpt

FIELDS: Mapping[str, tuple[str, type]] = {
    "request_id": ("request_id", str),
    "prompt": ("prompt", str),
    "width": ("width", int),
    "height": ("height", int),
    "num_frames": ("frames", int),
    "num_inference_steps": ("steps", int),
    "timestamp": ("time", float),
    "slo_ms": ("slo_s", float),
    "seed": ("seed", int),
}
"""Field, in the order of writing -> column of a trace, and type of its values."""

MS = 1000.0
"""Milliseconds in a second."""

SINCE_1970_S = 1e8
"""Timestamps above this are seconds since 1970; as seconds of a benchmark they would be three years."""

NEXT = re.compile(
    r"""\s*+(?P<name>[A-Za-z_]\w{0,63})\s*+=\s*+(?P<value>
        '[^'\\]*+(?:\\.[^'\\]*+)*+' | "[^"\\]*+(?:\\.[^"\\]*+)*+"
        | [+-]?+[0-9][0-9.eE+_-]{0,63}+ | None | True | False
    )\s*+(?P<after>[,)])""",
    re.VERBOSE,
)
"""A keyword and its value: a string, a number or a constant of Python, and no nested value."""


@dataclass(slots=True, kw_only=True)
class VllmOmni(Streamed):
    """Requests of vLLM-Omni's diffusion benchmark: lines such as `Request(request_id='a', width=512, ...)`.

    A line is not run as code: it is split into keywords and values, and each value is a literal string, number or
    constant. A timestamp is seconds from the start, or, above 1e8, seconds since 1970. Without timestamps the lines are
    an order and no times. The deadline `slo_ms` becomes `slo_s`, in seconds.

    Args:
        path: the file, UTF-8, plain or gzipped; a leading ~ is the home folder.
    """

    path: str | Path
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        notes: dict[str, Any] = {"file": path.name, "skipped": {"blank lines": 0}}
        return make_reading(
            self, f"vLLM-Omni diffusion trace, {path.name}", self._batches(path, notes), notes, _counted
        )

    def _batches(self, path: Path, notes: dict[str, Any]) -> Iterator[Batch]:
        timed: bool | None = None
        kept = 0
        names = {ours: theirs for theirs, (ours, _) in FIELDS.items()}
        longest = 2 * self.limits.max_prompt_bytes + 4096  # escaped text is longer
        for numbers, texts in text_lines(path, self.limits, longest, "request"):
            filled = {row: text.strip() for row, text in zip(numbers, texts, strict=True) if text.strip()}
            notes["skipped"]["blank lines"] += len(texts) - len(filled)
            origin = Origin(str(path), columns=names, rows=np.array(list(filled), np.int64))
            found = [_fields(line, origin, index) for index, line in enumerate(filled.values())]
            times = [each.get("timestamp") for each in found]
            for index, time in enumerate(times):
                timed = time is not None if timed is None else timed
                if timed is not (time is not None):
                    raise TraceError(
                        f"{origin.cell(index, 'time')}: found {time}, expected a timestamp in every line or in none; "
                        "add or drop them"
                    )
            if timed is False:
                notes["arrival_s"] = ORDER_ONLY
            arrivals = pa.array(times, pa.float64()) if timed else order_times(len(found), kept)
            relative = all(time is None or time <= SINCE_1970_S for time in times)
            yield Batch(_columns(found), arrivals, origin, relative=relative)
            kept += len(found)


def lines(trace: Trace) -> Iterator[str]:
    """Yield each request of `trace` as the benchmark reads it, without the end of the line and without nulls.

    Raises TraceError if extras are not a JSON object.
    """
    columns = {ours: trace.table.column(ours) for ours, _ in FIELDS.values() if ours != "time"}
    order_only = trace.notes.get("arrival_s") == ORDER_ONLY
    for row, time in enumerate(trace.arrival_s.tolist()):
        own = {"time": None if order_only else time, **{name: column[row].as_py() for name, column in columns.items()}}
        values = {name: own[ours] for name, (ours, _) in FIELDS.items()}
        slo_s = own["slo_s"]  # in the extras of traces from before its column
        values["slo_ms"] = extras(trace, row).get("slo_ms") if slo_s is None else milliseconds(slo_s)
        yield f"Request({', '.join(f'{name}={value!r}' for name, value in values.items() if value is not None)})"


def _fields(line: str, origin: Origin, index: int) -> dict[str, Any]:
    """Return the keywords of one line and their values, without None."""

    def refuse(found: str, expected: str, column: str = "request") -> TraceError:
        return refusal(origin, index, column, found, expected)

    if not line.startswith("Request("):
        raise refuse(repr(line[:200]), "Request(request_id='...', width=..., ...), one a line")
    at, values = len("Request("), dict[str, Any]()
    closed = line[at:].strip() == ")"
    while not closed:
        part = NEXT.match(line, at)
        if part is None:
            literal = "a keyword and a literal string, number or None, then a comma or the closing )"
            raise refuse(repr(line[at : at + 200]), literal)
        name, text = part["name"], part["value"]
        if name not in FIELDS:
            raise refuse(name, f"a field among {', '.join(FIELDS)}", name)
        if name in values:
            raise refuse(f"{name} twice", "it once", name)
        column, kind = FIELDS[name]
        values[name] = _value(text, kind, partial(refuse, column=column))
        at = part.end()
        closed = part["after"] == ")" or line[at:].strip() == ")"
        if part["after"] == "," and closed:
            at = len(line)
    if line[at:].strip() not in ("", ")"):
        raise refuse(repr(line[at : at + 200]), "the end of the line after the closing )")
    return {name: value for name, value in values.items() if value is not None}


def _value(text: str, kind: type, refuse: Callable[[str, str], TraceError]) -> Any:
    """Return the value of one literal of type `kind`, or None."""
    expected = {str: "a string", int: "a whole number", float: "a finite number"}[kind]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unknown escapes
            value = ast.literal_eval(text)
        if kind is str and isinstance(value, str):
            value.encode()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise refuse(excerpt(text, 60), expected) from None
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = isinstance(value, str) if kind is str else number and (kind is float or isinstance(value, int))
    if not fits or (number and not abs(value) < 2**63):
        raise refuse(excerpt(text, 60), expected)
    return value


def _columns(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of a trace, null for absent fields; request_id only if every line has one."""
    columns: dict[str, Any] = {}
    for theirs, (ours, kind) in FIELDS.items():
        values = [each.get(theirs) for each in found]
        if theirs == "request_id":
            if all(value is not None for value in values):
                columns[ours] = values
        elif theirs == "slo_ms":
            columns[ours] = pa.array([None if value is None else value / MS for value in values], pa.float64())
        elif ours != "time":
            columns[ours] = pa.array(values, pa.string() if kind is str else pa.int64())
    return columns


def milliseconds(seconds: float) -> float:
    """Return the shortest number of milliseconds that is read as ``seconds``: a product may be off by a rounding."""
    near = seconds * MS
    same = [each for each in (near, nextafter(near, 0.0), nextafter(near, inf)) if each / MS == seconds]
    return min(same, key=lambda each: len(repr(each)), default=near)


def _counted(table: pa.Table) -> pa.Table:
    """Return `table` with arrivals from the start of the trace, for either kind of timestamp."""
    return (since_earliest if table.column("time")[0].as_py() > SINCE_1970_S else own_clock)(table)
