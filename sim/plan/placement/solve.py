"""Placement of ControlNets on servers as a mixed-integer program, and the naive placements to compare with."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.plan.placement.demand import Demand

BALANCE_WEIGHT = 1e-3
"""Weight of an even load in the objective, relative to seconds that a request waits for its own ControlNets."""

MAX_NODES = 100
"""Bound of the search tree: in work and not in time, so that the answer is always the same."""

GAP = 0.05
"""Relative distance from the optimum that suffices: many placements are as good, and proving it is slow."""


@dataclass(frozen=True, slots=True)
class Placement:
    """ControlNets on servers, and the division of each ControlNet's calls between its copies.

    Attributes:
        share: share of a ControlNet's calls that goes to each server; they sum to 1.
        load: share of its time that each server is busy.
        turns_s: mean seconds that a request's ControlNets wait for one another.
    """

    share: Mapping[str, tuple[float, ...]]
    load: tuple[float, ...]
    turns_s: float

    @property
    def servers(self) -> list[list[str]]:
        """The ControlNets on each server, in the form of ``controlnet_placement.placement``."""
        return [[name for name, shares in self.share.items() if shares[at] > 1e-6] for at in range(len(self.load))]

    @property
    def copies(self) -> int:
        """Number of loaded ControlNets over all servers."""
        return sum(len(names) for names in self.servers)


def evaluate(demand: Demand, share: Mapping[str, Sequence[float]]) -> Placement:
    """Return the placement that divides the calls by ``share``, with its loads and waits."""
    load = demand.load
    servers = len(next(iter(share.values())))
    busy = [sum(load[name] * share[name][at] for name in share) for at in range(servers)]
    waits = sum(
        rate * demand.call_s * max(share[one][at] + share[other][at] - 1.0, 0.0)
        for (one, other), rate in demand.pairs.items()
        for at in range(servers)
    )
    plain = {name: tuple(map(float, parts)) for name, parts in share.items()}
    return Placement(plain, tuple(busy), waits / demand.rate_hz)


def one_each(demand: Demand, servers: int) -> Placement:
    """Give each of the most called ControlNets a server of its own, and the last server all others."""
    return _by_rank(demand, servers, lambda rank: min(rank, servers - 1))


def in_turn(demand: Demand, servers: int) -> Placement:
    """Deal the ControlNets out to the servers in turn, the most called first."""
    return _by_rank(demand, servers, lambda rank: rank % servers)


def _by_rank(demand: Demand, servers: int, at: Callable[[int], int]) -> Placement:
    return evaluate(demand, {name: np.eye(servers)[at(rank)].tolist() for rank, name in enumerate(demand.load)})


def min_servers(demand: Demand, limit: float) -> int:
    """Return the number of servers below which no placement keeps each busy for at most ``limit`` of its time."""
    return max(1, math.ceil(sum(demand.load.values()) / limit - 1e-9))


def solve(demand: Demand, servers: int, limit: float, room: int) -> Placement | None:
    """Find the placement with the least waiting for a request's own ControlNets and, second, the most even load.

    Each server is busy for at most ``limit`` of its time and holds at most ``room`` ControlNets. The calls of a
    ControlNet on several servers are divided. The variables are shares x_is in [0, 1] and copies y_is in {0, 1}, with
    x <= y. This objective is minimised.

        sum over pairs (i, j) called together and servers s of rate_ij call_s max(x_is + x_js - 1, 0)
        + BALANCE_WEIGHT x (the largest load + 1 / room of it for each copy)

    With single copies the first term is exact. For divided calls it assumes the best possible router.

    Returns:
        None if no placement is within the limits.

    Raises:
        ConfigError: the solver did not end.
    """
    load, pairs = demand.load, demand.pairs
    names = list(load)
    nets, rho = len(names), np.array(list(load.values()))
    place = {name: at for at, name in enumerate(names)}
    # x, y: (nets, servers); o: (pairs, servers); the largest load
    x = np.arange(nets * servers).reshape(nets, servers)
    y = x + x.size
    o = np.arange(len(pairs) * servers).reshape(len(pairs), servers) + 2 * x.size
    top = 2 * x.size + o.size
    rows: list[tuple[list[int], list[float], float, float]] = []
    for i in range(nets):
        rows.append((x[i].tolist(), [1.0] * servers, 1.0, 1.0))
        rows += [([x[i, s], y[i, s]], [1.0, -1.0], -np.inf, 0.0) for s in range(servers)]
    for s in range(servers):
        rows.append((y[:, s].tolist(), [1.0] * nets, 0.0, float(room)))
        rows.append(([*x[:, s].tolist(), top], [*rho.tolist(), -1.0], -np.inf, 0.0))
        if s:  # servers are alike, so order them by load: fewer equal solutions to search
            both = [*x[:, s - 1].tolist(), *x[:, s].tolist()]
            rows.append((both, [*rho.tolist(), *(-rho).tolist()], 0.0, np.inf))
    for p, (one, other) in enumerate(pairs):
        for s in range(servers):
            ends = [x[place[one], s], x[place[other], s], o[p, s]]
            rows.append((ends, [1.0, 1.0, -1.0], -np.inf, 1.0))
    cost = np.zeros(top + 1)
    waits = np.array([rate * demand.call_s / demand.rate_hz for rate in pairs.values()])
    cost[o] = waits[:, None]
    cost[top] = BALANCE_WEIGHT * demand.call_s
    cost[y] = BALANCE_WEIGHT * demand.call_s / (room * nets * servers)
    upper, integral = np.ones(top + 1), np.zeros(top + 1)
    upper[top], integral[y] = limit, 1
    indices, values, low, high = zip(*rows, strict=True)
    at = np.repeat(np.arange(len(rows)), [len(each) for each in indices])
    sums = csr_array((np.concatenate(values), (at, np.concatenate(indices))), shape=(len(rows), top + 1))
    result = milp(
        cost / (BALANCE_WEIGHT * demand.call_s),  # near one, for which the solver's tolerances are made
        integrality=integral,
        bounds=Bounds(0.0, upper),
        constraints=LinearConstraint(sums, low, high),
        options={"node_limit": MAX_NODES, "mip_rel_gap": GAP},
    )
    if result.status == 2:
        return None
    if result.x is None:
        raise ConfigError(
            f"plan placement: the solver did not end ({result.message}); take fewer ControlNets or servers"
        )
    shares = np.where(result.x[y] > 0.5, np.clip(result.x[x], 0.0, 1.0), 0.0)
    shares /= shares.sum(1, keepdims=True)
    return evaluate(demand, {name: shares[i].tolist() for i, name in enumerate(names)})
