"""DiffusionDB: prompts and settings of 2 million images made on Stable Diffusion's public server."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.extras import remedy
from mezzotint.settings.ranges import Amount, Count
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources import Streamed, keep_rows, with_row_numbers
from mezzotint.traces.sources.formats.cells import Timestamps, integers, numbers
from mezzotint.traces.sources.formats.columnar import plain_text, read_parquet
from mezzotint.traces.sources.formats.delimited import read_delimited, read_header, require_column
from mezzotint.traces.table.ingest import Batch, Reading, slices, with_arrivals
from mezzotint.traces.table.limits import Limits
from mezzotint.traces.table.validation import Origin, excerpt

HUB_FILE = "hf://datasets/poloclub/diffusiondb/metadata.parquet"

COLUMNS = {
    "arrival_s": "timestamp",
    "user_id": "user_name",
    "prompt": "prompt",
    "width": "width",
    "height": "height",
    "steps": "step",
    "seed": "seed",
}
"""Canonical name -> DiffusionDB's."""

SCORES = ("image_nsfw", "prompt_nsfw")

UNDATED, UNSAFE, LATE = "no timestamp", "NSFW score above nsfw_max, or none", "after the first `limit` requests"
"""Reasons to skip rows."""

MINUTE_US = 60_000_000


@dataclass(slots=True, kw_only=True)
class DiffusionDB(Streamed):
    """DiffusionDB's metadata table, as Parquet (as published) or CSV.

    The rows are sorted by timestamp. The published file is ordered by part, then user, then time; replayed in that
    order, one user's near-copies follow each other and flatter every cache. Timestamps are whole minutes, so arrivals
    are spread uniformly at random inside their minute (rows of one minute keep the file's order) and count from the
    first minute. If any timestamp of the file is finer, all are used as stamped.

    A row without a timestamp was deleted before the authors collected times. It is skipped and counted in the notes.
    The user "deleted_account" becomes null.

    Source: Wang et al. 2022, "DiffusionDB"; the dataset is CC0-1.0.

    Args:
        path: metadata.parquet, metadata-large.parquet or a CSV with the same columns; None loads the
            table of DiffusionDB 2M (text only) from the Hugging Face hub with `datasets` (the `hub` extra).
        nsfw_max: drop rows whose image or prompt has a higher NSFW score (a likelihood from 0 to 1), or none. The
            score 2.0 marks images blurred by Stable Diffusion's own filter, so 1.0 drops only these. None keeps all.
        limit: keep only this many requests, the earliest.
    """

    path: str | Path | None = None
    nsfw_max: Amount | None = None
    limit: Count | None = None
    name: str = "diffusiondb"
    limits: Limits = field(default_factory=Limits)

    def read(self, rng: np.random.Generator) -> Reading:
        where = HUB_FILE if self.path is None else str(Path(self.path).expanduser())
        notes: dict[str, Any] = {
            "licence": "CC0-1.0",
            "file": Path(where).name,
            "rows": 0,
            "nsfw_max": self.nsfw_max,
            "limit": self.limit,
            "skipped": {UNDATED: 0},
        }
        return Reading(
            where=where,
            name=self.name,
            source="DiffusionDB (Wang et al. 2022), metadata table",
            batches=self._batches(where, notes),
            notes=notes,
            settle=partial(_spread, rng=rng, limit=self.limit, notes=notes),
            limits=self.limits,
        )

    def _tables(self, where: str) -> Iterator[pa.Table]:
        if self.path is None:
            return slices(plain_text(_from_hub()))
        path = Path(where)
        if path.suffix == ".parquet":
            wanted = {*COLUMNS.values(), *SCORES, "image_name"}
            return read_parquet(path, self.limits, wanted, "DiffusionDB's metadata.parquet")
        return read_delimited(path, self.limits, read_header(path, self.limits))

    def _batches(self, where: str, notes: dict[str, Any]) -> Iterator[Batch]:
        stamps = Timestamps()
        kept = 0
        for rows, table in with_row_numbers(self._tables(where)):
            for column in COLUMNS.values():
                require_column(table.column_names, column, where)
            origin = Origin(where, COLUMNS, rows)
            times = _times(table.column("timestamp"), stamps, origin)
            notes["rows"] += len(rows)
            reasons = {UNDATED: times.is_null().to_numpy()}
            if self.nsfw_max is not None:
                reasons[UNSAFE] = ~_clean(table, self.nsfw_max, origin)
            at = np.flatnonzero(keep_rows(len(rows), reasons, notes["skipped"]))
            kept += at.size
            origin, table, times = Origin(where, COLUMNS, rows[at]), table.take(pa.array(at)), times.take(pa.array(at))
            yield Batch(_columns(table, origin), times, origin)
        if notes["rows"] and not kept:
            raise TraceError(f"{where}: no rows are left of {notes['rows']}; raise nsfw_max or check the file")


def _columns(table: pa.Table, origin: Origin) -> dict[str, Any]:
    integral = {name: table.column(COLUMNS[name]) for name in ("width", "height", "steps", "seed")}
    columns = {
        "user_id": _users(table.column("user_name"), origin),
        "prompt": table.column("prompt"),
        **{
            name: integers(column, origin, name) if pa.types.is_string(column.type) else column
            for name, column in integral.items()
        },
        "images": np.ones(table.num_rows, np.int32),
    }
    if "image_name" in table.column_names:
        columns["request_id"] = table.column("image_name")
    return columns


def _from_hub() -> pa.Table:
    try:
        import datasets
    except ImportError:
        raise TraceError(f"{HUB_FILE}: name a file, or fetch it, which needs datasets; {remedy('hub')}") from None
    try:
        return datasets.load_dataset("parquet", data_files=HUB_FILE, split="train").with_format("arrow")[:]
    except Exception as error:  # network layers raise many types; the remedy is the same
        raise TraceError(
            f"{HUB_FILE}: cannot be loaded ({type(error).__name__}: {excerpt(str(error))}); where the network can be"
            " reached, download metadata.parquet from huggingface.co/datasets/poloclub/diffusiondb, and name that file"
        ) from error


def _times(column: pa.ChunkedArray, stamps: Timestamps, origin: Origin) -> pa.ChunkedArray:
    """Return UTC timestamps in microseconds, (n,)."""
    if pa.types.is_string(column.type):
        return pa.chunked_array([stamps.read(column, origin, "arrival_s")])
    if not pa.types.is_timestamp(column.type):
        raise TraceError(f"{origin.where}: column timestamp: found type {column.type}, expected timestamps")
    # Parquet keeps times with a zone in UTC; those without one are UTC in the published table
    ticks = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return ticks.cast(pa.timestamp("us", "UTC"))


def _spread(table: pa.Table, rng: np.random.Generator, limit: int | None, notes: dict[str, Any]) -> pa.Table:
    """Spread the arrivals of rows sorted by timestamp inside their minutes, unless a timestamp is finer."""
    ticks: npt.NDArray[np.int64] = table.column("time").cast(pa.int64()).to_numpy()
    finer = bool((ticks % MINUTE_US).any())
    if limit is not None:
        notes["skipped"][LATE] = max(0, table.num_rows - limit)
        table, ticks = table.slice(0, limit), ticks[:limit]
    minutes = ticks // MINUTE_US
    if finer:
        notes["arrival_s"] = "as stamped, which is finer than minutes"
        return with_arrivals(table, (ticks - minutes[0] * MINUTE_US) / 1e6)
    notes["arrival_s"] = "spread at random inside the minute of their stamp"
    start_s = (minutes - minutes[0]) * 60.0
    offset_s: npt.NDArray[np.float64] = rng.random(len(minutes)) * 60.0
    offset_s = offset_s[np.lexsort((offset_s, minutes))]
    # adding may round up into the next minute
    return with_arrivals(table, np.minimum(start_s + offset_s, np.nextafter(start_s + 60.0, -math.inf)))


def _clean(table: pa.Table, nsfw_max: float, origin: Origin) -> npt.NDArray[np.bool_]:
    clean = np.ones(table.num_rows, np.bool_)
    for name in SCORES:
        require_column(table.column_names, name, origin.where)
        column = table.column(name)
        if pa.types.is_string(column.type):
            column = numbers(column, origin, name)
        if not pa.types.is_floating(column.type) and not pa.types.is_integer(column.type):
            raise TraceError(f"{origin.where}: column {name}: found type {column.type}, expected numbers")
        clean &= column.cast(pa.float64()).fill_null(math.inf).to_numpy() <= nsfw_max
    return clean


def _users(column: pa.ChunkedArray, origin: Origin) -> pa.ChunkedArray:
    if not pa.types.is_string(column.type):
        raise TraceError(f"{origin.where}: column user_name: found type {column.type}, expected text")
    return pc.if_else(pc.equal(column, "deleted_account"), pa.scalar(None, column.type), column)
