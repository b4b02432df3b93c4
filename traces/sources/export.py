"""Export of a trace in the format of an engine's benchmark."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from mezzotint.files.atomic import atomic_write
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import sglang, vllm_omni
from mezzotint.traces.sources.formats.records import extras
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace

FORMATS: Mapping[str, tuple[Callable[[Trace], Iterator[str]], Collection[str]]] = {
    "vllm-omni": (
        vllm_omni.lines,
        {"arrival_s", *(ours for ours, _ in vllm_omni.FIELDS.values())},
    ),
    "sglang": (sglang.lines, sglang.COLUMNS.values()),
}
"""Name of a format -> function that yields its lines, and the columns of a trace in them."""

START: Mapping[str, bytes] = {"vllm-omni": b"Request(", "sglang": b'{"'}
"""Name of a format -> first bytes of its files."""

KEPT: Mapping[str, Collection[str]] = {"vllm-omni": ("slo_ms",), "sglang": (*sglang.OTHERS, "num_frames")}
"""Name of a format -> fields from a trace's extras."""


def export(trace: Trace, form: str, path: Path) -> list[str]:
    """Write `trace` to `path` in the format `form` of FORMATS, UTF-8, a line per request, completely or not at all.

    Returns:
        Columns and fields of the extras that the format cannot hold.

    Raises TraceError if the format cannot hold a request, or the file cannot be written.
    """
    lines, columns = FORMATS[form]
    with atomic_write(path, TraceError) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for line in lines(trace):
            file.write(line + "\n")
    table = trace.table
    filled = [name for name in table.column_names if table.column(name).null_count < len(trace)]
    if trace.notes.get("arrival_s") == ORDER_ONLY:
        filled.remove("arrival_s")  # the order of the lines says the same
    left = [name for name in filled if name not in columns and name != "extras"]
    others = dict.fromkeys(name for row in range(len(trace)) for name in extras(trace, row))
    return [*left, *(name for name in others if name not in KEPT[form])]
