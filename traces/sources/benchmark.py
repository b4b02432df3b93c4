"""Result files of benchmark clients that list every request: AIPerf's, and that of `vllm bench serve`."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from mezzotint.files.document import parse_json
from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.clock import PER_SECOND
from mezzotint.traces.formats.headers import UNIT_WORDS
from mezzotint.traces.formats.jsontext import elements
from mezzotint.traces.formats.records import check_records
from mezzotint.traces.sources import Streamed
from mezzotint.traces.sources.interpret import SAID, SIZE
from mezzotint.traces.sources.reader import Columns, make_reading, with_row_numbers
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import Batch, Reading, since_earliest
from mezzotint.traces.table.limits import Limits, open_bounded
from mezzotint.traces.table.validation import excerpt

Floats = npt.NDArray[np.float64]


class _Metadata(TypedDict):
    request_start_ns: int
    request_end_ns: int
    x_request_id: NotRequired[str | None]
    conversation_id: NotRequired[str | None]
    turn_index: NotRequired[int | None]
    benchmark_phase: NotRequired[str | None]
    was_cancelled: NotRequired[bool | None]


class _Record(TypedDict):
    metadata: _Metadata
    metrics: NotRequired[dict[str, Any] | None]
    error: NotRequired[Any]


RECORDS: TypeAdapter[Any] = TypeAdapter(list[_Record])

BODY = {
    "prompt": "prompt",
    "steps": "num_inference_steps",
    "images": "n",
    "seed": "seed",
    "frames": "num_frames",
    "guidance": "guidance_scale",
    "negative_prompt": "negative_prompt",
}
"""Column -> field in the body of a request to /v1/images/generations. `size` gives width and height."""

STARTS = ("start_times", "request_start_times", "start_time", "timestamps")
LATENCIES = ("e2els", "latencies", "e2e_latencies", "request_latencies", "e2el", "latency")
"""Names of the lists of `vllm bench serve`; latencies with _ms after the name are milliseconds."""

FIRST_AND_LATER = "ttfts + itls"
"""Name of a latency that is listed in two parts."""


@dataclass(slots=True, kw_only=True)
class AIPerf(Streamed):
    """The requests of an AIPerf run: profile_export.jsonl, a line for each request.

    An arrival is the moment the client sends a request, and `latency_s` the seconds until the whole answer. Prompt,
    size, steps and number of images come from the file inputs.json beside it, by conversation and turn; without it
    they are null. Requests of the warm-up, cancelled ones and those with an error are skipped and counted.

    Args:
        path: profile_export.jsonl, plain or gzipped; a leading ~ is the home folder.
    """

    NAME: ClassVar = "aiperf"

    path: str | Path
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        notes: dict[str, Any] = {"file": path.name}
        return make_reading(self, f"AIPerf, {path.name}", self._batches(path, notes), notes)

    def _batches(self, path: Path, notes: dict[str, Any]) -> Iterator[Batch]:
        table = Columns(where=str(path), names={}, notes=notes)
        inputs = _inputs(path)
        payloads = _payloads(inputs, self.limits)
        starts, latencies, names, bodies, numbers = [], [], [], [], []
        last: list[Any] = []
        for rows, records in with_row_numbers(elements(path, self.limits)):
            origin = table.origin(rows)
            check_records(records, RECORDS, origin)
            last = records
            about = [record["metadata"] for record in records]
            reasons = {
                "of the warm-up": [one.get("benchmark_phase") not in (None, "profiling") for one in about],
                "cancelled": [bool(one.get("was_cancelled")) for one in about],
                "failed": [record.get("error") is not None for record in records],
            }
            for index in table.keep(rows, {reason: np.array(holds, np.bool_) for reason, holds in reasons.items()}):
                starts.append(about[index]["request_start_ns"])
                latencies.append(_aiperf_latency(records[index], f"{path}: row {rows[index]}"))
                names.append(about[index].get("x_request_id"))
                bodies.append(payloads.get((about[index].get("conversation_id"), about[index].get("turn_index") or 0)))
                numbers.append(rows[index])
        table.check_kept("check the errors in the file, and run the benchmark again")
        if not starts:
            return
        first_ns = min(starts)  # whole nanoseconds: as floats, times since 1970 are off by up to 0.2 us
        notes["first_arrival"] = datetime.fromtimestamp(first_ns / 1e9, UTC).isoformat()
        columns: dict[str, Any] = {"latency_s": pa.array(latencies, pa.float64())}
        if None not in names:
            columns["request_id"] = names
        columns |= _body_columns(bodies, str(inputs))
        fields = {"arrival_s": "request_start_ns", "latency_s": "request_latency", "request_id": "x_request_id"}
        others = {name for record in last for name in (*record["metadata"], *(record.get("metrics") or {}))}
        others |= {name for body in bodies for name in body or {}}
        notes[SAID] = _said(columns, fields, others)
        times = pa.array([(start - first_ns) / 1e9 for start in starts], pa.float64())
        yield Batch(columns, times, table.origin(np.array(numbers)), relative=True)


def _said(columns: Iterable[str], fields: Mapping[str, str], others: Iterable[str]) -> list[str]:
    """Return what was taken and what was left out, a sentence each.

    Args:
        columns: columns of the trace that were filled, besides the arrivals.
        fields: column -> its field in the file, where that is not of a request's body.
        others: every field that the file has.
    """
    theirs = {"arrival_s": fields["arrival_s"]}
    theirs |= {name: fields.get(name) or BODY.get(name) or "size" for name in columns}
    taken = [field if field == name else f"{field} as {name}" for name, field in theirs.items()]
    left_out = sorted(set(others) - set(theirs.values()))
    return [f"taken: {'; '.join(taken)}"] + ([f"left out: {', '.join(left_out)}"] if left_out else [])


def _aiperf_latency(record: Mapping[str, Any], where: str) -> float:
    """Return the seconds from a request's send to its whole answer."""
    latency = (record.get("metrics") or {}).get("request_latency")
    if latency is None:
        return float((record["metadata"]["request_end_ns"] - record["metadata"]["request_start_ns"]) / 1e9)
    try:
        return float(latency["value"]) / PER_SECOND[UNIT_WORDS[latency["unit"]]]
    except (TypeError, KeyError, ValueError):
        raise TraceError(
            f"{where}, column request_latency: found {excerpt(repr(latency), 60)}, expected a value with a unit among"
            f" {', '.join(PER_SECOND)}; fix or drop the record"
        ) from None


def _inputs(path: Path) -> Path:
    """Return the file with the bodies of the requests: inputs.json, after the same prefix if the name has one."""
    prefix, export, _ = path.name.partition("profile_export.jsonl")
    return path.with_name(f"{prefix if export else ''}inputs.json")


def _payloads(path: Path, limits: Limits) -> dict[tuple[str | None, int], Mapping[str, Any]]:
    """Return the bodies of AIPerf's inputs.json by conversation and turn; empty if there is no such file."""
    if not path.is_file():
        return {}
    try:
        return {
            (session["session_id"], turn): dict(body)
            for session in read_object(path, limits)["data"]
            for turn, body in enumerate(session["payloads"])
        }
    except (KeyError, TypeError, ValueError):
        raise TraceError(
            f"{path}: found no list `data` of sessions with `session_id` and `payloads`, as AIPerf writes it; remove"
            " the file, and the requests have no prompt, size and steps"
        ) from None


def _body_columns(bodies: list[Mapping[str, Any] | None], where: str) -> dict[str, Any]:
    """Return the columns that the bodies of requests state, null where a body is unknown or lacks the field."""
    columns: dict[str, Any] = {}
    try:
        for name, theirs in BODY.items():
            values = [None if body is None else body.get(theirs) for body in bodies]
            if any(value is not None for value in values):
                kind = SCHEMA.field(name).type
                columns[name] = pa.array(values, pa.int64() if pa.types.is_integer(kind) else kind)
        sizes = [(None, None) if body is None or body.get("size") is None else size(body["size"]) for body in bodies]
        if any(width is not None for width, _ in sizes):
            columns["width"], columns["height"] = (list(side) for side in zip(*sizes, strict=True))
    except (pa.ArrowException, ValueError) as error:
        raise TraceError(
            f"{where}: found a body that cannot be read ({error}); correct it, or remove the file"
        ) from None
    return columns


def size(text: Any) -> tuple[int, int]:
    """Return width and height of a size such as "1024x768". Raises ValueError for another text."""
    match = SIZE.fullmatch(str(text))
    if match is None:
        raise ValueError(f"size {excerpt(repr(text), 40)}, expected WIDTHxHEIGHT")
    return int(match[1]), int(match[2])


def read_object(path: Path, limits: Limits) -> dict[str, Any]:
    """Return the one JSON object in a file. Raises TraceError for another content."""
    with open_bounded(path, limits) as stream:
        try:
            content = parse_json(stream.read())
        except ValueError as error:
            raise TraceError(f"{path}: cannot be read as JSON ({excerpt(str(error))}); fetch the file again") from error
    if not isinstance(content, dict):
        raise TraceError(f"{path}: found a JSON {type(content).__name__}, expected an object; name another file")
    return content


@dataclass(slots=True, kw_only=True)
class VllmBench(Streamed):
    """The result of `vllm bench serve` with --save-result --save-detailed: one JSON object with a list for each figure.

    An arrival is the moment the client sends a request (`start_times`), and `latency_s` the seconds until the whole
    answer: `e2els` or `latencies`, else `ttfts` plus the sum of `itls`. Requests with an error are skipped and counted.

    Args:
        path: the JSON file, plain or gzipped; a leading ~ is the home folder.
    """

    NAME: ClassVar = "vllm-bench"

    path: str | Path
    name: str | None = None
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        notes: dict[str, Any] = {"file": path.name}
        batches = self._batches(path, notes)
        return make_reading(self, f"vllm bench serve, {path.name}", batches, notes, since_earliest)

    def _batches(self, path: Path, notes: dict[str, Any]) -> Iterator[Batch]:
        content = read_object(path, self.limits)
        table = Columns(where=str(path), names={}, notes=notes)
        start = _vllm_start(content)
        latency = _vllm_latency(content)
        if start is None or latency is None:
            lacking = "starts (start_times)" if start is None else "latencies (e2els)"
            raise TraceError(
                f"{path}: has no list of {lacking}; run `vllm bench serve` with --save-result --save-detailed, or name"
                " the file as a result of aggregates in `mezzotint validate --measured`"
            )
        times, seconds = _numbers(path, start, content[start]), _vllm_seconds(path, latency, content)
        lists: dict[str, Any] = {latency: seconds.tolist()}
        lists |= {name: content[name] for name in ("errors", "prompts", "request_ids") if content.get(name)}
        for name, values in lists.items():
            if not isinstance(values, list) or len(values) != len(times):
                raise TraceError(
                    f"{path}: {name}: found {excerpt(repr(values), 40)}, expected {len(times)} values, as many as"
                    f" {start}; write the file again"
                )
        rows = np.arange(len(times))
        failed = np.array([bool(error) for error in lists.get("errors", [False] * len(times))], np.bool_)
        kept = table.keep(
            rows, {"failed": failed, "without a start or a latency": ~(np.isfinite(times) & (seconds > 0))}
        )
        table.check_kept("check the errors in the file, and run the benchmark again")
        if len(kept):
            check_seconds(path, start, float(np.ptp(times[kept])), "a time of {:g} s between starts", content)
            check_seconds(path, latency, float(seconds[kept].mean()), "a mean latency of {:g} s", content)
        if client := {name: value for name, value in client_of(content).items() if math.isfinite(value)}:
            notes["client"] = client
        columns: dict[str, Any] = {"latency_s": seconds[kept]}
        for name, theirs in (("prompt", "prompts"), ("request_id", "request_ids")):
            if theirs in lists:
                columns[name] = pa.array([str(lists[theirs][row]) for row in kept], pa.string())
        columns |= _body_columns([_settings(content)] * len(kept), str(path))
        fields = {"arrival_s": start, "latency_s": latency, "prompt": "prompts", "request_id": "request_ids"}
        notes[SAID] = _said(columns, fields, content)
        yield Batch(columns, pa.array(times[kept]), table.origin(rows[kept]))


def check_seconds(path: Path, key: str, seconds: float, what: str, content: Mapping[str, Any]) -> None:
    """Raise TraceError if ``seconds``, of ``key``, are more than the whole run lasted, as milliseconds would be."""
    duration_s = content.get("duration")
    if isinstance(duration_s, int | float) and not isinstance(duration_s, bool) and 0 < duration_s < seconds:
        raise TraceError(
            f"{path}: {key}: found {what.format(seconds)} in a run of {duration_s:g} s (duration); if it is in"
            " milliseconds, write it in seconds"
        )


def client_of(content: Mapping[str, Any]) -> dict[str, float]:
    """Return how a client says that it sent: `max_in_flight` requests, and `sent_rpm` a minute, inf for all at once.

    Of `vllm bench serve` and its kin, and of AIPerf's profile_export_aiperf.json.
    """
    config = content.get("input_config")
    load = config.get("loadgen") if isinstance(config, dict) else None
    said = load if isinstance(load, dict) else content
    keys = {
        "max_in_flight": ("concurrency" if said is load else "max_concurrency", 1),
        "sent_rpm": ("request_rate", 60),
    }
    return {name: per * float(said[key]) for name, (key, per) in keys.items() if _is_positive(said.get(key))}


def _is_positive(value: Any) -> bool:
    """Return True for a number above 0, or the text inf, as vLLM writes it."""
    return value == "inf" or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0)


def lists_requests(content: Mapping[str, Any]) -> bool:
    """Return True if a result of `vllm bench serve` lists the start and the latency of its requests."""
    return _vllm_start(content) is not None and _vllm_latency(content) is not None


def _vllm_start(content: Mapping[str, Any]) -> str | None:
    """Return the name of the list of starts; None if there is none."""
    return next((name for name in STARTS if isinstance(content.get(name), list)), None)


def _vllm_latency(content: Mapping[str, Any]) -> str | None:
    """Return the name of the list of latencies; FIRST_AND_LATER for its two parts, and None if there is none."""
    names = (key for name in LATENCIES for key in (name, f"{name}_ms") if isinstance(content.get(key), list))
    parts = all(isinstance(content.get(name), list) for name in ("ttfts", "itls"))
    return next(names, FIRST_AND_LATER if parts else None)


def _vllm_seconds(path: Path, name: str, content: Mapping[str, Any]) -> Floats:
    """Return the seconds from a request's send to its whole answer, (n,); NaN for null."""
    if name != FIRST_AND_LATER:
        return _numbers(path, name, content[name]) / (1000 if name.endswith("_ms") else 1)
    first, later = content["ttfts"], content["itls"]
    if len(first) != len(later) or not all(isinstance(one, list | None) for one in later):
        raise TraceError(
            f"{path}: itls: found {excerpt(repr(later), 40)}, expected {len(first)} lists of seconds, as many as ttfts;"
            " write the file again"
        )
    sums_s = [_numbers(path, "itls", one or []).sum() for one in later]
    return _numbers(path, "ttfts", first) + np.array(sums_s, np.float64)


def _numbers(path: Path, name: str, values: list[Any]) -> Floats:
    """Return values as float64, (n,); NaN for null."""
    for row, value in enumerate(values):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TraceError(
                f"{path}: {name}: row {row}: found {excerpt(repr(value), 40)}, expected a number; write the file again"
            )
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _settings(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the size and steps that hold for all requests of a result, as fields of a body."""
    stated = {theirs: content.get(theirs) for name, theirs in BODY.items() if name in ("steps", "frames")}
    sides = [content.get(name) for name in ("width", "height")]
    given = content.get("size") or ("x".join(map(str, sides)) if all(sides) else None)
    return stated | ({"size": given} if given else {})
