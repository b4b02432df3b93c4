"""Timeline of a run in the Chrome trace format, for Perfetto (ui.perfetto.dev) and chrome://tracing."""

import gzip
import io
import json
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint.sim.metrics.recorder import RunRecord

GPUS, QUEUES, CONTROL = 1, 2, 3
"""Process numbers: a track for every GPU, the gauges, and decisions of controllers and the cluster."""


def write_timeline(
    record: RunRecord,
    path: Path,
    gpus: Sequence[str],
    gpus_of: Callable[[int], Sequence[int]],
    request_ids: Sequence[str],
) -> None:
    """Write the GPUs' busy spans, the gauges and decisions of ``record`` as gzipped JSON; same run, same bytes.

    Args:
        gpus: names of the GPUs.
        gpus_of: worker number -> its GPUs.
        request_ids: of every trace row.
    """
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        text = io.TextIOWrapper(packed, encoding="utf-8", newline="\n")
        text.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for number, event in enumerate(events(record, gpus, gpus_of, request_ids)):
            text.write((",\n" if number else "") + json.dumps(event, separators=(",", ":"), allow_nan=False))
        text.write("\n]}\n")
        text.flush()
        text.detach()


def events(
    record: RunRecord, gpus: Sequence[str], gpus_of: Callable[[int], Sequence[int]], request_ids: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the events of the trace, times in microseconds."""
    for process, name in ((GPUS, "GPUs"), (QUEUES, "queues"), (CONTROL, "decisions")):
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    for gpu, name in enumerate(gpus):
        yield {"ph": "M", "name": "thread_name", "pid": GPUS, "tid": gpu, "args": {"name": name}}
    kinds, models = list(record.usage_log.kinds), list(record.usage_log.models)
    for span in record.usage_log.spans().tolist():
        from_s, until_s, joules, row, worker, batch, kind, model = span
        args: dict[str, Any] = {"kind": kinds[kind], "model": models[model], "batch": batch}
        if isfinite(joules):
            args["joules"] = joules
        if row >= 0:
            args["request"] = request_ids[row]
        name = models[model] if kinds[kind] in ("serve", "steps") else f"{kinds[kind]} {models[model]}"
        if batch > 1:
            name += f" x{batch}"
        for gpu in gpus_of(worker):
            yield {
                "ph": "X",
                "name": name,
                "cat": kinds[kind],
                "pid": GPUS,
                "tid": gpu,
                "ts": from_s * 1e6,
                "dur": (until_s - from_s) * 1e6,
                "args": args,
            }
    for gpu, rental, from_s, until_s in record.usage_log.rentals:
        yield {
            "ph": "X", "name": rental, "cat": "rental", "pid": GPUS, "tid": gpu, "ts": from_s * 1e6,
            "dur": (until_s - from_s) * 1e6, "args": {"kind": rental},
        }  # fmt: skip
    for at, time_s in enumerate(record.sampled_s):
        for name, gauge in record.gauges.items():
            value = float(gauge.values[at])
            if isfinite(value):
                yield {"ph": "C", "name": name, "pid": QUEUES, "ts": time_s * 1e6, "args": {name: value}}
    for time_s, what, details in record.decisions:
        yield {
            "ph": "i", "s": "p", "name": what, "cat": "decision", "pid": CONTROL, "tid": 0, "ts": time_s * 1e6,
            "args": {key: _jsonable(value) for key, value in details.items()},
        }  # fmt: skip


def _jsonable(value: Any) -> Any:
    """Convert a detail of a decision to JSON: a NumPy scalar becomes a number, an unknown type its text."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
