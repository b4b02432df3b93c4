"""Placement of ControlNets on servers as a mixed-integer program, and the naive placements to compare with.

The demand is of sets of ControlNets that requests call together.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from mezzotint.settings.suggest import suggest
from mezzotint.sim.core.errors import ConfigError
from mezzotint.traces.describe.loads import addon_combinations
from mezzotint.traces.sources.file import read_any
from mezzotint.traces.synthetic.addons import service as published_service
from mezzotint.traces.synthetic.published import published

BALANCE_WEIGHT = 1e-3
"""Weight of an even load in the objective, relative to seconds that a request waits for its own ControlNets."""

MAX_NODES = 100
"""Bound of the search tree: in work and not in time, so that the answer is always the same."""

GAP = 0.05
"""Relative distance from the optimum that suffices: many placements are as good, and proving it is slow."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Calls of ControlNets by the requests of a service.

    Attributes:
        together: sets of names that a request calls at every step, with their requests per second, most first.
        call_s: seconds of a server for one ControlNet over all steps of a request.
    """

    together: tuple[tuple[tuple[str, ...], float], ...]
    call_s: float

    @property
    def load(self) -> dict[str, float]:
        """Number of servers that each ControlNet's calls keep busy, by name, the most called first."""
        load: dict[str, float] = defaultdict(float)
        for names, rate in self.together:
            for name in names:
                load[name] += rate * self.call_s
        return dict(sorted(load.items(), key=lambda pair: (-pair[1], pair[0])))

    @property
    def pairs(self) -> dict[tuple[str, str], float]:
        """Requests per second that call both of a pair, by the two names in their order."""
        pairs: dict[tuple[str, str], float] = defaultdict(float)
        for names, rate in self.together:
            for pair in combinations(sorted(names), 2):
                pairs[pair] += rate
        return pairs

    @property
    def rate_hz(self) -> float:
        """Requests per second, including those that call no ControlNet."""
        return sum(rate for _, rate in self.together)

    def head(self, count: int) -> "Demand":
        """Return the demand of the ``count`` most called ControlNets."""
        kept = set(list(self.load)[:count])
        return Demand(
            _merge(([name for name in names if name in kept], rate) for names, rate in self.together), self.call_s
        )


def find_demand(service: str | None, trace: Path | None, rate_rpm: float | None, call_s: float) -> Demand:
    """Return the demand of a synthetic service or of a trace's file, at ``rate_rpm`` or the trace's own rate.

    Raises ConfigError: there is no such service, no ControlNet, or no rate.
    """
    if service is not None and trace is None:
        known = published("services")
        if service not in known:
            raise ConfigError(f"--service: found {service!r}; {suggest(service, known)}")
        if rate_rpm is None:
            raise ConfigError(f"--service {service}: has no request rate of its own; give --rate-rpm")
        names, weights = published_service(known[service], service).combinations()
        shares = list(zip(map(tuple, names), map(float, weights), strict=True))
    elif trace is not None and service is None:
        table = read_any(trace)
        shares = addon_combinations(table.table.column("controlnets"))
        if not any(names for names, _ in shares):
            raise ConfigError(f"trace {table.name}: no request asks for a ControlNet; take a trace with add-ons")
        if rate_rpm is None:
            if not table.span_s > 0:
                raise ConfigError(f"trace {table.name}: all requests arrive at one time; give --rate-rpm")
            rate_rpm = (len(table) - 1) / table.span_s * 60.0
    else:
        raise ConfigError("plan placement: expected one of --service and --trace")
    return Demand(tuple((names, share * rate_rpm / 60.0) for names, share in _merge(shares)), call_s)


def _merge(parts: Iterable[tuple[Sequence[str], float]]) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Sum the shares or rates of equal sets of names; the largest first."""
    merged: dict[tuple[str, ...], float] = defaultdict(float)
    for names, part in parts:
        merged[tuple(sorted(set(names)))] += part
    return tuple(sorted(merged.items(), key=lambda pair: (-pair[1], pair[0])))


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
    def override(self) -> str:
        """The override that places the ControlNets so in a run."""
        servers = ",".join(f"[{','.join(names)}]" for names in self.servers)
        return f"controlnet_placement.placement=[{servers}]"

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


def naive_placements(demand: Demand, servers: int) -> dict[str, Placement]:
    """Return placements to compare with.

    "one each" gives each of the most called ControlNets a server of its own, and the last server all others. "in turn"
    deals them out, the most called first.
    """
    ranks, one_server = range(len(demand.load)), np.eye(servers).tolist()
    rules = {"one each": [min(rank, servers - 1) for rank in ranks], "in turn": [rank % servers for rank in ranks]}
    return {
        rule: evaluate(demand, {name: one_server[at] for name, at in zip(demand.load, places, strict=True)})
        for rule, places in rules.items()
    }


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
    index = {name: i for i, name in enumerate(names)}
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
            ends = [x[index[one], s], x[index[other], s], o[p, s]]
            rows.append((ends, [1.0, 1.0, -1.0], -np.inf, 1.0))
    cost = np.zeros(top + 1)
    waits = np.array([rate * demand.call_s / demand.rate_hz for rate in pairs.values()])
    cost[o] = waits[:, None]
    cost[top] = BALANCE_WEIGHT * demand.call_s
    cost[y] = BALANCE_WEIGHT * demand.call_s / (room * nets * servers)
    upper, integral = np.ones(top + 1), np.zeros(top + 1)
    upper[top], integral[y] = limit, 1
    columns, values, low, high = zip(*rows, strict=True)
    at = np.repeat(np.arange(len(rows)), list(map(len, columns)))
    sums = csr_array((np.concatenate(values), (at, np.concatenate(columns))), shape=(len(rows), top + 1))
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
