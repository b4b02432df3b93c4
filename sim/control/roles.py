"""Roles of workers: count them, and order workers to change theirs."""

from collections.abc import Callable, Mapping
from operator import attrgetter

from mezzotint.sim.protocols import Cluster, Controller


class RoleController(Controller):
    """A controller that orders GPUs from one role to another."""

    __slots__ = ()


class HitSplitter(RoleController):
    """A controller that splits GPUs between misses on a large model and hits on a small one."""

    __slots__ = ()

    def leaves_one_small(self) -> bool:
        """Return True if it never orders the last GPU with a small model elsewhere."""
        return False


def role_gauge(cluster: Cluster, role: str) -> Callable[[float], float]:
    """Return a gauge of the number of GPUs that serve ``role`` or are changing to it."""
    return lambda _: cluster.roles().count(role)


def apply_split(cluster: Cluster, split: Mapping[str, int], now_s: float, kind: str | None = None) -> None:
    """Order the workers with the fewest running requests to change role until ``split`` is met.

    A worker that changes role drains and loads (Cluster.change_role).

    Args:
        split: GPUs by role, which must add up to those of the cluster, or of ``kind``.
        kind: name of the kind of GPU whose workers are split; None is all.
    """
    workers = [worker for worker in cluster.workers if kind is None or worker.gpu.name == kind]
    roles = [worker.role for worker in workers]
    surplus = {role: roles.count(role) - split.get(role, 0) for role in {*roles, *split}}
    wanted = [role for role in split for _ in range(-surplus[role])]
    for worker in sorted(workers, key=attrgetter("running")):
        if not wanted:
            return
        if surplus[worker.role] > 0:
            surplus[worker.role] -= 1
            cluster.change_role(worker, wanted.pop(0), now_s)
