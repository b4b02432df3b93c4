"""Age of reused artifacts on the clock of the trace."""

import numpy as np
from numpy.typing import NDArray

from sim.core.request import MISSING
from sim.metrics.request_columns import RequestColumns
from traces.table.ingest import ORDER_ONLY
from traces.table.trace import Trace


def source_age_trace_s(columns: RequestColumns, trace: Trace) -> NDArray[np.float64]:
    """Return the seconds in ``trace`` between each request and the one whose artifact it starts from, (rows,).

    They are the same at every arrival rate, unlike ``source_age_s`` (MoDM, A.1: 90 % within four hours). NaN if nothing
    was reused, or if the trace has an order and no times.
    """
    source = columns["source"]
    ages_s = np.full(len(columns), np.nan)
    if trace.notes.get("arrival_s") != ORDER_ONLY:
        reused = source != MISSING
        arrival_s = trace.arrival_s
        ages_s[reused] = arrival_s[columns.first :][reused] - arrival_s[source[reused]]
    return ages_s
