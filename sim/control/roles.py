"""Bringing the cluster to a split: which workers change their role."""

from collections import Counter
from collections.abc import Mapping

from sim.protocols import Cluster


def serving(cluster: Cluster, role: str, now_s: float = 0.0) -> int:
    """GPUs that serve ``role`` or are on the way to."""
    return sum(worker.role == role for worker in cluster.workers)


def bring(cluster: Cluster, split: Mapping[str, int], now_s: float) -> None:
    """Order workers until as many serve each role as ``split`` says, which must add up to the cluster: those with the
    fewest requests aboard change; what changes drains and loads (Cluster.change_role)."""
    there = Counter(worker.role for worker in cluster.workers)
    wanted = [role for role, count in split.items() for _ in range(count - there[role])]
    for worker in sorted(cluster.workers, key=lambda worker: worker.running):
        if wanted and there[worker.role] > split.get(worker.role, 0):
            there[worker.role] -= 1
            cluster.change_role(worker, wanted.pop(0), now_s)
