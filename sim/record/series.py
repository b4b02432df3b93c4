"""The cluster over time: the table of cluster.parquet."""

from array import array

import pyarrow as pa


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

    def table(self) -> pa.Table:
        """Columns time_s, arrived, ended, in_system, queued and busy."""
        arrived = pa.array(self.arrived, pa.int64())
        in_system = pa.array(self.in_system, pa.int64())
        ended = [a - b for a, b in zip(self.arrived, self.in_system, strict=True)]
        return pa.table(
            {
                "time_s": pa.array(self.time_s, pa.float64()),
                "arrived": arrived,
                "ended": pa.array(ended, pa.int64()),
                "in_system": in_system,
                "queued": pa.array(self.queued, pa.int64()),
                "busy": pa.array(self.busy, pa.int64()),
            }
        )
