"""Facts per request, a record for each; the table of requests.parquet."""

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sim.errors import SimulationError
from sim.request import MISSING, Request

COMPLETED, DISCARDED, FAILED = 1, 2, 3
OUTCOMES = ("", "completed", "discarded", "failed")
"""The three ways for a request to end, by code; 0 is a request that has not ended."""

MISS, HIT, EMPTY, STALE, PREDICTED_MISS, FORGONE_MATCH, NO_DATABASE, NO_STORE = range(1, 9)
LOOKUPS = ("", "miss", "hit", "empty", "stale", "predicted miss", "forgone match", "no database", "no store")
"""What came of asking a cache, by code; 0 is a request that asked none.

A search found nothing that is similar enough (miss), an artifact to start from (hit), an entry of which no state
that may be used is left (empty: holes), or one that is deleted and that the database still had (stale). A request
was predicted to find nothing, rightly, or though a search would have found a match (forgone match). The database
or the store was out of service. All but a hit are generated in full.
"""

REAL, WHOLE, CODE = "d", "i", "B"
"""float64, int32 and uint8: the letters are those of struct and of NumPy. NaN and -1 stand for null."""

ENDED = {
    **dict.fromkeys(("arrival_s", "finish_s", "search_s", "wasted_s", "similarity", "source_age_s", "fetch_s"), REAL),
    **dict.fromkeys(("width", "height", "steps", "skipped", "k", "source"), WHOLE),
    **dict.fromkeys(("outcome", "lookup", "hole"), CODE),
}
"""What is written of every request, when it ends."""

SERVED = {
    **dict.fromkeys(("start_s", "load_s", "denoise_s", "decode_s", "energy_j", "quality"), REAL),
    **dict.fromkeys(("model", "worker"), WHOLE),
    **dict.fromkeys(("switched",), CODE),
}
"""What is written besides of one that is completed."""

STORED = {"evictions": WHOLE}
"""What is written when the artifact of a request is stored."""

RECORD = np.dtype(list((ENDED | SERVED | STORED).items()), align=True)
SIZE = RECORD.itemsize
PLACE: dict[str, int] = {name: place[1] for name, place in (RECORD.fields or {}).items()}
SERVED_AT, STORED_AT, OUTCOME_AT = PLACE["start_s"], PLACE["evictions"], PLACE["outcome"]
write_ended, write_served, write_stored = (
    Struct("@" + "".join(part.values())).pack_into for part in (ENDED, SERVED, STORED)
)


class Columns:
    """One record per request of the run, laid end to end in a buffer that NumPy reads as columns without a copy.

    A request is written in one call or two, in about half the time that it takes value by value.

    Attributes:
        model_code: what stands for each model in the column ``model``.
        reasons: why a request was discarded or failed, by row.
        predicting: whether a match predictor decides what is searched for.
        trained_at_s, training_s: when each of its trainings began, and how long it took.
    """

    def __init__(self, rows: int, models: Sequence[str]) -> None:
        self.model_code = {name: code for code, name in enumerate(dict.fromkeys(models))}
        self._buffer = bytearray(SIZE * rows)
        self._records: NDArray[Any] = np.frombuffer(self._buffer, RECORD)
        for name in ("start_s", "quality"):
            self._records[name] = np.nan
        for name in ("source", "model", "worker"):
            self._records[name] = MISSING
        self.reasons: dict[int, str] = {}
        self.predicting = False
        self.trained_at_s = array("d")
        self.training_s = array("d")

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The column ``name`` of ``RECORD``, (rows,): the records themselves, not a copy."""
        column: NDArray[Any] = self._records[name]
        return column

    def end(self, request: Request, now_s: float, outcome: int, reason: str) -> None:
        """Write everything that is known of ``request``, which ends now.

        Raises SimulationError where it ended before.
        """
        row = request.row
        at = row * SIZE
        if self._buffer[at + OUTCOME_AT]:
            raise SimulationError(f"request in row {row} ended twice; the second time at {now_s} s")
        if reason:
            self.reasons[row] = reason
        write_ended(
            self._buffer,
            at,
            request.arrival_s,
            now_s,
            request.search_s,
            request.wasted_s,
            request.similarity,
            request.source_age_s,
            request.fetch_s,
            request.width,
            request.height,
            request.steps,
            request.skipped,
            request.k,
            request.source,
            outcome,
            request.lookup,
            request.hole,
        )
        if outcome == COMPLETED:
            write_served(
                self._buffer,
                at + SERVED_AT,
                request.start_s,
                request.load_s,
                request.denoise_s,
                request.decode_s,
                request.energy_j,
                request.quality,
                MISSING if request.model is None else self.model_code[request.model],
                request.worker,
                request.switched,
            )

    def stored(self, row: int, evictions: int) -> None:
        """What ``row`` left behind is stored, which pushed ``evictions`` items out; preloaded rows are not counted."""
        if row >= 0:
            write_stored(self._buffer, row * SIZE + STORED_AT, evictions)

    def retrained(self, now_s: float, seconds: float) -> None:
        """The match predictor's training began; it takes ``seconds``. To be called by any predictor that trains."""
        self.trained_at_s.append(now_s)
        self.training_s.append(seconds)

    def table(self, request_ids: pa.ChunkedArray, preload: int) -> pa.Table:
        """The table of requests.parquet, in the order of the trace.

        ``request_ids`` are those of the whole trace: sources may be among the ``preload`` rows at its head,
        which were not served. What is -1 or NaN here is null there.
        """
        served = request_ids.slice(preload)
        reasons: list[str | None] = [None] * len(self._records)
        for row, reason in self.reasons.items():
            reasons[row] = reason
        model, lookup = self["model"], self["lookup"].astype(np.int32)
        named = {
            "request_id": served,
            "arrival_s": _reals(self["arrival_s"]),
            "start_s": _reals(self["start_s"]),
            "finish_s": _reals(self["finish_s"]),
            "outcome": _coded(self["outcome"].astype(np.int32), OUTCOMES),
            "reason": pa.array(reasons, pa.string()),
            "model": _coded(model, tuple(self.model_code)),
            "worker": _integers(self["worker"]),
            "width": pa.array(self["width"]),
            "height": pa.array(self["height"]),
            "steps": pa.array(self["steps"]),
            "skipped": pa.array(self["skipped"]),
            "similarity": _reals(self["similarity"]),
            "source_id": request_ids.take(_integers(self["source"])),
            "source_age_s": _reals(self["source_age_s"]),
            "search_s": _reals(self["search_s"]),
            "fetch_s": _reals(self["fetch_s"]),
            "load_s": _reals(self["load_s"]),
            "stall_s": _reals(np.zeros(len(model))),
            "denoise_s": _reals(self["denoise_s"]),
            "decode_s": _reals(self["decode_s"]),
            "batch_mean": _reals(np.where(model == MISSING, np.nan, 1.0)),
            "quality_factor": _reals(self["quality"]),
            "energy_j": _reals(self["energy_j"]),
            "lookup": _coded(np.where(lookup == 0, MISSING, lookup), LOOKUPS),
        }
        return pa.table(named)


def _reals(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, from_pandas=True)


def _integers(values: NDArray[np.int32]) -> pa.Array:
    return pa.array(values, mask=values == MISSING)


def _coded(codes: NDArray[np.int32], names: Sequence[str]) -> pa.Array:
    indices = pa.array(codes, mask=codes == MISSING)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))
