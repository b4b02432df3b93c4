"""The placement of ControlNets on servers as a mixed-integer program, and the naive ones that it is held against."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from sim.core.errors import ConfigError
from sim.plan.placement.demand import Demand

LIGHT = 1e-3
"""Of the seconds that a request waits for another of its own ControlNets, what an even load is worth beside them."""

NODES = 100
"""Of the search tree at most: a bound in work and not in time, so that the answer is always the same."""

GAP = 0.05
"""How far the answer may be above the best, relative: placements that are as good are many, and proving it is slow."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What lies on each server and how the calls of each ControlNet are divided.

    ``share`` is the share of a ControlNet's calls that goes to each server, 1 together; ``load`` the share of its time
    that each server is busy; ``turns_s`` the mean seconds that a request's ControlNets wait for one another.
    """

    share: Mapping[str, tuple[float, ...]]
    load: tuple[float, ...]
    turns_s: float

    @property
    def servers(self) -> list[list[str]]:
        """The ControlNets on each server, as ``executor.steps.controlnets.placement`` takes them."""
        return [[name for name, shares in self.share.items() if shares[at] > 1e-6] for at in range(len(self.load))]

    @property
    def copies(self) -> int:
        """How often a ControlNet lies somewhere."""
        return sum(len(names) for names in self.servers)


def judged(demand: Demand, share: Mapping[str, Sequence[float]]) -> Placement:
    """What a division of the calls comes to."""
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
    """The naive choice: the most called have a server of their own, and the last server has the rest."""
    return _by_rank(demand, servers, lambda rank: min(rank, servers - 1))


def in_turn(demand: Demand, servers: int) -> Placement:
    """As many on each server: dealt out by how often they are called."""
    return _by_rank(demand, servers, lambda rank: rank % servers)


def _by_rank(demand: Demand, servers: int, at: Callable[[int], int]) -> Placement:
    return judged(demand, {name: np.eye(servers)[at(rank)].tolist() for rank, name in enumerate(demand.load)})


def fewest(demand: Demand, limit: float) -> int:
    """Servers below which some would be busy for more than ``limit`` of the time, whatever lies where."""
    return max(1, math.ceil(sum(demand.load.values()) / limit - 1e-9))


def solve(demand: Demand, servers: int, limit: float, room: int) -> Placement | None:
    """The placement that has requests wait least for their own ControlNets, and among those the most even.

    Each server is busy for at most ``limit`` of its time and holds at most ``room`` ControlNets; calls of one that lies
    on several are divided. Minimises

        sum over pairs (i, j) that are called together, and servers s, of rate_ij call_s max(x_is + x_js - 1, 0)
        + LIGHT x (the largest load + 1 / room of it for each copy)

    over shares x_is, 0 to 1, which need a copy, y_is, 0 or 1. With single copies the first term is exact; of divided
    calls it takes the best that a router could make of them.

    Returns None where no placement is within the limits. Raises ConfigError where the solver did not end.
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
        if s:  # servers are alike: the first is the busiest
            both = [*x[:, s - 1].tolist(), *x[:, s].tolist()]
            rows.append((both, [*rho.tolist(), *(-rho).tolist()], 0.0, np.inf))
    for p, (one, other) in enumerate(pairs):
        for s in range(servers):
            ends = [x[place[one], s], x[place[other], s], o[p, s]]
            rows.append((ends, [1.0, 1.0, -1.0], -np.inf, 1.0))
    cost = np.zeros(top + 1)
    waits = np.array([rate * demand.call_s / demand.rate_hz for rate in pairs.values()])
    cost[o] = waits[:, None]
    cost[top] = LIGHT * demand.call_s
    cost[y] = LIGHT * demand.call_s / (room * nets * servers)
    upper, whole = np.ones(top + 1), np.zeros(top + 1)
    upper[top], whole[y] = limit, 1
    indices, values, low, high = zip(*rows, strict=True)
    at = np.repeat(np.arange(len(rows)), [len(each) for each in indices])
    sums = csr_array((np.concatenate(values), (at, np.concatenate(indices))), shape=(len(rows), top + 1))
    found = milp(
        cost / (LIGHT * demand.call_s),  # of the order of one, which the solver's own tolerances are for
        integrality=whole,
        bounds=Bounds(0.0, upper),
        constraints=LinearConstraint(sums, low, high),
        options={"node_limit": NODES, "mip_rel_gap": GAP},
    )
    if found.status == 2:
        return None
    if found.x is None:
        raise ConfigError(
            f"plan placement: the solver did not end ({found.message}); take fewer ControlNets or servers"
        )
    shares = np.where(found.x[y] > 0.5, np.clip(found.x[x], 0.0, 1.0), 0.0)
    shares /= shares.sum(1, keepdims=True)
    return judged(demand, {name: shares[i].tolist() for i, name in enumerate(names)})
