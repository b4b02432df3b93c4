"""The mix of requests: sizes, steps, numbers of images, base models, ControlNets and LoRAs."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.describe.arrays import Floats, Indices, quantiles
from mezzotint.traces.describe.loads import tally
from mezzotint.traces.table.trace import Trace

COLUMNS = ("sizes", "steps", "images")
RANKS = (1, 2, 5, 10, 100, 1000)

Mix = dict[str, list[tuple[str, float]]]
"""By name in `COLUMNS`: value as text and its share of all requests, the most frequent first; empty if unknown."""


def mix(trace: Trace) -> Mix:
    """Count sizes (as width x height, pixels, and x frames of a video), steps and images per request."""
    width, height, steps, images = (
        trace.table.column(name).cast(pa.string()) for name in ("width", "height", "steps", "images")
    )
    sizes = pc.binary_join_element_wise(width, height, "x")
    frames = trace.table.column("frames")
    is_video = pc.fill_null(pc.greater(frames, 1), False)
    sizes = pc.if_else(is_video, pc.binary_join_element_wise(sizes, frames.cast(pa.string()), "x"), sizes)
    columns = (sizes, steps, images)
    return {
        name: [(value, count / len(trace)) for value, count in tally(column.drop_null())]
        for name, column in zip(COLUMNS, columns, strict=True)
    }


def deadlines(trace: Trace) -> dict[str, Any] | None:
    """Return the number of requests with a deadline of their own, and quantiles of its seconds; None without any."""
    slo_s = trace.column("slo_s")
    known = slo_s[~np.isnan(slo_s)]
    if not len(known):
        return None
    return {"known_requests": len(known), "quantiles_s": quantiles(known, (10, 50, 90))}


@dataclass(frozen=True, slots=True)
class Popularity:
    """Uses of the base models, ControlNets or LoRAs of a trace.

    Attributes:
        calls: (items,) uses of each, the most popular first.
        per_request: shares of the known requests that use 0, 1, 2... of them.
        known: number of requests whose use is known.
    """

    calls: Indices
    per_request: Floats
    known: int

    def share(self, ranks: int) -> float:
        """Return the share of the calls that go to the `ranks` most popular."""
        return float(self.calls[:ranks].sum() / self.calls.sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics, JSON-able."""
        shares = self.per_request
        return {
            "known_requests": self.known,
            "distinct": len(self.calls),
            "per_request": {str(number): float(share) for number, share in enumerate(shares)},
            "share_of_top": {str(rank): self.share(rank) for rank in RANKS if rank <= len(self.calls)},
        }


def popularity(trace: Trace) -> dict[str, Popularity | None]:
    """Return the popularity by column: `base_model`, `controlnets`, `loras`; None if the source has none."""
    return {name: _column(trace.table.column(name)) for name in ("base_model", "controlnets", "loras")}


def _column(column: pa.ChunkedArray) -> Popularity | None:
    known = column.drop_null()
    if not len(known):
        return None
    listed = pa.types.is_list(column.type)
    lengths = pc.list_value_length(known).to_numpy() if listed else np.ones(len(known), np.int64)
    counts = [count for _, count in tally(pc.list_flatten(known) if listed else known)]
    return Popularity(np.array(counts, np.int64), np.bincount(lengths.astype(np.int64)) / len(known), len(known))
