"""Facts per request, written straight into typed columns; the table of requests.parquet."""

from array import array
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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

NAN = float("nan")


class Columns:
    """One typed array per column, as long as the run has requests.

    Python's own arrays take a value three times faster than NumPy's and keep no object alive; NumPy reads
    them without a copy when the run is over. Seconds and joules are float64; NaN and -1 stand for null.
    """

    def __init__(self, rows: int, models: Sequence[str]) -> None:
        def reals(fill: float) -> "array[float]":
            return array("d", [fill]) * rows

        def integers(fill: int) -> "array[int]":
            return array("i", [fill]) * rows

        self.model_code = {name: code for code, name in enumerate(dict.fromkeys(models))}
        self.outcome = array("B", [0]) * rows
        self.arrival_s = reals(NAN)
        self.start_s = reals(NAN)
        self.finish_s = reals(NAN)
        self.model = integers(MISSING)
        self.worker = integers(MISSING)
        self.width = integers(MISSING)
        self.height = integers(MISSING)
        self.steps = integers(MISSING)
        self.skipped = integers(0)
        self.k = integers(0)
        self.switched = array("B", [0]) * rows
        self.lookup = array("B", [0]) * rows
        self.hole = array("B", [0]) * rows
        self.evictions = integers(0)
        self.similarity = reals(NAN)
        self.source = integers(MISSING)
        self.source_age_s = reals(NAN)
        self.search_s = reals(0.0)
        self.wasted_s = reals(0.0)
        self.fetch_s = reals(0.0)
        self.load_s = reals(0.0)
        self.stall_s = reals(0.0)
        self.denoise_s = reals(0.0)
        self.decode_s = reals(0.0)
        self.energy_j = reals(0.0)
        self.quality = reals(NAN)
        self.reasons: dict[int, str] = {}
        self.predicting = False
        self.trained_at_s = array("d")
        self.training_s = array("d")

    def end(self, request: Request, now_s: float, outcome: int, reason: str) -> None:
        """Write everything that is known of ``request``, which ends now."""
        row = request.row
        self.outcome[row] = outcome
        self.finish_s[row] = now_s
        if reason:
            self.reasons[row] = reason
        self.width[row] = request.width
        self.height[row] = request.height
        self.steps[row] = request.steps
        if request.lookup:
            self.lookup[row] = request.lookup
            self.hole[row] = request.hole
            self.search_s[row] = request.search_s
            if request.lookup == MISS:
                self.wasted_s[row] = request.wasted_s
            self.similarity[row] = request.similarity
            if request.source != MISSING:
                self.skipped[row] = request.skipped
                self.k[row] = request.k
                self.source[row] = request.source
                self.source_age_s[row] = request.source_age_s
                self.fetch_s[row] = request.fetch_s
        if outcome == COMPLETED:
            self.start_s[row] = request.start_s
            if request.model is not None:
                self.model[row] = self.model_code[request.model]
                self.worker[row] = request.worker
                self.denoise_s[row] = request.denoise_s
                self.decode_s[row] = request.decode_s
                self.energy_j[row] = request.energy_j
                if request.switched:
                    self.switched[row] = True
                    self.load_s[row] = request.load_s
                if request.quality == request.quality:
                    self.quality[row] = request.quality

    def evicted(self, row: int, count: int) -> None:
        """Storing what ``row`` left behind pushed ``count`` items out; preloaded rows are not counted."""
        if row >= 0:
            self.evictions[row] += count

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
        ids = request_ids.take(_integers(np.frombuffer(self.source, np.int32)))
        reasons: list[str | None] = [None] * len(self.outcome)
        for row, reason in self.reasons.items():
            reasons[row] = reason
        model = np.frombuffer(self.model, np.int32)
        lookup = np.frombuffer(self.lookup, np.uint8).astype(np.int32)
        batch = np.where(model == MISSING, NAN, 1.0)
        named = {
            "request_id": served,
            "arrival_s": self._reals(self.arrival_s),
            "start_s": self._reals(self.start_s),
            "finish_s": self._reals(self.finish_s),
            "outcome": _coded(np.frombuffer(self.outcome, np.uint8).astype(np.int32), OUTCOMES),
            "reason": pa.array(reasons, pa.string()),
            "model": _coded(model, tuple(self.model_code)),
            "worker": _integers(np.frombuffer(self.worker, np.int32)),
            "width": pa.array(np.frombuffer(self.width, np.int32)),
            "height": pa.array(np.frombuffer(self.height, np.int32)),
            "steps": pa.array(np.frombuffer(self.steps, np.int32)),
            "skipped": pa.array(np.frombuffer(self.skipped, np.int32)),
            "similarity": self._reals(self.similarity),
            "source_id": ids,
            "source_age_s": self._reals(self.source_age_s),
            "search_s": self._reals(self.search_s),
            "fetch_s": self._reals(self.fetch_s),
            "load_s": self._reals(self.load_s),
            "stall_s": self._reals(self.stall_s),
            "denoise_s": self._reals(self.denoise_s),
            "decode_s": self._reals(self.decode_s),
            "batch_mean": pa.array(batch, from_pandas=True),
            "quality_factor": self._reals(self.quality),
            "energy_j": self._reals(self.energy_j),
            "lookup": _coded(np.where(lookup == 0, MISSING, lookup), LOOKUPS),
        }
        return pa.table(named)

    @staticmethod
    def _reals(column: "array[float]") -> pa.Array:
        return pa.array(np.frombuffer(column), from_pandas=True)


def _integers(values: NDArray[np.int32]) -> pa.Array:
    return pa.array(values, mask=values == MISSING)


def _coded(codes: NDArray[np.int32], names: Sequence[str]) -> pa.Array:
    indices = pa.array(codes, mask=codes == MISSING)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))
