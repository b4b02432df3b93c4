"""Add-ons on the nodes of a service: what is used together, and loads by a cache on each node, by size and policy."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.describe.arrays import Indices
from mezzotint.traces.table.nodes import nodes
from mezzotint.traces.table.trace import Trace

KINDS = ("controlnets", "loras")

SIZES = (1, 2, 4, 5, 8, 10)
"""Sizes of the caches in add-ons, those of Katz's Figure 7."""

MAX_COMBINATIONS = 6

Policy = Literal["lru", "lfu"]


@dataclass(slots=True)
class Cache:
    """A cache of add-ons that evicts the least recently used item ("lru"), or the least frequently used one ("lfu").

    A count of uses starts at 1 when an item enters and is lost when it is evicted. Among equally used items the least
    recently used one goes first.

    Source: Katz's artifact, trace/adapter_loading_analysis.py, whose LFU counts the same way.
    """

    size: int
    policy: Policy = "lru"
    _uses: dict[Hashable, int] = field(init=False, default_factory=dict, repr=False)
    """Uses of each item in the cache, the least recently used item first."""

    def use(self, item: Hashable) -> bool:
        """Look up `item` and load it if absent. Returns True if it was found."""
        kept, uses = self._uses, self._uses.pop(item, 0)
        if not uses and len(kept) == self.size:
            del kept[next(iter(kept)) if self.policy == "lru" else min(kept, key=kept.__getitem__)]
        kept[item] = uses + 1
        return uses > 0


@dataclass(frozen=True, slots=True)
class Lookups:
    """Add-ons that the requests of a trace look up in the cache of their node, in order.

    Attributes:
        requests: number of requests, those without add-ons included.
        nodes: for each node, the numbers of the add-ons looked up, in order.
    """

    requests: int
    nodes: list[list[int]]

    @property
    def distinct(self) -> int:
        """Distinct add-ons of each node, summed over nodes: the loads of caches without a bound."""
        return sum(len(set(items)) for items in self.nodes)

    @property
    def total(self) -> int:
        """Number of lookups, hits and misses."""
        return sum(len(items) for items in self.nodes)

    def loads(self, size: int, policy: Policy) -> float:
        """Return the loads per request with one `Cache` per node."""
        loads = 0
        for items in self.nodes:
            cache = Cache(size, policy)
            loads += sum(not cache.use(item) for item in items)
        return loads / max(self.requests, 1)


def lookups(trace: Trace, kind: str) -> Lookups | None:
    """Return the lookups of the requests of `trace`, in order; None if the source has no such column.

    Args:
        kind: one of `KINDS`. A trace without nodes counts as one node.
    """
    column = trace.table.column(kind)
    if column.null_count == len(column):
        return None
    known = nodes(trace.table.column("request_id"))
    return lookups_on_nodes(np.zeros(len(trace), np.int64) if known is None else known, column)


def lookups_on_nodes(node: Indices, lists: pa.Array | pa.ChunkedArray) -> Lookups:
    """Return the lookups of requests on nodes `node`, (n,) numbers, for `lists`, (n,) lists of names, null for none."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    items, _ = pd.factorize(pc.list_flatten(lists).to_pandas())
    node_of = np.repeat(node, lengths)
    items = items[np.argsort(node_of, kind="stable")]
    ends = np.cumsum(np.bincount(node_of, minlength=int(node.max(initial=0)) + 1))
    return Lookups(len(node), [part.tolist() for part in np.split(items, ends[:-1])])


def addon_combinations(column: pa.ChunkedArray) -> list[tuple[tuple[str, ...], float]]:
    """Return the lists of names used together and their shares of the requests with a known list, largest first."""
    known = column.drop_null()
    counts = tally(pc.binary_join(known, "\0"))
    return [(tuple(names.split("\0")) if names else (), count / len(known)) for names, count in counts]


def tally(texts: pa.ChunkedArray) -> list[tuple[str, int]]:
    """Return distinct texts and their counts, the most frequent first, ties in alphabetical order."""
    counts = ((row["values"], row["counts"]) for row in pc.value_counts(texts).to_pylist())
    return sorted(counts, key=lambda pair: (-pair[1], pair[0]))


def addons(trace: Trace) -> dict[str, Any] | None:
    """Return statistics of add-ons beyond their popularity, JSON-able; None if the trace names no add-ons.

    These are the requests per node, the ControlNets used together and, by kind, the loads per request of an LRU cache
    on each node, by its size in add-ons.
    """
    used = {kind: asked for kind in KINDS if (asked := lookups(trace, kind)) and asked.total}
    if not used:
        return None
    node = nodes(trace.table.column("request_id"))
    count = None if node is None else np.bincount(node)
    combinations = addon_combinations(trace.table.column("controlnets"))[:MAX_COMBINATIONS]
    return {
        "nodes": None
        if count is None
        else {"count": len(count), "requests_median": float(np.median(count)), "requests_max": int(count.max())},
        "together": {" + ".join(names) or "none": share for names, share in combinations},
    } | {
        kind: {
            "distinct_per_request_of_a_node": asked.distinct / max(asked.requests, 1),
            "loads_per_request": {str(size): asked.loads(size, "lru") for size in SIZES},
        }
        for kind, asked in used.items()
    }
