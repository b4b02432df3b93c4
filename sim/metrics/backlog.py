"""Test for a growing queue: in overload, latencies depend on the length of the trace."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.metrics.request_columns import RequestColumns

SPANS = 20
"""Equal spans of time over which the growth of the queue is tested."""

FALSE_ALARM = 0.005
"""False positive rate for a random walk without drift. At a load of exactly 1 the queue is such a walk, reflected at
zero, with twice that rate. Below 1 the rate is lower."""

QUANTILE = 2.8609346064649794
"""Quantile 1 - FALSE_ALARM of Student's t with SPANS - 1 degrees of freedom: scipy.special.stdtrit, whose import takes
longer than a small run."""

NOTE = "the queue grew for as long as requests came: latencies and SLO shares depend on the length of the trace"

Reals = NDArray[np.float64]


def backlog(columns: RequestColumns, start_s: float) -> dict[str, Any]:
    """Return the summary's ``backlog`` from ``start_s`` to the last arrival.

    Let Q be the number of requests that have left the front end and not started on a GPU. In each of SPANS spans Q
    changes by some d. Above a load of 1, Q is a random walk with drift. At 1 it has no drift, and below 1 it returns to
    zero. While the system keeps up, the mean of d over its standard error follows at most Student's t with SPANS - 1
    degrees of freedom. The queue grows if that ratio exceeds QUANTILE.

    Share of 1,500 seeds of M/M/1 from empty that are marked as growing. At a load of 0.9 and less: none with 1,000
    requests or more, 0.3 % with 100. At 1: 1.0 to 1.3 %. At 1.1: 11 % with 400, 33 % with 1,000, 92 % with 4,000, all
    with 16,000. The number in service is left out: it is bounded, and rises in every run that begins empty.

    ``per_hour`` is the mean change of Q, ``at_last_arrival`` is Q itself; null if all requests arrive at one instant.
    """
    arrival_s, finish_s = columns["arrival_s"], columns["finish_s"]
    last_s = float(arrival_s.max())
    unknown: dict[str, Any] = dict.fromkeys(("grows", "per_hour", "at_last_arrival", "note"))
    span_s = last_s - start_s
    if not span_s > 0:
        return unknown
    entered_s = arrival_s + columns["search_s"]
    left_s = np.where(np.isnan(columns["start_s"]), finish_s, columns["start_s"])
    # A request that starts at once has not waited, though its sum of times may be off by a rounding error.
    left_s = np.where(left_s - entered_s > 1e-9 * np.maximum(1.0, left_s), left_s, entered_s)
    queue = _count_until_edges(entered_s, start_s, last_s) - _count_until_edges(left_s, start_s, last_s)
    change = np.diff(queue)
    grows = bool(_t_statistic(change) > QUANTILE)
    return {
        "grows": grows,
        "per_hour": float(queue[-1] - queue[0]) * 3600 / span_s,
        "at_last_arrival": int(queue[-1]),
        "note": NOTE if grows else None,
    }


def _count_until_edges(at_s: Reals, start_s: float, last_s: float) -> NDArray[np.int64]:
    """Count the times ``at_s`` at or before each edge of the spans, (SPANS + 1,)."""
    edges = np.linspace(start_s, last_s, SPANS + 1)
    # Left: what happens at an edge belongs to the span before it, for both sides of the difference.
    return np.cumsum(np.bincount(np.searchsorted(edges, at_s), minlength=SPANS + 2))[:-1]


def _t_statistic(change: NDArray[np.int64]) -> float:
    """Return the mean of ``change`` over its standard error; infinite if all are equal and above zero."""
    mean, error = float(change.mean()), float(change.std(ddof=1)) / math.sqrt(len(change))
    return mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0
