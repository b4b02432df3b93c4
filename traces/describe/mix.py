"""What sizes, steps and numbers of images are asked for."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from traces.table.trace import Trace

SHOWN = 6
"""How many values of each kind are listed."""

COLUMNS = ("sizes", "steps", "images")


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of the requests by what they ask for.

    Attributes:
        shares: by name in `COLUMNS`: value as text and its share of all requests, the most frequent first; empty
            where the source does not say.
    """

    shares: dict[str, list[tuple[str, float]]]

    def facts(self) -> dict[str, Any]:
        """By name in `COLUMNS`: the number of distinct values and the most frequent ones, JSON-able."""
        return {name: {"distinct": len(values), "most": dict(values[:SHOWN])} for name, values in self.shares.items()}


def mix(trace: Trace) -> Mix:
    """Count sizes (as width x height, pixels), steps and images per request."""
    width, height, steps, images = (
        trace.table.column(name).cast(pa.string()) for name in ("width", "height", "steps", "images")
    )
    columns = (pc.binary_join_element_wise(width, height, "x"), steps, images)
    return Mix({name: _shares(column.drop_null(), len(trace)) for name, column in zip(COLUMNS, columns, strict=True)})


def _shares(values: pa.ChunkedArray, count: int) -> list[tuple[str, float]]:
    tally = sorted(
        ((entry["values"], entry["counts"]) for entry in pc.value_counts(values).to_pylist()),
        key=lambda pair: (-pair[1], pair[0]),
    )
    return [(value, number / count) for value, number in tally]
