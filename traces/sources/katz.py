"""The production trace of SwiftDiffusion (Katz): 20 days of add-on requests to two services."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed, make_reading, with_row_numbers
from mezzotint.traces.sources.formats.cells import Timestamps, refusal
from mezzotint.traces.sources.formats.jsontext import elements
from mezzotint.traces.sources.formats.records import Name, check_records
from mezzotint.traces.table.ingest import Batch, Reading, since_earliest
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin, excerpt

COLUMNS = {
    "arrival_s": "timestamp",
    "base_model": "base_model_id",
    "controlnets": "controlnets",
    "loras": "loras",
}
"""Canonical name -> the trace's."""


class KatzRecord(TypedDict):
    """Fields of a request in the trace; a null list of add-ons means none."""

    timestamp: Any
    ip: Name
    scene_id: Name
    base_model_id: Name | None
    controlnets: list[Name] | None
    loras: list[Name] | None


RECORDS = TypeAdapter(list[KatzRecord])

MILLISECONDS = 1e11
"""Numbers above this are milliseconds since 1970; as seconds they would be beyond the year 5000."""


@dataclass(slots=True, kw_only=True)
class Katz(Streamed):
    """The published request trace: JSON records in an array or a line each, in any order of time.

    Every record has timestamp, ip (the name of the serving node), scene_id (service A or B), base_model_id, controlnets
    and loras. This class follows the published format; the file itself was not available.

    Arrivals count from the earliest. All timestamps are ISO 8601 text, or all are seconds or milliseconds since 1970;
    the notes say which. Node and service have no column in a trace, so a request is named service/node/row. A null list
    of add-ons means none, as in the authors' own scripts. Users, prompts, sizes and steps are null.

    Source: Li et al., "SwiftDiffusion" / "Katz" (about 550,000 requests); its artifact's trace/README.md.

    Args:
        path: diffusion_model_request_trace.json; a leading ~ is the home folder.
        service: keep only the requests to this service; None keeps all.
        node: keep only the requests to this node; None keeps all.
    """

    path: str | Path
    service: str | None = None
    node: str | None = None
    name: str = "katz"
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        path = Path(self.path).expanduser()
        notes: dict[str, Any] = {
            "file": path.name,
            "request_ids": "service/node/row of the file",
            "service": self.service,
            "node": self.node,
        }
        return make_reading(
            self, "SwiftDiffusion (Katz) production trace", self._batches(path, notes), notes, since_earliest
        )

    def _batches(self, path: Path, notes: dict[str, Any]) -> Iterator[Batch]:
        where = str(path)
        clock = _TimestampParser()
        services: Counter[str] = Counter()
        nodes: set[str] = set()
        first = kept = 0
        for numbers, records in with_row_numbers(elements(path, self.limits)):
            check_records(records, RECORDS, Origin(where, rows=numbers))
            rows, chosen = [], []
            for row, record in enumerate(records, first):
                service, node = str(record["scene_id"]), str(record["ip"])
                services[service] += 1
                if self.service in (None, service) and self.node in (None, node):
                    rows.append(row)
                    chosen.append(record)
                    nodes.add(node)
            first += len(records)
            kept += len(rows)
            origin = Origin(where, COLUMNS, np.array(rows, np.int64))
            models = [record["base_model_id"] for record in chosen]
            columns = {
                "request_id": [f"{of['scene_id']}/{of['ip']}/{row}" for row, of in zip(rows, chosen, strict=True)],
                "base_model": [None if model is None else str(model) for model in models],
                **{name: [[*map(str, record[name] or [])] for record in chosen] for name in ("controlnets", "loras")},
            }
            yield Batch(columns, clock.read(chosen, origin), origin)
        if first and not kept:
            raise TraceError(
                f"{where}: no requests are left of {first:,} (services {excerpt(', '.join(sorted(services)), 60)});"
                " check --service and --node"
            )
        if (self.service, self.node) != (None, None):
            notes["skipped"] = {"another service or node": first - kept}
        notes.update(rows=first, services=dict(sorted(services.items())), nodes=len(nodes), times=clock.unit)


@dataclass(slots=True)
class _TimestampParser:
    """Parser of timestamps that all have the unit of the first."""

    unit: str | None = None
    stamps: Timestamps = field(default_factory=Timestamps)

    def read(self, records: list[dict[str, Any]], origin: Origin) -> pa.Array:
        values = [record["timestamp"] for record in records]
        for index, value in enumerate(values):
            unit = _unit(value)
            self.unit = self.unit or unit
            if unit is None or unit != self.unit:
                expected = f"{self.unit or 'a time in ISO 8601 or a number'} as in the rows before"
                raise refusal(origin, index, "arrival_s", repr(value), expected)
        if self.unit == "text":
            return self.stamps.read(pa.chunked_array([values], pa.string()), origin, "arrival_s")
        scale = 1000.0 if self.unit == "milliseconds since 1970" else 1.0
        return pa.array(np.array(values, np.float64) / scale)


def _unit(value: Any) -> str | None:
    if isinstance(value, str):
        return "text" if value.isascii() else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
        return None
    return "milliseconds since 1970" if abs(value) > MILLISECONDS else "seconds since 1970"
