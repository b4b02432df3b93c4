"""The cluster over time: the table of cluster.parquet."""

from array import array
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from sim.record.columns import HIT, NO_DATABASE, NO_STORE, Columns
from sim.reuse.outage import Outages


class Series:
    """A row for every sampling instant from the first arrival on; a pause in which nothing happens is one row."""

    def __init__(self) -> None:
        self.time_s = array("d")
        self.arrived = array("q")
        self.in_system = array("q")
        self.queued = array("q")
        self.busy = array("q")

    def sample(self, now_s: float, arrived: int, in_system: int, queued: int, busy: int) -> None:
        """The state at ``now_s``: requests that came so far, are in the system, and wait; GPUs at work."""
        self.time_s.append(now_s)
        self.arrived.append(arrived)
        self.in_system.append(in_system)
        self.queued.append(queued)
        self.busy.append(busy)

    def table(self, columns: Columns, outages: Mapping[str, Outages]) -> pa.Table:
        """Columns time_s, arrived, ended, in_system, queued, busy; lookups, hits, fallbacks; and <service>_up.

        ``lookups``, ``hits`` and ``fallbacks`` (a service was down) are of the requests that arrived so far: what
        comes of a lookup is settled at arrival. ``outages`` names the services; where there is none, as without a
        cache, their columns are null.
        """
        arrived, in_system = np.frombuffer(self.arrived, np.int64), np.frombuffer(self.in_system, np.int64)
        lookup = columns["lookup"]
        so_far = {
            "lookups": lookup > 0,
            "hits": lookup == HIT,
            "fallbacks": (lookup == NO_DATABASE) | (lookup == NO_STORE),
        }
        times_s = np.frombuffer(self.time_s)
        up = {
            f"{name}_up": pa.array(outages[name].up(times_s)) if name in outages else pa.nulls(len(times_s), pa.bool_())
            for name in ("database", "store")
        }
        return pa.table(
            {
                "time_s": pa.array(times_s),
                "arrived": pa.array(arrived),
                "ended": pa.array(arrived - in_system),
                "in_system": pa.array(in_system),
                "queued": pa.array(self.queued, pa.int64()),
                "busy": pa.array(self.busy, pa.int64()),
                **{name: pa.array(np.append(0, np.cumsum(those))[arrived]) for name, those in so_far.items()},
                **up,
            }
        )
