"""Verdict on the load of a run: does the system serve what is offered?"""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.core.request import DISCARDED, FAILED
from mezzotint.sim.metrics.request_columns import RequestColumns

Verdict = Literal["below", "overloaded", "undecided"]

SPANS = 60
"""Equal spans of time at whose edges the requests in the system are counted."""

COARSE = 3
"""Spans that are taken together for the t-test: 20 changes."""

QUANTILE = 2.8609346064649794
"""Quantile .995 of Student's t with 19 degrees of freedom: scipy.special.stdtrit, whose import takes longer than a
small run. At a load of exactly 1 the late requests are a random walk reflected at zero, and the test's level is twice
the nominal .5 %. Below 1 it is lower."""

LATER_GROWTH = 1.0
"""Least t-statistic of the changes of the last half: a run that recovers does not grow there."""

SETTLED = 0.06
"""Bound on ``_spread_ratio`` of a run below capacity: the 3.3 % quantile at a load of exactly 1 (reflected Brownian
motion, 8,000 paths), of the whole span or of its last half."""

MIN_SERVICE_TIMES = 5
"""Shortest run that can be below capacity, in mean service times: before, the GPUs are still being filled."""

LOST = 0.1
"""Share of the requests that are discarded or fail above which a run is overloaded, whatever the GPUs do."""

GROWS = "requests piled up for as long as they came: latencies and SLO shares depend on the length of the trace"
LOSES = "{share:.1%} of the requests were discarded or failed, more than idle GPUs could have served"
LOSES_MUCH = "{share:.1%} of the requests were discarded or failed"
SHORT = "the run is shorter than 5 service times, so the GPUs were still being filled"
UNDECIDED = "the run is too short to tell a load below capacity from one above; a longer trace would"
AT_ONCE = "all requests arrived at one instant"
CLOSED = "a closed loop offers what is served"

Reals = NDArray[np.float64]
Counts = NDArray[np.int64]


def load(
    columns: RequestColumns,
    start_s: float,
    standalone_s: Reals,
    idle_s: Callable[[float, float], float],
    gpus: int,
    *,
    is_closed: bool,
) -> dict[str, Any]:
    """Return the summary's ``load`` from ``start_s`` to the last arrival.

    Let W be the requests that are late: in the system (front end, queue or service) for longer than they need alone.
    A request needs the lesser of its seconds from start to finish and of its standalone latency. So filling the GPUs at
    the start is no growth, and a busier hour is none as long as nobody waits; waits in the front end, between stages
    and in a batch count. Above capacity W is a random walk with drift. At capacity it has no drift, and below it
    returns to its level.

    - ``overloaded``: the mean change of W in 20 spans, over its standard error, exceeds QUANTILE, and W still grows in
      the last half. Or requests are lost (discarded or failed) that idle GPUs could not have served: the same test, of
      W + losses - idle GPU-seconds x completions in a busy GPU-second. That sum is the arrivals minus the capacity.
      Or more than a tenth is lost.
    - ``below``: the mean square of W over the sum of its squared changes in 60 spans is under SETTLED (the statistic of
      Sargan and Bhargava, Econometrica 51, 1983, of a random walk against a stationary series), and the run lasts 5
      service times. Or W falls as significantly as it would have to rise: what had piled up before is served.
    - ``undecided``: neither.

    Share of runs from empty (300 seeds, M/M/8) with a wrong verdict. Loads below 1, called overloaded: under .5 % at
    any length; at 1: 1 to 2 %. Loads above 1, called below: at 1.05 21 % of 100 requests, 3 % of 1,000 and none of
    3,000; at 1.2 7 % of 100 and none of 1,000. Power: |1 - ratio| must be about three times
    sqrt((ca2 + cs2) / requests), the squared coefficients of variation of arrivals and service times: a load of .9 or
    1.1 takes 1,000 requests with constant service times and 2,000 with exponential ones, of .95 or 1.05 four times as
    many.

    Args:
        standalone_s: standalone latency of each row of ``columns``.
        idle_s: returns the idle GPU-seconds between two times.
        gpus: GPUs of the cluster.
        is_closed: True if arrivals follow completions.
    """
    arrival_s, finish_s, outcome = columns["arrival_s"], columns["finish_s"], columns["outcome"]
    last_s = float(arrival_s.max())
    span_s = last_s - start_s
    if not span_s > 0:
        unknown = dict.fromkeys(("offered_rpm", "served_rpm", "growth_per_hour"))
        return unknown | {"verdict": "undecided", "note": AT_ONCE}
    served_in_s = finish_s - columns["start_s"]
    needed_s = np.fmin(served_in_s, standalone_s)
    needed_s[np.isnan(columns["start_s"])] = 0.0
    edges = np.linspace(start_s, last_s, SPANS + 1)
    left = _count_until(edges, finish_s)
    late = _count_until(edges, np.minimum(arrival_s + needed_s, finish_s)) - left
    is_lost = (outcome == DISCARDED) | (outcome == FAILED)
    lost = _count_until(edges, finish_s[is_lost])
    offered = _count_until(edges, arrival_s)
    arrived, grown, gone = (int(count[-1] - count[0]) for count in (offered, late, lost))
    verdict, note = _verdict(late.astype(np.float64))
    mean_s = float(needed_s[~is_lost].mean()) if not is_lost.all() else 0.0
    if verdict == "below" and span_s < MIN_SERVICE_TIMES * mean_s:
        verdict, note = "undecided", SHORT
    if is_closed and not gone:
        verdict, note = "below", CLOSED
    elif gone and verdict != "overloaded":
        share = gone / (gone + arrived - grown)
        short = _shortfall(edges, late, left - lost, lost, idle_s, gpus)
        if _grows(short):
            verdict, note = "overloaded", LOSES.format(share=share)
        elif share > LOST:
            verdict, note = "overloaded", LOSES_MUCH.format(share=share)
    return {
        "offered_rpm": 60 * arrived / span_s,
        "served_rpm": 60 * max(arrived - grown - gone, 0) / span_s,
        "growth_per_hour": 3600 * grown / span_s,
        "verdict": verdict,
        "note": note,
    }


def _verdict(late: Reals) -> tuple[Verdict, str | None]:
    """Return the verdict on the late requests at the edges, and one sentence why."""
    if _grows(late):
        return "overloaded", GROWS
    is_drained = _t_statistic(np.diff(late[::COARSE])) < -QUANTILE
    if is_drained or min(_spread_ratio(late), _spread_ratio(late[SPANS // 2 :])) < SETTLED:
        return "below", None
    return "undecided", UNDECIDED


def _grows(series: Reals) -> bool:
    """Return True if a random walk without drift would hardly grow as ``series`` does, and its last half grows too."""
    change = np.diff(series[::COARSE])
    return _t_statistic(change) > QUANTILE and _t_statistic(change[len(change) // 2 :]) > LATER_GROWTH


def _t_statistic(change: Reals) -> float:
    """Return the mean of ``change`` over its standard error; infinite if all are equal and not zero."""
    mean, error = float(change.mean()), float(change.std(ddof=1)) / math.sqrt(len(change))
    return mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0


def _spread_ratio(series: Reals) -> float:
    """Return the mean square of ``series`` over the sum of its squared changes; 0 if it is zero throughout."""
    changes = float((np.diff(series) ** 2).sum())
    squares = float((series[1:] ** 2).mean())
    return squares / changes if changes else math.inf if squares else 0.0


def _shortfall(
    edges: Reals, late: Counts, completed: Counts, lost: Counts, idle_s: Callable[[float, float], float], gpus: int
) -> Reals:
    """Return the requests at each edge that neither the busy nor the idle GPU-seconds serve."""
    idle = np.cumsum([0.0, *(idle_s(edges[at], edges[at + 1]) for at in range(SPANS))])
    busy_s = gpus * (edges[-1] - edges[0]) - idle[-1]
    per_s = (completed[-1] - completed[0]) / busy_s if busy_s > 0 else 0.0
    return late + lost - per_s * idle


def _count_until(edges: Reals, at_s: Reals) -> Counts:
    """Count the times ``at_s`` at or before each edge, (SPANS + 1,)."""
    # Left: what happens at an edge belongs to the span before it, for both sides of a difference.
    return np.cumsum(np.bincount(np.searchsorted(edges, at_s), minlength=SPANS + 2))[: SPANS + 1]
