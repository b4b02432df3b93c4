"""What is asked for most: base models, ControlNets, LoRAs, numbers of images."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from traces.table.trace import Trace

RANKS = (1, 2, 5, 10, 100, 1000)


@dataclass(frozen=True, slots=True)
class Popularity:
    """Use of the things of one kind.

    Attributes:
        calls: (things,) how often each is used, the most popular first.
        per_request: share of the requests that use 0, 1, 2... of them at once; of those where it is known.
        known: of how many requests it is known what they use.
    """

    calls: npt.NDArray[np.int64]
    per_request: npt.NDArray[np.float64]
    known: int

    def share(self, ranks: int) -> float:
        """Share of the calls that go to the `ranks` most popular."""
        return float(self.calls[:ranks].sum() / max(int(self.calls.sum()), 1))

    def facts(self) -> dict[str, Any]:
        """The numbers, JSON-able."""
        return {
            "known_requests": self.known,
            "distinct": len(self.calls),
            "per_request": {str(number): float(share) for number, share in enumerate(self.per_request)},
            "per_request_mean": float((self.per_request * np.arange(len(self.per_request))).sum()),
            "share_of_top": {str(rank): self.share(rank) for rank in RANKS if rank <= len(self.calls)},
        }


def popularity(trace: Trace) -> dict[str, Popularity | None]:
    """By column: `base_model`, `controlnets`, `loras`; None where the source has none."""
    return {name: _column(trace.table.column(name)) for name in ("base_model", "controlnets", "loras")}


def _column(column: pa.ChunkedArray) -> Popularity | None:
    known = column.drop_null()
    if not len(known):
        return None
    listed = pa.types.is_list(column.type)
    flat = pc.list_flatten(known) if listed else known
    lengths = pc.list_value_length(known).to_numpy() if listed else np.ones(len(known), np.int64)
    counts = pc.value_counts(flat).field("counts").to_numpy(zero_copy_only=False)
    return Popularity(
        calls=np.sort(counts.astype(np.int64))[::-1],
        per_request=np.bincount(lengths.astype(np.int64)) / len(known),
        known=len(known),
    )
