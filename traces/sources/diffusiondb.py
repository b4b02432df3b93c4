"""DiffusionDB: prompts and settings of 2 million images made on Stable Diffusion's public server."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from traces.error import TraceError
from traces.schema import Origin, Trace, make
from traces.sources.delimited import integers, numbers, read_delimited, require_column, timestamps
from traces.validation import check_count, check_number, shown

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

MINUTE_S = 60


@dataclass(slots=True, kw_only=True)
class DiffusionDB:
    """DiffusionDB's metadata table, as Parquet (as published) or CSV.

    The rows are always sorted by timestamp: the published file is ordered by part, then user, then
    time, and replayed in that order it puts one user's near-copies side by side and flatters every
    cache. Timestamps are whole minutes, so arrivals are spread evenly at random inside their minute
    (rows of one minute keep the file's order) and counted in seconds from the first minute.

    A row without a timestamp was deleted before the authors collected times; it has no place in the
    order and is skipped, and counted in the notes. The user "deleted_account" becomes null.

    Source: Wang et al. 2022, "DiffusionDB"; the dataset is CC0-1.0.

    Args:
        path: metadata.parquet, metadata-large.parquet or a CSV with the same columns; None loads the
            table of DiffusionDB 2M (text only) from the Hugging Face hub by way of `datasets`.
        nsfw_max: drop rows whose image or prompt has a higher NSFW score (a likelihood from 0 to 1), or
            has none. The score 2.0 says that Stable Diffusion's own filter blurred the image, so 1.0
            drops only these. None keeps everything.
        limit: keep only this many requests, the earliest.
        name: what reports call the trace.

    Raises:
        TraceError: `nsfw_max` is negative or not finite, or `limit` is not a whole number above 0.
    """

    path: str | None = None
    nsfw_max: float | None = None
    limit: int | None = None
    name: str = "diffusiondb"

    def __post_init__(self) -> None:
        if self.nsfw_max is not None:
            check_number("diffusiondb", "nsfw_max", self.nsfw_max, least=0.0)
        if self.limit is not None:
            check_count("diffusiondb", "limit", self.limit)

    def load(self, rng: np.random.Generator) -> Trace:
        """Read, sort and spread the table; `rng` places arrivals inside their minute.

        Raises:
            TraceError: the file is missing, of another format or cut short; a column is missing or of
                another type; a cell is not valid; nothing is left; the hub cannot be reached.
        """
        where = HUB_FILE if self.path is None else str(Path(self.path).expanduser())
        table = _plain_text(_from_hub() if self.path is None else _from_file(Path(where)))
        for column in COLUMNS.values():
            require_column(table, column, where)
        origin = Origin(where, COLUMNS)
        time_s = _seconds(table.column("timestamp"), origin)
        keep = ~np.isnan(time_s)
        notes: dict[str, Any] = {
            "licence": "CC0-1.0",
            "file": Path(where).name,
            "rows": table.num_rows,
            "rows_without_timestamp": int((~keep).sum()),
            "nsfw_max": self.nsfw_max,
            "rows_above_nsfw_max": 0,
            "limit": self.limit,
        }
        if self.nsfw_max is not None:
            clean = _clean(table, self.nsfw_max, origin)
            notes["rows_above_nsfw_max"] = int((keep & ~clean).sum())
            keep &= clean
        rows = np.flatnonzero(keep)
        if not rows.size:
            raise TraceError(f"{where}: no rows are left of {table.num_rows}; loosen nsfw_max or check the file")
        rows = rows[np.argsort(time_s[rows], kind="stable")][: self.limit]
        table, time_s = table.take(pa.array(rows)), time_s[rows]
        arrival_s, notes["arrival_s"] = _spread(time_s, rng)
        origin = Origin(where, COLUMNS, rows)
        named = "image_name" in table.column_names
        return make(
            {
                "request_id": table.column("image_name") if named else pa.array(rows).cast(pa.string()),
                "arrival_s": arrival_s,
                "user_id": _users(table.column("user_name"), origin),
                "prompt": table.column("prompt"),
                **{
                    name: _whole(table.column(COLUMNS[name]), origin, name)
                    for name in ("width", "height", "steps", "seed")
                },
                "images": np.ones(len(rows), np.int32),
            },
            name=self.name,
            source="DiffusionDB (Wang et al. 2022), metadata table",
            notes=notes,
            where=origin,
        )


def _from_file(path: Path) -> pa.Table:
    if path.suffix != ".parquet":
        return read_delimited(path)
    try:
        file = pq.ParquetFile(path)
        wanted = [name for name in file.schema_arrow.names if name in {*COLUMNS.values(), *SCORES, "image_name"}]
        return file.read(columns=wanted)
    except FileNotFoundError as error:
        raise TraceError(f"{path}: no such file; check the path") from error
    except (pa.ArrowException, OSError) as error:
        raise TraceError(
            f"{path}: cannot be read as Parquet ({shown(str(error))}), expected DiffusionDB's metadata.parquet;"
            " fetch it again if it is cut short"
        ) from error


def _plain_text(table: pa.Table) -> pa.Table:
    # some writers of Parquet choose 64-bit offsets for text
    kinds = [pa.string() if pa.types.is_large_string(kind) else kind for kind in table.schema.types]
    return table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))


def _from_hub() -> pa.Table:
    try:
        import datasets

        loaded = datasets.load_dataset("parquet", data_files=HUB_FILE, split="train")
        return loaded.with_format("arrow")[:]
    except Exception as error:  # whatever its layers of network code raise, the way out is the same
        raise TraceError(
            f"{HUB_FILE}: cannot be loaded ({type(error).__name__}: {shown(str(error))}); where the network can be"
            " reached, download metadata.parquet from huggingface.co/datasets/poloclub/diffusiondb, and name"
            " that file as the path"
        ) from error


def _seconds(column: pa.ChunkedArray, origin: Origin) -> npt.NDArray[np.float64]:
    """Timestamps as seconds since 1970, (n,), NaN where null."""
    if pa.types.is_string(column.type):
        times = timestamps(column, origin, "arrival_s")
        column = pa.chunked_array([pa.array(times)])
    if not pa.types.is_timestamp(column.type):
        raise TraceError(f"{origin.where}: column timestamp: found type {column.type}, expected timestamps")
    microseconds = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    seconds: npt.NDArray[np.float64] = pc.divide(microseconds.cast(pa.float64()), 1e6).to_numpy()
    return seconds


def _spread(time_s: npt.NDArray[np.float64], rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], str]:
    """Arrivals in seconds from the first minute, sorted, for sorted `time_s`; and how they were made."""
    minute = np.floor_divide(time_s, MINUTE_S)
    start_s = (minute - minute[0]) * MINUTE_S
    if (time_s != minute * MINUTE_S).any():
        return time_s - minute[0] * MINUTE_S, "as stamped, which is finer than minutes"
    offset_s = rng.random(len(time_s)) * MINUTE_S
    offset_s = offset_s[np.lexsort((offset_s, minute))]
    # adding may round up into the next minute
    last_s = np.nextafter(start_s + MINUTE_S, -math.inf)
    return np.minimum(start_s + offset_s, last_s), "spread at random inside the minute of their stamp"


def _clean(table: pa.Table, nsfw_max: float, origin: Origin) -> npt.NDArray[np.bool_]:
    clean = np.ones(table.num_rows, np.bool_)
    for name in SCORES:
        require_column(table, name, origin.where)
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
