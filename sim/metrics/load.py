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

QUANTILE = 2.5394831906239625
"""Quantile .99 of Student's t with 19 degrees of freedom: scipy.special.stdtrit, whose import takes longer than a
small run. The level holds for arrivals as they came; at a load below 1 it is lower."""

MARGIN = 0.01
"""Least share of the requests by which served must stay below offered, or capacity above it."""

LATER_GROWTH = 0.0
"""Least t-statistic of the changes of the last half: a run that recovers does not grow there."""

SETTLED = 0.06
"""Bound on ``_spread_ratio`` of a run below capacity: the 3.3 % quantile at a load of exactly 1 (reflected Brownian
motion, 8,000 paths), of the whole span or of its last half."""

SETTLED_ABOUT_MEAN = 0.018
"""The same about the mean of the series, which is far above zero where batches wait for requests of one size: the 1.7 %
quantile. All three together: 5 %."""

FILL_TIMES, MAX_FILL = 2, 0.2
"""A run from empty is judged after so many median times from start to finish, at most this share of its span: batches
and groups fill up, and a request takes longer there than alone."""

MIN_SERVICE_TIMES = 5
"""Shortest run that can be below capacity, in mean service times: before, the GPUs are still being filled."""

LOST = 0.05
"""Share of the requests that are discarded or fail above which a run is overloaded, whatever the GPUs do."""

STAGES = ("fetch_s", "load_s", "denoise_s", "decode_s")
"""Seconds of a request's own work from its start on, in the batch or group that it ran in."""

GROWS = "requests piled up for as long as they came: latencies and SLO shares depend on the length of the trace"
LOSES = "{share:.1%} of the requests were discarded or failed, more than idle GPUs could have served"
LOSES_MUCH = "{share:.1%} of the requests were discarded or failed"
LOSES_LITTLE = "{share:.1%} of the requests were discarded or failed, which idle GPUs could have served"
SHORT = "the run is shorter than 5 service times, so the GPUs were still being filled"
UNDECIDED = "the run is too short to tell a load below capacity from one above; a longer trace would"
AT_ONCE = "all requests arrived at one instant"
CLOSED = "a closed loop offers what is served"

Reals = NDArray[np.float64]
Counts = NDArray[np.int64]


def load(
    columns: RequestColumns,
    start_s: float,
    idle_s: Callable[[Reals], Reals],
    gpus: int,
    *,
    is_closed: bool,
) -> dict[str, Any]:
    """Return the summary's ``load`` from ``start_s`` to the last arrival.

    Let W be the requests that are late: in the system (front end, queue or service) for longer than their own work
    takes, in the batch or group that they ran in. So filling the GPUs at the start is no growth, and a busier hour is
    none as long as nobody waits; waits in the front end and between stages count. The arrivals are taken as they came:
    the question is whether the system served them, not at which rate their process would send more.

    - ``overloaded``: W grows by more than MARGIN of the arrivals, significantly, and does not fall in the last half.
      It is significant if its mean change in 20 spans exceeds QUANTILE standard errors. The standard error is that of
      the completions or of the changes, the smaller of the two. Or requests are lost (discarded or failed) that idle
      GPUs could not have served. The same test is then of the arrivals minus the capacity: of W + losses - idle
      GPU-seconds x completions in a busy GPU-second. Or more than a twentieth is lost.
    - ``below``: idle GPUs could have served MARGIN more than came, and W does not grow by MARGIN. Or W returns to its
      level, zero or its mean: its mean square over the sum of its squared changes in 60 spans is under SETTLED. That is
      the statistic of Sargan and Bhargava (Econometrica 51, 1983) for a stationary series against a random walk. Or W
      falls as significantly as it would have to rise. In each case the run lasts 5 service times.
    - ``undecided``: none of them.

    Wrong verdicts, held against what was offered over the capacity (M/M/8 and M/D/8 from empty, any load): at most 2 %
    of runs of 300 to 1,000 requests, none of 3,000; 11 % of 100. Held against the rate of the arrival process, more
    are wrong, since by chance more or fewer requests came. At .95, 4 to 6 % of 300 and up to 2 % of 1,000 are called
    overloaded. At 1.05, 14 % of 300 and 3 % of 1,000 are called below.
    Power: at .9 or 1.1, 60 to 95 % of 1,000 requests and 98 % of 3,000 get the right verdict; at .95 or 1.05 half of
    1,000 and 70 to 98 % of 3,000. The requests that a verdict needs go with
    (ca2 + cs2) / (1 - load)**2, the squared coefficients of variation of arrivals and service times.

    Args:
        idle_s: returns the idle GPU-seconds from the first of some times to each.
        gpus: GPUs of the cluster.
        is_closed: True if arrivals follow completions.
    """
    first_s, last_s, after, is_started = float(columns["arrival_s"][0]), -math.inf, 0, False
    for block in columns.blocks():
        last_s = max(last_s, float(block["arrival_s"].max()))
        after += int((block["arrival_s"] > start_s).sum())
        is_started = is_started or not np.isnan(block["start_s"]).all()
    span_s = last_s - start_s
    if not span_s > 0 or not is_started:
        unknown = dict.fromkeys(("offered_rpm", "served_rpm", "growth_per_hour"))
        return unknown | {"verdict": "undecided", "note": AT_ONCE}
    offered_rpm = 60 * after / span_s
    is_empty = start_s <= first_s
    fill_s = min(FILL_TIMES * _median_s(columns), MAX_FILL * span_s) if is_empty else 0.0
    edges = np.linspace(start_s + fill_s, last_s, SPANS + 1)
    due, lost, served, offered = (np.zeros(SPANS + 1, np.int64) for _ in range(4))
    for block in columns.blocks():
        arrival_s, finish_s, is_lost = block["arrival_s"], block["finish_s"], _is_lost(block)
        due += _count_until(edges, np.minimum(arrival_s + _needed_s(block), finish_s))
        lost += _count_until(edges, finish_s[is_lost])
        served += _count_until(edges, finish_s[~is_lost])
        offered += _count_until(edges, arrival_s)
    late = due - lost - served
    arrived, grown, gone = (int(count[-1] - count[0]) for count in (offered, late, lost))
    idle = idle_s(edges[::COARSE])
    counted_s = span_s - fill_s
    busy_s = gpus * counted_s - float(idle[-1])
    servable = idle * ((served[-1] - served[0]) / busy_s if busy_s > 0 else 0.0)
    excess = (grown + gone - float(servable[-1])) / arrived
    share = gone / (gone + arrived - grown) if gone else 0.0
    late_, lost_, served_ = (count[::COARSE].astype(np.float64) for count in (late, lost, served))
    verdict: Verdict = "undecided"
    note: str | None = UNDECIDED
    if grown > MARGIN * arrived and _grows(late_, served_):
        verdict, note = "overloaded", GROWS
    elif gone and excess > MARGIN and _grows(late_ + lost_ - servable, served_ + servable):
        verdict, note = "overloaded", LOSES.format(share=share)
    elif share > LOST:
        verdict, note = "overloaded", LOSES_MUCH.format(share=share)
    elif is_closed:
        verdict, note = "below", CLOSED
    elif span_s < MIN_SERVICE_TIMES * float(columns.computed(lambda block: _needed_s(block)[~_is_lost(block)]).mean()):
        note = SHORT
    elif (excess < -MARGIN and grown < MARGIN * arrived) or _settles(late.astype(np.float64)):
        verdict, note = "below", LOSES_LITTLE.format(share=share) if gone else None
    return {
        "offered_rpm": offered_rpm,
        "served_rpm": offered_rpm * max(1 - (grown + gone) / arrived, 0.0),
        "growth_per_hour": 3600 * grown / counted_s,
        "verdict": verdict,
        "note": note,
    }


def _is_lost(columns: RequestColumns) -> NDArray[np.bool_]:
    """Return which requests were discarded or failed."""
    outcome = columns["outcome"]
    found: NDArray[np.bool_] = (outcome == DISCARDED) | (outcome == FAILED)
    return found


def _needed_s(columns: RequestColumns) -> Reals:
    """Return the seconds that each request takes without waiting, in the batch or group that it ran in."""
    served_in_s = columns["finish_s"] - columns["start_s"]
    worked_s = np.nansum([columns[name] for name in STAGES], axis=0)
    return np.where(np.isnan(served_in_s), 0.0, np.minimum(served_in_s, worked_s))


def _median_s(columns: RequestColumns) -> float:
    """Return the median time from start to finish."""

    def served_in_s(block: RequestColumns) -> Reals:
        found: Reals = block["finish_s"] - block["start_s"]
        return found[~np.isnan(found)]

    return float(np.median(columns.computed(served_in_s), overwrite_input=True))


def _settles(late: Reals) -> bool:
    """Return True if ``late`` at the edges of the spans returns to its level, or falls."""
    if _t_statistic(np.diff(late[::COARSE])) < -QUANTILE:
        return True
    if min(_spread_ratio(late), _spread_ratio(late[SPANS // 2 :])) < SETTLED:
        return True
    return _spread_ratio(late - late[1:].mean()) < SETTLED_ABOUT_MEAN


def _grows(excess: Reals, capacity: Reals) -> bool:
    """Return True if ``excess`` grows by more than the ``capacity``'s noise explains, and in its last half too.

    Both are counts at the edges of the coarse spans. The arrivals are taken as they were: so their noise is none, and
    the standard error is that of the capacity, if it is less than that of the excess itself.
    """
    change, noise = np.diff(excess), np.diff(capacity)
    half = len(change) // 2
    later = change[half:]
    return (
        max(_t_statistic(change), _t_statistic(change, noise)) > QUANTILE
        and max(_t_statistic(later), _t_statistic(later, noise[half:])) > LATER_GROWTH
    )


def _t_statistic(change: Reals, noise: Reals | None = None) -> float:
    """Return the mean of ``change`` over the standard error of the mean of ``noise``, by default of ``change``.

    Infinite if that is zero and the mean is not.
    """
    spread = change if noise is None else noise
    mean, error = float(change.mean()), float(spread.std(ddof=1)) / math.sqrt(len(spread))
    return mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0


def _spread_ratio(series: Reals) -> float:
    """Return the mean square of ``series`` over the sum of its squared changes; 0 if it is zero throughout."""
    changes = float((np.diff(series) ** 2).sum())
    squares = float((series[1:] ** 2).mean())
    return squares / changes if changes else math.inf if squares else 0.0


def _count_until(edges: Reals, at_s: Reals) -> Counts:
    """Count the times ``at_s`` at or before each edge, (SPANS + 1,)."""
    # Left: what happens at an edge belongs to the span before it, for both sides of a difference.
    return np.cumsum(np.bincount(np.searchsorted(edges, at_s), minlength=SPANS + 2))[: SPANS + 1]
