"""Export of a trace in the format of an engine's benchmark, and the command that drives a server with it.

AIPerf's lines are of our own making. The others follow the map of the engine's log.
"""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf, nextafter
from pathlib import Path
from typing import Any

from mezzotint.files.atomic import atomic_write
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.published import MAPS
from mezzotint.traces.table.columns import SCHEMA
from mezzotint.traces.table.ingest import ORDER_ONLY, ROWS
from mezzotint.traces.table.trace import Trace
from mezzotint.traces.table.validation import excerpt

FORMATS: Mapping[str, tuple[Callable[[Mapping[str, Any]], str], bytes]] = {
    "vllm-omni": (
        lambda fields: f"Request({', '.join(f'{name}={value!r}' for name, value in fields.items())})",
        b"Request(",
    ),
    "sglang": (partial(json.dumps, ensure_ascii=False), b'{"'),
    "aiperf": (partial(json.dumps, ensure_ascii=False), b'{"timestamp"'),
}
"""Format -> the text of a request's fields, and the first bytes of a file. All but AIPerf's are published logs."""

COLUMNS: Mapping[str, str] = {
    "prompt": "text", "arrival_s": "timestamp", "steps": "num_inference_steps", "images": "n", "seed": "seed",
    "frames": "num_frames", "guidance": "guidance_scale", "negative_prompt": "negative_prompt",
}  # fmt: skip
"""Column -> field of AIPerf's lines, or of the body of a request to /v1/images/generations."""

DRIVE: Mapping[str, str] = {
    "aiperf": (
        "aiperf profile --url URL --model MODEL --endpoint-type image_generation --tokenizer /PATH/OF/A/TOKENIZER"
        " --input-file {path} --custom-dataset-type single_turn --fixed-schedule{extra} --artifact-dir out"
    ),
    "vllm-omni": (
        "python benchmarks/diffusion/diffusion_benchmark_serving.py --base-url URL --model MODEL --task t2i"
        " --dataset trace --dataset-path {path} --num-prompts {count} --request-rate {rate:.6g}"
        " --max-concurrency {count} --output-file out.json"
    ),
    "sglang": (
        "python -m sglang.multimodal_gen.benchmarks.bench_serving --base-url URL --model MODEL --dataset-path {path}"
        " --num-prompts {count} --request-rate {rate:.6g} --max-concurrency {count} --output-file out.json"
    ),
}
"""Format -> the command line of the client that sends the requests to a server."""


def milliseconds(seconds: float) -> float:
    """Return the shortest number of milliseconds that is read as ``seconds``: a product may be off by a rounding."""
    near = seconds * 1000.0
    same = [value for value in (near, nextafter(near, 0.0), nextafter(near, inf)) if value / 1000.0 == seconds]
    return min(same, key=lambda value: len(repr(value)), default=near)


def export(trace: Trace, form: str, path: Path) -> list[str]:
    """Write `trace` to `path` in the format `form` of FORMATS, UTF-8, a line per request, completely or not at all.

    Returns:
        Columns and fields of the extras that the format cannot hold.

    Raises TraceError if a request lacks what the format requires, its extras are not a JSON object, or the file cannot
    be written.
    """
    if form == "aiperf":
        return _export_aiperf(trace, path)
    declared, line = MAPS[form], FORMATS[form][0]
    column_of = {field: column for column, field in declared.columns.items()}
    order_only = trace.notes.get("arrival_s") == ORDER_ONLY
    others: dict[str, None] = {}
    with atomic_write(path, TraceError) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for row, cells in enumerate(_rows(trace)):
            where = f"{trace.path or trace.name}: row {row}, column"
            extras = _extras(cells["extras"], where)
            others |= dict.fromkeys(extras)
            cells["arrival_s"] = None if order_only else cells["arrival_s"]
            cells["slo_s"] = None if cells["slo_s"] is None else milliseconds(cells["slo_s"])
            fields = {name: cells.get(column_of.get(name, "")) for name in declared.fields}
            # num_frames and slo_ms were extras before the trace had columns for them
            fields = {name: extras.get(name) if value is None else value for name, value in fields.items()}
            fields = {name: value for name, value in fields.items() if value is not None}
            for name, kind in declared.fields.items():
                if name not in fields and "null" not in kind:
                    raise TraceError(
                        f"{where} {column_of[name]}: found null, expected a value, which {form} requires; pair the"
                        f" trace with {name}s (mezzotint trace pair)"
                    )
            file.write(line(fields) + "\n")
    held = {"extras", *declared.columns} | ({"arrival_s"} if order_only else set())  # the lines have an order
    filled = (name for name in SCHEMA.names if trace.table.column(name).null_count < len(trace))
    return [name for name in (*filled, *others) if name not in held and name not in declared.fields]


def _export_aiperf(trace: Trace, path: Path) -> list[str]:
    """Write AIPerf's fixed schedule: milliseconds, prompt, and what differs between requests as `extra`."""
    differing = shared_fields(trace)[1]
    if trace.notes.get("arrival_s") == ORDER_ONLY:
        raise TraceError(
            f"{trace.path or trace.name}: has an order of requests and no times, which AIPerf's fixed schedule needs;"
            " pair it with the arrivals of another trace (mezzotint trace pair)"
        )
    with atomic_write(path, TraceError) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for row, cells in enumerate(_rows(trace)):
            if not cells["prompt"]:
                raise TraceError(
                    f"{trace.path or trace.name}: row {row}, column prompt: found {cells['prompt']!r}, expected a text,"
                    " which AIPerf requires; pair the trace with prompts (mezzotint trace pair)"
                )
            body = _body(cells)
            extra = {name: body[name] for name in differing if name in body}
            fields = {"timestamp": milliseconds(cells["arrival_s"]), "text": cells["prompt"]}
            file.write(FORMATS["aiperf"][0](fields | ({"extra": extra} if extra else {})) + "\n")
    held = {*COLUMNS, "width", "height", "request_id"}
    return [name for name in SCHEMA.names if name not in held and trace.table.column(name).null_count < len(trace)]


def _body(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request's body beside its prompt."""
    body = {} if cells["width"] is None or cells["height"] is None else {"size": f"{cells['width']}x{cells['height']}"}
    named = {field: cells[name] for name, field in COLUMNS.items() if name not in ("prompt", "arrival_s")}
    return body | {field: value for field, value in named.items() if value is not None}


def shared_fields(trace: Trace) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of a body that have one value in all requests, and the names of those that differ."""
    first: dict[str, Any] = {}
    differing: dict[str, None] = {}
    for row, cells in enumerate(_rows(trace)):
        body = _body(cells)
        first = body if row == 0 else first
        names = (name for name in {**first, **body} if body.get(name) != first.get(name))
        differing |= dict.fromkeys(names)
    return {name: value for name, value in first.items() if name not in differing}, list(differing)


def client_command(trace: Trace, form: str, path: Path) -> list[str]:
    """Return the command line of the client that sends an exported trace to a server, and what to know about it."""
    shared, differing = shared_fields(trace) if form == "aiperf" else ({}, [])
    words = "".join(f" {shlex.quote(f'{name}:{value}')}" for name, value in shared.items())
    rate = (len(trace) - 1) / trace.span_s if trace.span_s > 0 else inf
    extra = f" --extra-inputs{words}" if words else ""
    said = [DRIVE[form].format(path=shlex.quote(str(path)), count=len(trace), rate=rate, extra=extra)]
    if differing:
        said.append(f"requests differ in {', '.join(differing)}: each line has its own in `extra` (AIPerf 0.13)")
    if form != "aiperf":
        said.append(
            "the client may draw arrivals at that mean rate in place of the trace's; --max-concurrency, 1 by default,"
            " would hold them back until the server answers"
        )
    return said


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
