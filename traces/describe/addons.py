"""ControlNets and LoRAs as the nodes of a service meet them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.describe.loads import KINDS, Lookups, lookups, per_request, together
from traces.table.nodes import nodes
from traces.table.trace import Trace

SIZES = (1, 2, 4, 5, 8, 10)
"""Of the caches, in things; those of Katz's Figure 7."""

SHOWN = 6


@dataclass(frozen=True, slots=True)
class AddOns:
    """Add-ons beyond their popularity.

    Attributes:
        nodes: requests of each node, (nodes,), the busiest first; None where the trace tells none.
        together: ControlNets that are used together and their share, the most frequent first.
        asked: by kind, what is looked for on each node.
    """

    nodes: npt.NDArray[np.int64] | None
    together: list[tuple[tuple[str, ...], float]]
    asked: dict[str, Lookups]

    def facts(self) -> dict[str, Any]:
        """The numbers, JSON-able: loads per request are those of an LRU cache on each node, by its size in things."""
        found: dict[str, Any] = {
            "nodes": None
            if self.nodes is None
            else {
                "count": len(self.nodes),
                "requests_median": float(np.median(self.nodes)),
                "requests_max": int(self.nodes[0]),
            },
            "together": {" + ".join(names) or "none": share for names, share in self.together[:SHOWN]},
        }
        for kind, asked in self.asked.items():
            loads = per_request(asked, SIZES, "lru")
            found[kind] = {
                "distinct_per_request_of_a_node": asked.distinct / max(asked.requests, 1),
                "loads_per_request": {str(size): load for size, load in zip(SIZES, loads, strict=True)},
            }
        return found


def addons(trace: Trace) -> AddOns | None:
    """Measure a trace's add-ons; None where it tells of none."""
    asked = {kind: found for kind in KINDS if (found := lookups(trace, kind)) is not None and found.total}
    if not asked:
        return None
    known = nodes(trace.table.column("request_id"))
    count = None if known is None else np.sort(np.bincount(known.of))[::-1]
    return AddOns(count, together(trace.table.column("controlnets")), asked)
