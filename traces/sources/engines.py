"""Files of the engines' own benchmarks, read and written: vLLM-Omni's `Request(...)` lines, SGLang's manifest.

Each format declares its fields once, in the order of writing. A field in `COLUMNS` is a column of a trace; any other is
kept in the column extras.
"""

import ast
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf, nextafter
from pathlib import Path
from typing import Annotated, Any, ClassVar, Required

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import ConfigDict, Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from mezzotint.files.atomic import atomic_write
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.formats.cells import refusal
from mezzotint.traces.sources.formats.jsontext import elements
from mezzotint.traces.sources.formats.lines import lines
from mezzotint.traces.sources.formats.records import check_records
from mezzotint.traces.sources.reader import make_reading, untimed_batch, with_row_numbers
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import ORDER_ONLY, ROWS, Batch, Reading, order_times, own_clock, since_earliest
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.validation import Origin, excerpt

Text = str | None
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)] | None
Number = Annotated[float, Field(gt=-(2.0**63), lt=2.0**63)] | None


@with_config(ConfigDict(extra="forbid"))
class RequestLine(TypedDict, total=False):
    """A line of vLLM-Omni's diffusion benchmark."""

    request_id: Text
    prompt: Text
    width: Whole
    height: Whole
    num_frames: Whole
    num_inference_steps: Whole
    timestamp: Number
    slo_ms: Number
    seed: Whole


@with_config(ConfigDict(extra="forbid"))
class ManifestLine(TypedDict, total=False):
    """A line of SGLang-Diffusion's manifest."""

    prompt: Required[str]
    request_id: Text
    width: Whole
    height: Whole
    num_inference_steps: Whole
    guidance_scale: Number
    negative_prompt: Text
    seed: Whole
    num_outputs_per_prompt: Whole
    num_frames: Whole
    fps: Number
    image_paths: list[str] | None
    sampling_params: dict[str, Any] | None


COLUMNS: Mapping[str, str] = {
    "request_id": "request_id", "prompt": "prompt", "width": "width", "height": "height", "num_frames": "frames",
    "num_inference_steps": "steps", "num_outputs_per_prompt": "images", "timestamp": "arrival_s", "slo_ms": "slo_s",
    "seed": "seed",
}  # fmt: skip
"""Field of an engine -> column of a trace; slo_ms is in milliseconds."""

MS = 1000.0
"""Milliseconds in a second."""

SINCE_1970_S = 1e8
"""Timestamps above this are seconds since 1970; as seconds of a benchmark they would be three years."""


@dataclass(slots=True, kw_only=True)
class VllmOmni(Streamed):
    """Requests of vLLM-Omni's diffusion benchmark: lines such as `Request(request_id='a', width=512, ...)`.

    A line is not run as code: it is split into keywords and values, and each value is a literal string, number or
    constant. A timestamp is seconds from the start, or, above 1e8, seconds since 1970. Without timestamps the lines are
    an order and no times. The deadline `slo_ms` becomes `slo_s`, in seconds.

    Args:
        path: the file, UTF-8, plain or gzipped; a leading ~ is the home folder.
    """

    NAME: ClassVar = "vllm-omni"

    path: str | Path
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        notes: dict[str, Any] = {"file": path.name, "skipped": {"blank lines": 0}}
        batches = self._batches(path, notes)
        return make_reading(self, f"vLLM-Omni diffusion trace, {path.name}", batches, notes, _since_start)

    def _batches(self, path: Path, notes: dict[str, Any]) -> Iterator[Batch]:
        timed: bool | None = None
        kept = 0
        longest = 2 * self.limits.max_prompt_bytes + 4096  # escaped text is longer
        for numbers, texts in lines(path, self.limits, longest, "request"):
            filled = {row: text.strip() for row, text in zip(numbers, texts, strict=True) if text.strip()}
            notes["skipped"]["blank lines"] += len(texts) - len(filled)
            origin = _origin(path, np.array(list(filled), np.int64))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # unknown escapes in texts
                records = [_keywords(line, origin, index) for index, line in enumerate(filled.values())]
            check_records(records, LINES[self.NAME], origin)
            timed = _in_all(records, "timestamp", timed, origin)
            columns = _columns(records, RequestLine)
            if any(record.get("request_id") is None for record in records):
                del columns["request_id"]
            columns["slo_s"] = pc.divide(columns["slo_s"], MS)
            times = columns.pop("arrival_s")
            if timed is False:
                notes["arrival_s"] = ORDER_ONLY
                times = order_times(len(records), kept)
            since_1970 = timed and (pc.max(times).as_py() or 0.0) > SINCE_1970_S
            yield Batch(columns, times, origin, relative=not since_1970)
            kept += len(records)


def _since_start(table: pa.Table) -> pa.Table:
    """Return `table` with arrivals from the start of the trace, for either kind of timestamp."""
    return (since_earliest if table.column("time")[0].as_py() > SINCE_1970_S else own_clock)(table)


def _keywords(line: str, origin: Origin, index: int) -> dict[str, Any]:
    """Return the keywords of one line and their literal values; the line is parsed and not run."""
    expected = "Request(request_id='...', width=..., ...) with literal strings and numbers, one a line"
    try:
        call = ast.parse(line, mode="eval").body
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "Request" or call.args:
            raise ValueError
        values = [(keyword.arg or "**", ast.literal_eval(keyword.value)) for keyword in call.keywords]
        for _, value in values:
            str(value).encode()
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise refusal(origin, index, "request", repr(line[:200]), expected) from None
    if len(dict(values)) < len(values):
        raise refusal(origin, index, "request", f"a field twice in {line[:200]!r}", "each field once")
    return dict(values)


@dataclass(slots=True, kw_only=True)
class SGLang(Streamed):
    """The manifest of SGLang-Diffusion's benchmark: JSON lines with a prompt and optional settings.

    The settings are size, steps, seed, number of images and more. An unknown field is an error, as in the benchmark.
    The manifest has no times: its lines are in order, and need an arrival process. Fields without a column are kept in
    the extras, so that `export` writes what was read.

    Args:
        path: the file, UTF-8, plain or gzipped; a leading ~ is the home folder.
    """

    NAME: ClassVar = "sglang"

    path: str | Path
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        notes = {"file": path.name, "arrival_s": ORDER_ONLY}
        return make_reading(self, f"SGLang-Diffusion manifest, {path.name}", self._batches(path), notes)

    def _batches(self, path: Path) -> Iterator[Batch]:
        named: bool | None = None
        others = [name for name in ManifestLine.__annotations__ if name not in COLUMNS]
        for rows, records in with_row_numbers(elements(path, self.limits)):
            origin = _origin(path, rows)
            check_records(records, LINES[self.NAME], origin)
            named = _in_all(records, "request_id", named, origin)
            columns = _columns(records, ManifestLine)
            if not named:
                del columns["request_id"]
            kept = [{name: record[name] for name in others if record.get(name) is not None} for record in records]
            columns["extras"] = pa.array([json.dumps(each, ensure_ascii=False) if each else None for each in kept])
            yield untimed_batch(columns, origin, int(rows[0]))


LINES: Mapping[str, TypeAdapter[Any]] = {
    "vllm-omni": TypeAdapter(list[RequestLine]),
    "sglang": TypeAdapter(list[ManifestLine]),
}
"""Name of a format -> the form of its lines."""


def _origin(path: Path, rows: Any) -> Origin:
    return Origin(str(path), {ours: theirs for theirs, ours in COLUMNS.items()}, rows)


def _in_all(records: list[dict[str, Any]], name: str, is_in: bool | None, origin: Origin) -> bool | None:
    """Return whether the lines have a field. Raises TraceError if some have it and others, or those before, do not."""
    for index, record in enumerate(records):
        has = record.get(name) is not None
        is_in = has if is_in is None else is_in
        if has is not is_in:
            raise refusal(origin, index, COLUMNS[name], "one" if has else "none", "one in every line or in none")
    return is_in


def _columns(records: list[dict[str, Any]], form: Any) -> dict[str, Any]:
    """Return the fields of records that have a column, null where absent."""
    columns: dict[str, Any] = {}
    for name in form.__annotations__:
        if name in COLUMNS:
            kind = SCHEMA.field(COLUMNS[name]).type
            values = [record.get(name) for record in records]
            if pa.types.is_floating(kind):
                values = [None if value is None else float(value) for value in values]
            columns[COLUMNS[name]] = pa.array(values, pa.int64() if pa.types.is_integer(kind) else kind)
    return columns


def milliseconds(seconds: float) -> float:
    """Return the shortest number of milliseconds that is read as ``seconds``: a product may be off by a rounding."""
    near = seconds * MS
    same = [value for value in (near, nextafter(near, 0.0), nextafter(near, inf)) if value / MS == seconds]
    return min(same, key=lambda value: len(repr(value)), default=near)


@dataclass(frozen=True, slots=True)
class Format:
    """A format to export to: the form of a line, the text of its fields that are not null, a file's first bytes."""

    form: Any
    line: Callable[[Mapping[str, Any]], str]
    start: bytes


FORMATS: Mapping[str, Format] = {
    "vllm-omni": Format(
        RequestLine,
        lambda fields: f"Request({', '.join(f'{name}={value!r}' for name, value in fields.items())})",
        b"Request(",
    ),
    "sglang": Format(ManifestLine, partial(json.dumps, ensure_ascii=False), b'{"'),
}


def export(trace: Trace, form: str, path: Path) -> list[str]:
    """Write `trace` to `path` in the format `form` of FORMATS, UTF-8, a line per request, completely or not at all.

    Returns:
        Columns and fields of the extras that the format cannot hold.

    Raises TraceError if a request lacks what the format requires, its extras are not a JSON object, or the file cannot
    be written.
    """
    names, required = FORMATS[form].form.__annotations__, FORMATS[form].form.__required_keys__
    order_only = trace.notes.get("arrival_s") == ORDER_ONLY
    others: dict[str, None] = {}
    with atomic_write(path, TraceError) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for row, cells in enumerate(_rows(trace)):
            where = f"{trace.path or trace.name}: row {row}, column"
            extras = _extras(cells["extras"], where)
            others |= dict.fromkeys(extras)
            cells["arrival_s"] = None if order_only else cells["arrival_s"]
            cells["slo_s"] = None if cells["slo_s"] is None else milliseconds(cells["slo_s"])
            fields = {name: cells.get(COLUMNS.get(name, "")) for name in names}
            # num_frames and slo_ms were extras before the trace had columns for them
            fields = {name: extras.get(name) if value is None else value for name, value in fields.items()}
            fields = {name: value for name, value in fields.items() if value is not None}
            for name in required - fields.keys():
                raise TraceError(
                    f"{where} {COLUMNS[name]}: found null, expected a value, which {form} requires; pair the trace with"
                    f" {name}s (mezzotint trace pair)"
                )
            file.write(FORMATS[form].line(fields) + "\n")
    held = {"extras", *(COLUMNS.get(name) for name in names)}
    held |= {"arrival_s"} if order_only else set()  # the order of the lines says the same
    filled = (name for name in SCHEMA.names if trace.table.column(name).null_count < len(trace))
    return [name for name in (*filled, *others) if name not in held and name not in names]


def _rows(trace: Trace) -> Iterator[dict[str, Any]]:
    for batch in trace.table.to_batches(max_chunksize=ROWS):
        yield from batch.to_pylist()


def _extras(text: str | None, where: str) -> dict[str, Any]:
    try:
        extras = {} if text is None else json.loads(text)
    except (ValueError, RecursionError):
        extras = None
    if not isinstance(extras, dict):
        raise TraceError(
            f"{where} extras: found {excerpt(str(text))}, expected a JSON object; correct it, or make the trace again"
        )
    return extras
