"""Shares, latencies and Jain's index of fairness of the tenants of a run."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.metrics.spread import Reals, spread

MAX_ROWS = 20
"""Tenants that a summary names: all, or the largest half and the worst off of the others."""


def jain(values: Reals) -> float | None:
    """Return Jain's index of fairness: 1 if all ``values`` are equal, 1/n if one of n has everything; None without any.

    Source: Jain, Chiu and Hawe, A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared
    Computer Systems, DEC-TR-301, 1984.
    """
    squares = float((values**2).sum())
    return float(values.sum()) ** 2 / (len(values) * squares) if squares else None


def tenants(
    codes: NDArray[np.int32],
    names: Sequence[str],
    *,
    latency_s: Reals,
    standalone_s: Reals,
    gpu_s: Reals,
    completed: NDArray[np.bool_],
    over_limit: NDArray[np.bool_],
) -> dict[str, Any]:
    """Return the contents of the summary's section ``tenants``.

    Args:
        codes: the tenant of each measured request, by its index in ``names``; -1 for none, which is one tenant.
        latency_s, standalone_s, gpu_s: of each request; GPU seconds are those of its steps, NaN for none.
        completed, over_limit: True for a request that was completed, and for one that a limit of its tenant discarded.
    """
    tenant, count = codes + 1, len(names) + 1
    requests, done = np.bincount(tenant, minlength=count), np.bincount(tenant[completed], minlength=count)
    slowdowns = (latency_s / standalone_s)[completed]
    served_s = np.bincount(tenant, np.nan_to_num(gpu_s), count).astype(np.float64)
    # A tenant without a completed request is the worst off.
    slowdown = np.full(count, np.inf)
    np.divide(np.bincount(tenant[completed], slowdowns, count), done, out=slowdown, where=done > 0)
    discarded = np.bincount(tenant[over_limit], minlength=count)
    # Of equals the one that arrived first, so that the order is the same in every run.
    present = np.flatnonzero(requests)
    largest = present[np.argsort(-requests[present], kind="stable")]
    if len(largest) > MAX_ROWS:
        largest, others = np.split(largest, [MAX_ROWS // 2])
        worst = others[np.argsort(-slowdown[others], kind="stable")][: MAX_ROWS - len(largest)]
        largest = np.concatenate([largest, np.sort(worst)])
    rows = [
        {
            "user_id": None if code == 0 else names[code - 1],
            "requests": int(requests[code]),
            "share": float(requests[code] / len(codes)),
            "completed": int(done[code]),
            "discarded_by_limit": int(discarded[code]),
            "gpu_s": float(served_s[code]),
            "slowdown": float(slowdown[code]) if done[code] else None,
            "latency_s": spread(latency_s[completed & (tenant == code)], ("p50", "p95", "p99")),
        }
        for code in largest
    ]
    return {
        "count": len(present),
        "discarded_by_limit": int(over_limit.sum()),
        "jain": {"gpu_s": jain(served_s[present]), "slowdown": jain(slowdown[done > 0])},
        "rows": rows,
        "rows_left_out": len(present) - len(rows),
    }
