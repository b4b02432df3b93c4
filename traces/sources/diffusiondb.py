"""DiffusionDB: prompts and settings of 2 million images made on Stable Diffusion's public server."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from conf.ranges import Amount, Count
from traces.error import TraceError
from traces.sources import Streamed, numbered
from traces.sources.formats.cells import Timestamps, integers, numbers
from traces.sources.formats.columnar import plain_text, read_parquet
from traces.sources.formats.delimited import read_delimited, read_header, require_column
from traces.table.ingest import Batch, Reading, arriving, slices
from traces.table.limits import Limits
from traces.table.validation import Origin, shown

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
"""Why rows are skipped."""

MINUTE_US = 60_000_000


@dataclass(slots=True, kw_only=True)
class DiffusionDB(Streamed):
    """DiffusionDB's metadata table, as Parquet (as published) or CSV.

    The rows are always sorted by timestamp: the published file is ordered by part, then user, then
    time, and replayed in that order it puts one user's near-copies side by side and flatters every
    cache. Timestamps are whole minutes, so arrivals are spread evenly at random inside their minute
    (rows of one minute keep the file's order) and counted in seconds from the first minute. If any
    timestamp of the file is finer than that, all are taken as stamped.

    A row without a timestamp was deleted before the authors collected times; it has no place in the
    order and is skipped, and counted in the notes. The user "deleted_account" becomes null.

    Source: Wang et al. 2022, "DiffusionDB"; the dataset is CC0-1.0.

    Args:
        path: metadata.parquet, metadata-large.parquet or a CSV with the same columns; None loads the
            table of DiffusionDB 2M (text only) from the Hugging Face hub by way of `datasets` (the `hub` extra).
        nsfw_max: drop rows whose image or prompt has a higher NSFW score (a likelihood from 0 to 1), or
            has none. The score 2.0 says that Stable Diffusion's own filter blurred the image, so 1.0
            drops only these. None keeps everything.
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
        spread = _Spread(rng, self.limit, notes)
        return Reading(
            where=where,
            name=self.name,
            source="DiffusionDB (Wang et al. 2022), metadata table",
            batches=self._batches(where, notes, spread),
            notes=notes,
            settle=spread.settle,
            limits=self.limits,
        )

    def _tables(self, where: str) -> Iterator[pa.Table]:
        if self.path is None:
            return slices(plain_text(_from_hub()))
        path = Path(where)
        if path.suffix == ".parquet":
            return read_parquet(
                path, self.limits, {*COLUMNS.values(), *SCORES, "image_name"}, "DiffusionDB's metadata.parquet"
            )
        return read_delimited(path, self.limits, read_header(path, self.limits))

    def _batches(self, where: str, notes: dict[str, Any], spread: "_Spread") -> Iterator[Batch]:
        stamps = Timestamps()
        skipped = notes["skipped"]
        kept = 0
        for rows, table in numbered(self._tables(where)):
            for column in COLUMNS.values():
                require_column(table.column_names, column, where)
            origin = Origin(where, COLUMNS, rows)
            times = _times(table.column("timestamp"), stamps, origin)
            keep = times.is_valid().to_numpy()
            notes["rows"] += len(rows)
            skipped[UNDATED] += int((~keep).sum())
            if self.nsfw_max is not None:
                clean = _clean(table, self.nsfw_max, origin)
                skipped[UNSAFE] = skipped.get(UNSAFE, 0) + int((keep & ~clean).sum())
                keep &= clean
            at = np.flatnonzero(keep)
            kept += at.size
            origin, table, times = Origin(where, COLUMNS, rows[at]), table.take(pa.array(at)), times.take(pa.array(at))
            spread.see(times)
            yield Batch(_columns(table, origin), times, origin)
        if notes["rows"] and not kept:
            raise TraceError(f"{where}: no rows are left of {notes['rows']}; loosen nsfw_max or check the file")


def _columns(table: pa.Table, origin: Origin) -> dict[str, Any]:
    columns = {
        "user_id": _users(table.column("user_name"), origin),
        "prompt": table.column("prompt"),
        **{name: _whole(table.column(COLUMNS[name]), origin, name) for name in ("width", "height", "steps", "seed")},
        "images": np.ones(table.num_rows, np.int32),
    }
    if "image_name" in table.column_names:
        columns["request_id"] = table.column("image_name")
    return columns


def _from_hub() -> pa.Table:
    try:
        import datasets
    except ImportError:
        raise TraceError(
            f"{HUB_FILE}: fetching it needs datasets; install it with pip install 'mezzotint[hub]', or name a file"
        ) from None
    try:
        return datasets.load_dataset("parquet", data_files=HUB_FILE, split="train").with_format("arrow")[:]
    except Exception as error:  # whatever its layers of network code raise, the way out is the same
        raise TraceError(
            f"{HUB_FILE}: cannot be loaded ({type(error).__name__}: {shown(str(error))}); where the network can be"
            " reached, download metadata.parquet from huggingface.co/datasets/poloclub/diffusiondb, and name that file"
        ) from error


def _times(column: pa.ChunkedArray, stamps: Timestamps, origin: Origin) -> pa.ChunkedArray:
    """UTC timestamps in microseconds, (n,)."""
    if pa.types.is_string(column.type):
        return pa.chunked_array([stamps.read(column, origin, "arrival_s")])
    if not pa.types.is_timestamp(column.type):
        raise TraceError(f"{origin.where}: column timestamp: found type {column.type}, expected timestamps")
    # Parquet keeps times with a zone in UTC; those without one are UTC in the published table
    ticks = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    return ticks.cast(pa.timestamp("us", "UTC"))


class _Spread:
    """Places arrivals inside the minute that their stamp names."""

    def __init__(self, rng: np.random.Generator, limit: int | None, notes: dict[str, Any]) -> None:
        self._rng, self._limit, self._notes = rng, limit, notes
        self._finer = False

    def see(self, times: pa.ChunkedArray) -> None:
        """Take note whether stamps are finer than minutes."""
        self._finer |= bool((times.cast(pa.int64()).to_numpy() % MINUTE_US).any())

    def settle(self, table: pa.Table) -> pa.Table:
        """Give the rows, which are in order of their stamps, their arrivals."""
        if self._limit is not None:
            self._notes["skipped"][LATE] = max(0, table.num_rows - self._limit)
            table = table.slice(0, self._limit)
        how = "as stamped, which is finer than minutes" if self._finer else "spread at random inside the minute"
        self._notes["arrival_s"] = how if self._finer else f"{how} of their stamp"
        ticks: npt.NDArray[np.int64] = table.column("time").cast(pa.int64()).to_numpy()
        minutes = ticks // MINUTE_US
        if self._finer:
            return arriving(table, (ticks - minutes[0] * MINUTE_US) / 1e6)
        start_s = (minutes - minutes[0]) * 60.0
        offset_s: npt.NDArray[np.float64] = self._rng.random(len(minutes)) * 60.0
        offset_s = offset_s[np.lexsort((offset_s, minutes))]
        # adding may round up into the next minute
        return arriving(table, np.minimum(start_s + offset_s, np.nextafter(start_s + 60.0, -math.inf)))


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


def _whole(column: pa.ChunkedArray, origin: Origin, name: str) -> pa.ChunkedArray:
    return integers(column, origin, name) if pa.types.is_string(column.type) else column
