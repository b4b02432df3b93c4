"""Open the result of a benchmark, whatever client wrote it: a table of requests, or aggregates alone."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.clock import PER_SECOND
from mezzotint.traces.formats.headers import UNIT_WORDS
from mezzotint.traces.sources.benchmark import AIPerf, VllmBench, check_seconds, client_of, lists_requests, read_object
from mezzotint.traces.sources.table import IMPORT_FIRST, Table, is_trace, options_elsewhere, say
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.limits import Limits, open_bounded
from mezzotint.traces.table.trace import Trace, read
from mezzotint.traces.table.validation import excerpt

AGGREGATES: Mapping[str, Mapping[str, float]] = {
    "mean": {"latency_mean": 1, "mean_e2el_ms": 1e-3, "request_latency.avg": 1e-3},
    "p50": {"latency_median": 1, "latency_p50": 1, "median_e2el_ms": 1e-3, "request_latency.p50": 1e-3},
    **{
        share: {f"latency_{share}": 1, f"{share}_e2el_ms": 1e-3, f"request_latency.{share}": 1e-3}
        for share in ("p90", "p95", "p99")
    },
    "throughput": {"throughput_qps": 60, "request_throughput": 60, "request_throughput.avg": 60},
    "requests": {"completed_requests": 1, "completed": 1, "request_count.avg": 1, "request_count": 1},
    "failed": {"failed_requests": 1, "failed": 1},
}
"""Statistic -> keys of vLLM-Omni and SGLang, of `vllm bench serve` and of AIPerf, with the factor to s or 1/min."""

HEAD = 1 << 16
"""Bytes that are looked at to tell the format."""


def open_result(path: Path) -> Trace | dict[str, float]:
    """Return the requests of a result with arrivals and `latency_s`, or its aggregates by the keys of `AGGREGATES`.

    Aggregates also have what `client_of` returns.

    Takes AIPerf's profile_export.jsonl, the JSON of `vllm bench serve`, aggregates as JSON, a trace of this program,
    and a table as `trace import table` reads it. Prints what was taken of the requests.

    Raises:
        TraceError: the file cannot be read, has neither latencies nor aggregates, or an order and no times.
    """
    path = path.expanduser()
    if is_trace(path):
        return _checked(read(path), path)
    with open_bounded(path, Limits()) as stream:
        first, _, others = stream.read(HEAD).lstrip().partition(b"\n")
    rng = np.random.default_rng(0)
    record = _record(first)
    if record is not None and "request_start_ns" in (record.get("metadata") or {}):
        return _checked(AIPerf(path=path).load(rng), path)
    if not first.startswith(b"{") or (record is not None and others.strip()):  # not one object over the whole file
        with options_elsewhere(IMPORT_FIRST):
            table = Table(path=path).load(rng)
        return _checked(table, path)
    content = read_object(path, Limits())
    aggregates = _aggregates(content, path)
    if any(isinstance(value, list) and value for value in content.values()) and "latency_mean" not in content:
        try:
            return _checked(VllmBench(path=path).load(rng), path)
        except TraceError:
            if "mean" not in aggregates or lists_requests(content):
                raise
    if "mean" not in aggregates:
        raise TraceError(
            f"{path}: found the keys {excerpt(', '.join(content))}, expected a mean latency"
            f" ({', '.join(AGGREGATES['mean'])}) or lists of starts and latencies; name the result of a benchmark"
        )
    if not aggregates["mean"] or aggregates.get("requests") == 0:
        raise TraceError(f"{path}: found no completed request; check the client's errors, and run the benchmark again")
    key = next(key for key in AGGREGATES["mean"] if key.partition(".")[0] in content)
    check_seconds(path, key, aggregates["mean"], "a mean latency of {:g} s", content)
    return aggregates | client_of(content)


def _record(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object that a line holds; None if it holds another value or a part of one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _aggregates(content: Mapping[str, Any], path: Path) -> dict[str, float]:
    """Return the aggregates in seconds and requests a minute.

    A key may be nested (`request_latency.avg`), and a unit beside it counts. Raises TraceError for an unknown unit, and
    for a number that is negative or not finite.
    """

    values: dict[str, float] = {}
    for name, keys in AGGREGATES.items():
        for key, factor in keys.items():
            outer, _, inner = key.partition(".")
            value, unit = content.get(outer), None
            if inner:
                value, unit = (value.get(inner), value.get("unit")) if isinstance(value, dict) else (None, None)
            if isinstance(value, int | float) and not isinstance(value, bool):
                if not 0 <= value < math.inf:
                    raise TraceError(
                        f"{path}: {key}: found {value}, expected a finite number, 0 or more; correct it, or take it out"
                    )
                values.setdefault(name, value * (factor if unit is None else _factor(name, key, str(unit), path)))
    return values


def _factor(name: str, key: str, unit: str, path: Path) -> float:
    """Return what makes seconds, or requests a minute, of a value with a unit. Raises TraceError for an unknown one."""
    _, per, time = unit.rpartition("/")
    if name in ("requests", "failed"):
        return 1.0
    is_rate = name == "throughput"
    if is_rate is not bool(per) or (word := UNIT_WORDS.get(time.strip().lower())) is None:
        expected = "requests/sec" if is_rate else f"one of {', '.join(PER_SECOND)}"
        raise TraceError(
            f"{path}: {key}: found the unit {excerpt(repr(unit), 40)}, expected {expected}; write the value in it"
        )
    return PER_SECOND[word] * 60 if is_rate else 1 / PER_SECOND[word]


def _checked(trace: Trace, path: Path) -> Trace:
    say(trace.notes, path)
    if trace.notes.get("arrival_s") == ORDER_ONLY:
        raise TraceError(f"{path}: has an order of requests and no times; name a result with the time of each request")
    if trace.table.column("latency_s").null_count == len(trace):
        raise TraceError(
            f"{path}: has no latencies; import it with the column latency_s, the seconds from a request's arrival to"
            " its answer"
        )
    return trace
