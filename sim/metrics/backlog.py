"""Whether the queue of a run grew for as long as requests came: then its latencies say how long the trace was."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.request_columns import RequestColumns

SPANS = 20
"""Equal spans of time in which the growth of the queue is looked at."""

FALSE_ALARM = 0.005
"""How often a walk without a drift would be said to grow. A queue at a load of exactly 1 is one that is turned back at
zero, so twice as often; below 1 it is rarer."""

QUANTILE = 2.8609346064649794
"""Of Student's t with SPANS - 1 degrees of freedom at 1 - FALSE_ALARM: scipy.special.stdtrit, whose import takes longer
than a small run."""

NOTE = "the queue grew for as long as requests came: latencies and SLO shares depend on the length of the trace"

Reals = NDArray[np.float64]


def backlog(facts: RequestColumns, start_s: float) -> dict[str, Any]:
    """The summary's ``backlog``: of the requests in ``facts`` from ``start_s`` to the last arrival.

    Let Q be the number in the queue: those whom the front end is done with and no GPU has begun. In each of SPANS
    spans Q changes by some d. Over a load of 1, Q is a random walk with a drift; at 1 one without; below, it is held at
    zero. So the mean of d over its standard error follows at most Student's t with SPANS - 1 degrees of freedom while
    the system keeps up. The queue grows where that is above the quantile that FALSE_ALARM leaves.

    Said to grow, of 1,500 seeds of M/M/1 from empty: at a load of 0.9 and less none of those of 1,000 requests and
    more, and 0.3 % of those of 100; at 1 1.0 to 1.3 %; at 1.1 11 % of 400, 33 % of 1,000, 92 % of 4,000 and all of
    16,000. The number in service is not looked at: it is bounded, and rises in every run that begins empty.

    ``per_hour`` is the mean change of Q, ``at_last_arrival`` Q itself; null where all came at one instant.
    """
    arrival_s, finish_s = facts["arrival_s"], facts["finish_s"]
    last_s = float(arrival_s.max())
    said: dict[str, Any] = dict.fromkeys(("grows", "per_hour", "at_last_arrival", "note"))
    span_s = last_s - start_s
    if not span_s > 0:
        return said
    entered_s = arrival_s + facts["search_s"]
    left_s = np.where(np.isnan(facts["start_s"]), finish_s, facts["start_s"])
    # What takes a GPU at once has not waited, though its sum of times may be a rounding error off.
    left_s = np.where(left_s - entered_s > 1e-9 * np.maximum(1.0, left_s), left_s, entered_s)
    queue = _so_far(entered_s, start_s, last_s) - _so_far(left_s, start_s, last_s)
    change = np.diff(queue)
    grows = bool(_trend(change) > QUANTILE)
    return said | {
        "grows": grows,
        "per_hour": float(queue[-1] - queue[0]) * 3600 / span_s,
        "at_last_arrival": int(queue[-1]),
        "note": NOTE if grows else None,
    }


def _so_far(at_s: Reals, start_s: float, last_s: float) -> NDArray[np.int64]:
    """How many of ``at_s`` lie at or before each edge of the spans, (SPANS + 1,)."""
    edges = np.linspace(start_s, last_s, SPANS + 1)
    return np.cumsum(np.bincount(np.searchsorted(edges, at_s), minlength=SPANS + 2))[:-1]


def _trend(change: NDArray[np.int64]) -> float:
    """The mean of ``change`` over its standard error; infinite where all are the same and above zero."""
    mean, error = float(change.mean()), float(change.std(ddof=1)) / math.sqrt(len(change))
    return mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0
