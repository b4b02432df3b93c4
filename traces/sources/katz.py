"""The production trace of SwiftDiffusion (Katz): 20 days of add-on requests to two services."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from traces.error import TraceError
from traces.sources import Streamed
from traces.sources.formats.cells import Timestamps
from traces.sources.formats.jsontext import elements
from traces.table.ingest import Batch, Reading, since_earliest
from traces.table.limits import Limits
from traces.table.validation import Origin, shown

COLUMNS = {
    "arrival_s": "timestamp",
    "base_model": "base_model_id",
    "controlnets": "controlnets",
    "loras": "loras",
}
"""Canonical name -> the trace's."""

FIELDS = ("timestamp", "ip", "scene_id", "base_model_id", "controlnets", "loras")

MILLISECONDS = 1e11
"""Numbers above this are taken for milliseconds since 1970: as seconds they lie beyond the year 5000."""


@dataclass(slots=True, kw_only=True)
class Katz(Streamed):
    """The published request trace: JSON records in an array or a line each, in any order of time.

    Every record has timestamp, ip (the name of the serving node), scene_id (service A or B),
    base_model_id, controlnets and loras. Built from that published format, not from the file.

    Arrivals are counted from the earliest. A timestamp is text in ISO 8601, or seconds or milliseconds
    since 1970, one of them throughout; the notes say which. Node and service have no column in a trace:
    a request is named service/node/row, so that what happens per node can still be told. A null list of
    add-ons means none, as in the authors' own scripts. Users, prompts, sizes and steps are null.

    Source: Li et al., "SwiftDiffusion" / "Katz" (about 550,000 requests); its artifact's trace/README.md.

    Args:
        path: diffusion_model_request_trace.json; a leading ~ is the home folder.
        service: keep only the requests to this service; None keeps all.
        node: keep only the requests to this node; None keeps all.
        name: what reports call the trace.
        limits: how much is read.
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
        return Reading(
            where=str(path),
            name=self.name,
            source="SwiftDiffusion (Katz) production trace",
            batches=self._batches(path, notes),
            notes=notes,
            settle=since_earliest,
            limits=self.limits,
        )

    def _batches(self, path: Path, notes: dict[str, Any]) -> Iterator[Batch]:
        where = str(path)
        clock = _Clock()
        services: Counter[str] = Counter()
        nodes: set[str] = set()
        first = kept = 0
        for records in elements(path, self.limits):
            rows, ids, chosen = [], [], []
            for row, record in enumerate(records, first):
                service, node = _place(record, where, row)
                services[service] += 1
                if self.service in (None, service) and self.node in (None, node):
                    rows.append(row)
                    ids.append(f"{service}/{node}/{row}")
                    chosen.append(record)
                    nodes.add(node)
            first += len(records)
            kept += len(rows)
            origin = Origin(where, COLUMNS, np.array(rows, np.int64))
            columns = {
                "request_id": ids,
                "base_model": _models(chosen, origin),
                "controlnets": _lists(chosen, "controlnets", origin),
                "loras": _lists(chosen, "loras", origin),
            }
            yield Batch(columns, clock.read(chosen, origin), origin)
        if first and not kept:
            raise TraceError(
                f"{where}: no requests are left of {first:,} (services {shown(', '.join(sorted(services)), 60)}); check"
                " --service and --node"
            )
        if (self.service, self.node) != (None, None):
            notes["skipped"] = {"another service or node": first - kept}
        notes.update(rows=first, services=dict(sorted(services.items())), nodes=len(nodes), times=clock.unit)


def _place(record: Any, where: str, row: int) -> tuple[str, str]:
    """The service and the node of a record that has all fields."""
    if not isinstance(record, dict):
        raise TraceError(f"{where}: row {row}: found {shown(repr(record), 60)}, expected a record; drop it")
    for name in FIELDS:
        if name not in record:
            raise TraceError(f"{where}: row {row}, column {name}: missing, found {shown(', '.join(record))}; add it")
    service, node = (_name(record[name], where, row, name) for name in ("scene_id", "ip"))
    return service, node


def _name(value: Any, where: str, row: int, column: str) -> str:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    raise TraceError(
        f"{where}: row {row}, column {column}: found {shown(repr(value), 60)}, expected a name or a number; fix or"
        " drop the record"
    )


def _models(records: list[dict[str, Any]], origin: Origin) -> list[str | None]:
    values = [record["base_model_id"] for record in records]
    return [
        None if value is None else _name(value, origin.where, origin.row(index), "base_model_id")
        for index, value in enumerate(values)
    ]


def _lists(records: list[dict[str, Any]], column: str, origin: Origin) -> list[list[str]]:
    lists = []
    for index, record in enumerate(records):
        value = [] if record[column] is None else record[column]
        if not isinstance(value, list):
            raise TraceError(
                f"{origin.cell(index, column)}: found {shown(repr(value), 60)}, expected a list of names; fix or drop"
                " the record"
            )
        lists.append([_name(name, origin.where, origin.row(index), column) for name in value])
    return lists


@dataclass(slots=True)
class _Clock:
    """Reads timestamps, all in the unit of the first."""

    unit: str | None = None
    stamps: Timestamps = field(default_factory=Timestamps)

    def read(self, records: list[dict[str, Any]], origin: Origin) -> pa.Array:
        values = [record["timestamp"] for record in records]
        for index, value in enumerate(values):
            unit = _unit(value)
            self.unit = self.unit or unit
            if unit is None or unit != self.unit:
                raise TraceError(
                    f"{origin.cell(index, 'arrival_s')}: found {shown(repr(value), 60)}, expected"
                    f" {self.unit or 'a time in ISO 8601 or a number'} as in the rows before; fix or drop the record"
                )
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
