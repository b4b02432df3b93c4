"""Loads of a worker as busy time."""

from mezzotint.sim.protocols import Cluster, Loads, Worker


def record_loads(cluster: Cluster, worker: Worker, loads: Loads, from_s: float, until_s: float) -> tuple[float, float]:
    """Record ``loads`` from ``from_s`` to at most ``until_s``; return when they ended, and their joules."""
    joules = 0.0
    for kind, cost in loads:
        # The end of the stage was summed in another order, and may be a rounding error earlier.
        done_s = min(from_s + cost.seconds, until_s)
        joules += cluster.record_busy(worker, from_s, done_s, kind, cost.joules)
        from_s = done_s
    return from_s, joules
