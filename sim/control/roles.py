"""Roles of workers: count them, and order workers to change theirs."""

from collections import Counter
from collections.abc import Mapping

from sim.protocols import Cluster


def gpus_in_role(cluster: Cluster, role: str, now_s: float = 0.0) -> int:
    """Return the number of GPUs that serve ``role`` or are changing to it."""
    return [worker.role for worker in cluster.workers].count(role)


def apply_split(cluster: Cluster, split: Mapping[str, int], now_s: float, kind: str | None = None) -> None:
    """Order the workers with the fewest running requests to change role until ``split`` is met.

    A worker that changes role drains and loads (Cluster.change_role).

    Args:
        split: GPUs by role, which must add up to those of the cluster, or of ``kind``.
        kind: name of the kind of GPU whose workers are split; None is all.
    """
    workers = [worker for worker in cluster.workers if kind in (None, worker.gpu.name)]
    counts = Counter(worker.role for worker in workers)
    wanted = [role for role, count in split.items() for _ in range(count - counts[role])]
    for worker in sorted(workers, key=lambda worker: worker.running):
        if wanted and counts[worker.role] > split.get(worker.role, 0):
            counts[worker.role] -= 1
            cluster.change_role(worker, wanted.pop(0), now_s)
