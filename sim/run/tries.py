"""Rows of a run whose client may send a request several times: one for each try (mezzotint.sim.client.tries)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.engine import Engine
from mezzotint.traces.table.trace import Trace


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of all tries: those of the trace, then the served ones again for each further try.

    Args:
        rows: rows of the trace, of which ``preload`` only fill caches.
        max_tries: tries of a request at most.
    """

    rows: int
    preload: int
    max_tries: int

    def of(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return a column of the trace, (rows,), for all tries."""
        if self.max_tries == 1:
            return column
        return np.concatenate([column[: self.preload], np.tile(column[self.preload :], self.max_tries)])

    def of_trace(self, trace: Trace) -> Trace:
        """Return ``trace`` with a row for every try."""
        return trace if self.max_tries == 1 else trace.take(self.of(np.arange(self.rows)))


def keep_sent(engine: Engine, trace: Trace) -> Trace:
    """Keep the tries that were sent, in the order of their arrival: rows of the record, the workload and the logs.

    Returns:
        The trace of them; the further tries of the request ID are called ID~2, ID~3 and so on.
    """
    workload, record = engine.workload, engine.record
    columns, first = record.request_columns, workload.preload
    sent = np.flatnonzero(columns["outcome"])
    places = sent[np.lexsort((sent, columns["arrival_s"][sent]))]
    rows = np.concatenate([np.arange(first), first + places])
    row_of = np.full(first + len(columns), MISSING)
    row_of[rows] = np.arange(len(rows))
    record.request_columns = columns.take(places, row_of)
    engine.workload = workload.take(rows, record.request_columns["arrival_s"].copy())
    record.usage_log.renumber(row_of)
    if record.fleet is not None:
        record.fleet.swap = record.fleet.swap[places]
    if record.attempts is not None:
        record.attempts.renumber(row_of)
    taken = trace.take(np.where(rows < first, rows, first + (rows - first) % workload.rows))
    number = [1] * first + (1 + places // workload.rows).tolist()
    names = zip(taken.cells("request_id").to_pylist(), number, strict=True)
    ids = [name if count == 1 else f"{name}~{count}" for name, count in names]
    place = taken.known.column_names.index("request_id")
    return replace(taken, known=taken.known.set_column(place, taken.known.schema.field(place), [ids]))
