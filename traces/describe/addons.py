"""ControlNets and LoRAs as the nodes of a service meet them."""

from typing import Any

import numpy as np

from traces.describe.loads import KINDS, addon_combinations, lookups
from traces.table.nodes import nodes
from traces.table.trace import Trace

SIZES = (1, 2, 4, 5, 8, 10)
"""Of the caches, in things; those of Katz's Figure 7."""

SHOWN = 6


def addons(trace: Trace) -> dict[str, Any] | None:
    """Return facts about add-ons beyond their popularity, JSON-able; None where the trace tells of none.

    They are the requests of each node, which ControlNets are used together, and by kind the loads per request of an
    LRU cache on each node, by its size in things.
    """
    asked = {kind: own for kind in KINDS if (own := lookups(trace, kind)) is not None and own.total}
    if not asked:
        return None
    known = nodes(trace.table.column("request_id"))
    count = None if known is None else np.bincount(known)
    found: dict[str, Any] = {
        "nodes": None
        if count is None
        else {"count": len(count), "requests_median": float(np.median(count)), "requests_max": int(count.max())},
        "together": {
            " + ".join(names) or "none": share
            for names, share in addon_combinations(trace.table.column("controlnets"))[:SHOWN]
        },
    }
    for kind, looked in asked.items():
        found[kind] = {
            "distinct_per_request_of_a_node": looked.distinct / max(looked.requests, 1),
            "loads_per_request": {str(size): looked.loads(size, "lru") for size in SIZES},
        }
    return found
