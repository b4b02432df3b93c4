"""How many add-ons a cache on each node would have to load, by its size and by what leaves it."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from traces.table.nodes import nodes
from traces.table.trace import Trace

Indices = npt.NDArray[np.int64]

KINDS = ("controlnets", "loras")

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
    """By item in the cache, the least recently used first."""

    def use(self, item: Hashable) -> bool:
        """Look up `item`, and load it where it is absent; return whether it was found."""
        kept, uses = self._uses, self._uses.pop(item, 0)
        if not uses and len(kept) == self.size:
            del kept[next(iter(kept)) if self.policy == "lru" else min(kept, key=kept.__getitem__)]
        kept[item] = uses + 1
        return uses > 0


@dataclass(frozen=True, slots=True)
class Lookups:
    """What the requests of a trace look for in the cache of their node, one thing after another.

    Attributes:
        requests: how many requests there are, those that look for nothing included.
        nodes: of each node the things that are looked for, by number, in order.
    """

    requests: int
    nodes: list[list[int]]

    @property
    def distinct(self) -> int:
        """Different things on each node, summed over nodes: the loads of caches that hold everything."""
        return sum(len(set(asked)) for asked in self.nodes)

    @property
    def total(self) -> int:
        """Things that are looked for, found or not."""
        return sum(len(asked) for asked in self.nodes)

    def loads(self, size: int, policy: Policy) -> float:
        """Loads per request of one `Cache` a node."""
        loads = 0
        for asked in self.nodes:
            cache = Cache(size, policy)
            loads += sum(not cache.use(thing) for thing in asked)
        return loads / max(self.requests, 1)


def lookups(trace: Trace, kind: str) -> Lookups | None:
    """What each request of `trace` looks for, in its order; None where the source does not say.

    Args:
        kind: one of `KINDS`. Where the trace tells no nodes there is one.
    """
    column = trace.table.column(kind)
    if column.null_count == len(column):
        return None
    known = nodes(trace.table.column("request_id"))
    return lookups_on_nodes(np.zeros(len(trace), np.int64) if known is None else known, column)


def lookups_on_nodes(node: Indices, lists: pa.Array | pa.ChunkedArray) -> Lookups:
    """What requests on the nodes numbered `node`, (n,), look for: (n,) lists of names, null for none."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    things, _ = pd.factorize(pc.list_flatten(lists).to_pandas())
    asked_on = np.repeat(node, lengths)
    things = things[np.argsort(asked_on, kind="stable")]
    ends = np.cumsum(np.bincount(asked_on, minlength=int(node.max(initial=0)) + 1))
    return Lookups(len(node), [asked.tolist() for asked in np.split(things, ends[:-1])])


def addon_combinations(column: pa.ChunkedArray) -> list[tuple[tuple[str, ...], float]]:
    """Which are used together: lists of names and their shares of the requests whose list is known, most first."""
    known = column.drop_null()
    counts = tally(pc.binary_join(known, "\0"))
    return [(tuple(names.split("\0")) if names else (), count / len(known)) for names, count in counts]


def tally(texts: pa.ChunkedArray) -> list[tuple[str, int]]:
    """Distinct texts and how often each occurs, the most frequent first, equals in the order of the alphabet."""
    counts = ((each["values"], each["counts"]) for each in pc.value_counts(texts).to_pylist())
    return sorted(counts, key=lambda pair: (-pair[1], pair[0]))
