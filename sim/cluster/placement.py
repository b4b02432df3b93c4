"""Placement of a fleet's models: which GPUs serve which, planned by popularity before the clock starts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.protocols import Placement

ROUNDING = 1e-9
"""Relative error of a sum of shares."""


@dataclass(slots=True)
class Static(Placement):
    """Each model has GPUs of its own, in number by its popularity, and its requests go nowhere else.

    Every model has a replica. Further ones go to the model with the most requests per replica: as many as the GPUs have
    memory for, and more while one has more requests than a GPU's share. They are packed with the same requests on each
    GPU, as far as that goes. The models of a GPU that has no memory for all of them swap there.
    """

    def place(self, gpus: int, shares: Mapping[str, float], slots: int) -> list[list[str]]:
        return _pack(shares, _replicas(shares, gpus, slots), gpus, slots)


@dataclass(slots=True)
class Pinned(Placement):
    """The most popular models are pinned to GPUs of their own; all others are served on demand by the other GPUs.

    The GPUs are divided by the requests of both, with at least one for each.

    Args:
        models: number of models that are pinned.

    Raises ConfigError with fewer than two GPUs.
    """

    models: Count = 4

    def place(self, gpus: int, shares: Mapping[str, float], slots: int) -> list[list[str]]:
        roles = list(shares)
        pinned = {role: shares[role] for role in roles[: self.models]}
        others = roles[self.models :]
        if not others:
            return Static().place(gpus, shares, slots)
        if gpus < 2:
            raise ConfigError("allocation: found cluster.count=1; pinned models and others need at least 2 GPUs")
        share = sum(pinned.values()) / sum(shares.values())
        of_pinned = min(max(round(gpus * share), 1), gpus - 1)
        # Each starts with others of the rest, so that more of them are resident somewhere.
        turns = [number * slots % len(others) for number in range(gpus - of_pinned)]
        return Static().place(of_pinned, pinned, slots) + [others[turn:] + others[:turn] for turn in turns]


def _replicas(shares: Mapping[str, float], gpus: int, slots: int) -> dict[str, int]:
    """Return the replicas of each model by highest averages (D'Hondt), one at least and one on each GPU at most."""
    replicas = dict.fromkeys(shares, 1)
    queue = [(-share / 2, order, role) for order, (role, share) in enumerate(shares.items()) if gpus > 1]
    heapify(queue)
    count, of_gpu = len(shares), sum(shares.values()) / gpus * (1 + ROUNDING)
    while queue and (count < gpus * slots or max(shares[role] / replicas[role] for _, _, role in queue) > of_gpu):
        _, order, role = heappop(queue)
        replicas[role] += 1
        count += 1
        if replicas[role] < gpus:
            heappush(queue, (-shares[role] / (replicas[role] + 1), order, role))
    return replicas


def _pack(shares: Mapping[str, float], replicas: Mapping[str, int], gpus: int, slots: int) -> list[list[str]]:
    """Return the models of each GPU, the most popular first."""
    of_gpu = _packed(shares, replicas, gpus, lambda load, held: (held >= slots, load))
    if max(map(len, of_gpu)) > slots and sum(replicas.values()) <= gpus * slots:
        # The GPUs with the most slots left take each model, which fits all of them (Gale and Ryser).
        of_gpu = _packed(shares, replicas, gpus, lambda load, held: (held, load))
    return [sorted(roles, key=lambda role: -shares[role]) for roles in of_gpu]


def _packed(
    shares: Mapping[str, float],
    replicas: Mapping[str, int],
    gpus: int,
    rank: Callable[[float, int], tuple[float, float]],
) -> list[list[str]]:
    """Place each replica, those with the most requests first, on the GPU of the lowest ``rank`` of load and models."""
    of_gpu: list[list[str]] = [[] for _ in range(gpus)]
    load = [0.0] * gpus
    for role in sorted(shares, key=lambda role: -shares[role] / replicas[role]):
        ranks = sorted(range(gpus), key=lambda number: (rank(load[number], len(of_gpu[number])), number))
        for number in ranks[: replicas[role]]:
            of_gpu[number].append(role)
            load[number] += shares[role] / replicas[role]
    return of_gpu
