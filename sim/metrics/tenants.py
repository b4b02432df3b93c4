"""Shares, latencies and Jain's index of fairness of the tenants of a run."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.metrics.request_columns import ROWS
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
    release: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Return the contents of the summary's section ``tenants``.

    Args:
        codes: the tenant of each measured request, by its index in ``names``; -1 for none, which is one tenant.
        latency_s, standalone_s, gpu_s: of each request; GPU seconds are those of its steps, NaN for none.
        completed, over_limit: True for a request that was completed, and for one that a limit of its tenant discarded.
        release: lets go of what was read of them.
    """
    count = len(names) + 1
    requests, done, discarded = (np.zeros(count, np.int64) for _ in range(3))
    served_s, slowdowns = np.zeros(count), np.zeros(count)
    for start in range(0, len(codes), ROWS):
        block = slice(start, start + ROWS)
        tenant, is_done = codes[block] + 1, completed[block]
        requests += np.bincount(tenant, minlength=count)
        done += np.bincount(tenant[is_done], minlength=count)
        discarded += np.bincount(tenant[over_limit[block]], minlength=count)
        # One by one, as if all were added at once: the sums are the same to the bit.
        np.add.at(served_s, tenant, np.nan_to_num(gpu_s[block]))
        np.add.at(slowdowns, tenant[is_done], (latency_s[block] / standalone_s[block])[is_done])
        release()
    # A tenant without a completed request is the worst off.
    slowdown = np.full(count, np.inf)
    np.divide(slowdowns, done, out=slowdown, where=done > 0)
    # Of equals the one that arrived first, so that the order is the same in every run.
    present = np.flatnonzero(requests)
    largest = present[np.argsort(-requests[present], kind="stable")]
    if len(largest) > MAX_ROWS:
        largest, others = np.split(largest, [MAX_ROWS // 2])
        worst = others[np.argsort(-slowdown[others], kind="stable")][: MAX_ROWS - len(largest)]
        largest = np.concatenate([largest, np.sort(worst)])
    latencies_s: dict[int, list[Reals]] = {code: [] for code in largest.tolist()}
    for start in range(0, len(codes), ROWS):
        block = slice(start, start + ROWS)
        for code, found_s in latencies_s.items():
            found_s.append(latency_s[block][completed[block] & (codes[block] == code - 1)])
        release()
    rows = [
        {
            "user_id": None if code == 0 else names[code - 1],
            "requests": int(requests[code]),
            "share": float(requests[code] / len(codes)),
            "completed": int(done[code]),
            "discarded_by_limit": int(discarded[code]),
            "gpu_s": float(served_s[code]),
            "slowdown": float(slowdown[code]) if done[code] else None,
            "latency_s": spread(np.concatenate(latencies_s.pop(code)), ("p50", "p95", "p99")),
        }
        for code in largest.tolist()
    ]
    return {
        "count": len(present),
        "discarded_by_limit": int(over_limit.sum()),
        "jain": {"gpu_s": jain(served_s[present]), "slowdown": jain(slowdown[done > 0])},
        "rows": rows,
        "rows_left_out": len(present) - len(rows),
    }
