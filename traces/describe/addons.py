"""ControlNets and LoRAs by node of a service: popularity, combinations, loads of a cache."""

from typing import Any

import numpy as np

from mezzotint.traces.describe.loads import KINDS, addon_combinations, lookups
from mezzotint.traces.table.nodes import nodes
from mezzotint.traces.table.trace import Trace

SIZES = (1, 2, 4, 5, 8, 10)
"""Sizes of the caches in add-ons, those of Katz's Figure 7."""

MAX_COMBINATIONS = 6


def addons(trace: Trace) -> dict[str, Any] | None:
    """Return statistics of add-ons beyond their popularity, JSON-able; None if the trace names no add-ons.

    These are the requests per node, the ControlNets used together and, by kind, the loads per request of an LRU cache
    on each node, by its size in add-ons.
    """
    used = {kind: own for kind in KINDS if (own := lookups(trace, kind)) is not None and own.total}
    if not used:
        return None
    known = nodes(trace.table.column("request_id"))
    count = None if known is None else np.bincount(known)
    found: dict[str, Any] = {
        "nodes": None
        if count is None
        else {"count": len(count), "requests_median": float(np.median(count)), "requests_max": int(count.max())},
        "together": {
            " + ".join(names) or "none": share
            for names, share in addon_combinations(trace.table.column("controlnets"))[:MAX_COMBINATIONS]
        },
    }
    for kind, looked in used.items():
        found[kind] = {
            "distinct_per_request_of_a_node": looked.distinct / max(looked.requests, 1),
            "loads_per_request": {str(size): looked.loads(size, "lru") for size in SIZES},
        }
    return found
