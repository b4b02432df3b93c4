"""How old what a request starts from is, on the clock of the trace."""

import numpy as np
from numpy.typing import NDArray

from sim.core.request import MISSING
from sim.metrics.request_columns import RequestColumns
from traces.table.ingest import ORDER_ONLY
from traces.table.trace import Trace


def on_own_clock(facts: RequestColumns, trace: Trace) -> NDArray[np.float64]:
    """Seconds in ``trace`` between the request that left an artifact and the one that starts from it, (rows,).

    The same at every rate of the experiment, unlike ``source_age_s`` (MoDM, A.1: 90 % within four hours). NaN where
    nothing was reused, and in a trace that tells an order and no times.
    """
    source = facts["source"]
    ages = np.full(len(facts), np.nan)
    if trace.notes.get("arrival_s") != ORDER_ONLY:
        reused = source != MISSING
        own_s = trace.arrival_s
        ages[reused] = own_s[facts.first :][reused] - own_s[source[reused]]
    return ages
