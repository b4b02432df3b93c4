"""GenTD26: requests of Alibaba's production Stable Diffusion service."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed, keep_rows, make_reading, untimed_batch, with_row_numbers
from mezzotint.traces.sources.formats.cells import Timestamps, integers, refusal
from mezzotint.traces.sources.formats.delimited import read_delimited, read_header, require_column
from mezzotint.traces.table.ingest import ORDER_ONLY, Batch, Reading, since_earliest
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin

COLUMNS = {
    "user_id": "groupId",
    "steps": "num_inference_steps",
    "images": "num_images_per_prompt",
    "base_model": "checkpoint_model_version_id",
}
"""Canonical name -> GenTD26's; the untimed file has no users."""

MAX_LORAS = 1000
"""LoRAs of one request, at most; more are an error of the file."""


@dataclass(slots=True, kw_only=True)
class GenTD26(Streamed):
    """One of the two tables of GenTD26, distinguished by their columns.

    lora_request_trace.csv has times, users (groups), status, base model, steps, images per request and the *number* of
    LoRAs. The LoRAs themselves are not published, so `loras` is an empty list if there were none, and by default null
    if there were some. The notes count them.

    data_trace_processed.csv has no times and no users, but names its LoRAs. Their scales have no column in a trace and
    are dropped. Its requests are a second apart: an order and no times.

    Neither has prompts or sizes: both are null. Failed requests are kept by default, since they were sent. Times have
    no zone and are taken as UTC; arrivals count from the earliest.

    Args:
        path: the table, plain or gzipped; a leading ~ is the home folder.
        drop_failed: drop requests whose status is not SUCCEED; the untimed file has no status.
        text_only: drop requests other than text to image; the untimed file has only hashes of the kind.
        unnamed_loras: if only the number of LoRAs is known, name them unnamed-1, unnamed-2, ..., the same in every
            request. This is good for counting, and far too easy for a cache of LoRAs.
    """

    path: str | Path
    drop_failed: bool = False
    text_only: bool = False
    unnamed_loras: bool = False
    name: str = "gentd26"
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        header = read_header(path, self.limits)
        timed = "gmt_create" in header
        columns = {name: source for name, source in COLUMNS.items() if timed or name != "user_id"}
        needed = ("gmt_create", "predict_type", "predict_status", "num_lora") if timed else ("lora_args",)
        for column in (*columns.values(), *needed):
            require_column(header, column, str(path))
        if not timed and (self.drop_failed or self.text_only or self.unnamed_loras):
            raise TraceError(
                f"{path}: has no times, status and kinds, and names its LoRAs; drop the options, or name the table"
                " lora_request_trace.csv"
            )
        used = {*columns.values(), *needed} - {"predict_type", "predict_status"}
        notes: dict[str, Any] = {
            "licence": "for research or study only; not to be passed on",
            "file": path.name,
            "metrics": "the publisher scaled the metrics: trust ratios, not seconds",
            "columns_left_out": [name for name in header if name not in used],
            "rows": 0,
            "skipped": {},
        }
        read = self._timed if timed else self._untimed
        batches = read(read_delimited(path, self.limits, header), str(path), columns, notes)
        if not timed:
            notes["arrival_s"] = ORDER_ONLY
        return make_reading(self, f"GenTD26 (Alibaba), {path.name}", batches, notes, since_earliest)

    def _timed(
        self, tables: Iterator[pa.Table], where: str, columns: dict[str, str], notes: dict[str, Any]
    ) -> Iterator[Batch]:
        names = {**columns, "arrival_s": "gmt_create", "loras": "num_lora"}
        wanted = {"predict_status": "SUCCEED"} if self.drop_failed else {}
        wanted |= {"predict_type": "TXT_2_IMG"} if self.text_only else {}
        stamps = Timestamps()
        status: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        numbers: Counter[int] = Counter()
        kept = 0
        for rows, table in with_row_numbers(tables):
            notes["rows"] += len(rows)
            status.update(_words(table.column("predict_status")))
            kinds.update(_words(table.column("predict_type")))
            reasons = {
                f"{column} is not {value}": ~pc.equal(table.column(column), value).fill_null(False).to_numpy()
                for column, value in wanted.items()
            }
            keep = keep_rows(len(rows), reasons, notes["skipped"])
            rows, table = rows[keep], table.filter(pa.array(keep))
            kept += len(rows)
            origin = Origin(where, names, rows)
            loras, found = self._numbered(table.column("num_lora"), origin)
            numbers.update(found)
            times = stamps.read(table.column("gmt_create"), origin, "arrival_s")
            yield Batch({**_cells(table, columns, origin), "loras": loras}, times, origin)
        if notes["rows"] and not kept:
            raise TraceError(f"{where}: no requests are left of {notes['rows']:,}; keep the failed ones, or all kinds")
        notes["status"], notes["kinds"] = dict(sorted(status.items())), dict(sorted(kinds.items()))
        notes["loras_per_request"] = {str(number): numbers[number] for number in sorted(numbers)}
        detail = (
            "the names unnamed-1, unnamed-2, ... are made up" if self.unnamed_loras else "null where there were some"
        )
        notes["loras"] = f"only their number is published; {detail}"

    def _numbered(self, cells: pa.ChunkedArray, origin: Origin) -> tuple[list[list[str] | None], list[int]]:
        """Return a list of LoRAs for each of the (n,) numbers, and the numbers without null."""
        lists: list[list[str] | None] = []
        numbers = integers(cells, origin, "loras").to_pylist()
        for index, number in enumerate(numbers):
            if number is not None and not 0 <= number <= MAX_LORAS:
                raise refusal(origin, index, "loras", str(number), f"0 to {MAX_LORAS}")
            known = number is not None and (number == 0 or self.unnamed_loras)
            lists.append([f"unnamed-{one}" for one in range(1, number + 1)] if known else None)
        return lists, [number for number in numbers if number is not None]

    def _untimed(
        self, tables: Iterator[pa.Table], where: str, columns: dict[str, str], notes: dict[str, Any]
    ) -> Iterator[Batch]:
        names = {**columns, "loras": "lora_args"}
        numbers: Counter[int] = Counter()
        idle = 0
        for rows, table in with_row_numbers(tables):
            notes["rows"] += len(rows)
            origin = Origin(where, names, rows)
            lists: list[list[str] | None] = []
            for index, cell in enumerate(table.column("lora_args").to_pylist()):
                named = None if cell is None else _named(cell, origin, index)
                lists.append(None if named is None else [name for name, _ in named])
                idle += sum(scale == 0 for _, scale in named or [])
            numbers.update(len(one) for one in lists if one is not None)
            yield untimed_batch({**_cells(table, columns, origin), "loras": lists}, origin, int(rows[0]))
        notes["loras_per_request"] = {str(number): numbers[number] for number in sorted(numbers)}
        notes["loras_of_scale_0"] = idle
        notes["loras"] = "named; their scales are left out, and those of scale 0 are kept"


def _cells(table: pa.Table, columns: dict[str, str], origin: Origin) -> dict[str, Any]:
    return {
        name: integers(table.column(source), origin, name) if name in ("steps", "images") else table.column(source)
        for name, source in columns.items()
    }


def _words(column: pa.ChunkedArray) -> list[str]:
    return [word or "none" for word in column.to_pylist()]


def _named(cell: str, origin: Origin, index: int) -> list[tuple[str, Any]]:
    """Return names and scales of the LoRAs in a cell that holds a Python list of dictionaries."""
    if cell == "[]":
        return []
    try:
        found = json.loads(cell.replace("'", '"'))
        named = [(lora["modelVersionId"], lora.get("scale")) for lora in found]
        if len(named) <= MAX_LORAS and all(isinstance(name, str) for name, _ in named):
            return named
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        pass
    expected = "a list such as [{'modelVersionId': 'a name', 'scale': 0.8}]"
    raise refusal(origin, index, "loras", repr(cell), expected)
