"""What is asked of ControlNet servers: which ControlNets are called together, how often, and for how long."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from sim.core.errors import ConfigError
from traces.describe.loads import addon_combinations
from traces.synthetic.addons import service
from traces.synthetic.published import published
from traces.table.trace import Trace


@dataclass(frozen=True, slots=True)
class Demand:
    """Calls of ControlNets by the requests of a service.

    ``together`` has the names that a request calls at every step, with the requests per second that do, most first;
    ``call_s`` is the seconds of a server for one ControlNet over all steps of a request.
    """

    together: tuple[tuple[tuple[str, ...], float], ...]
    call_s: float

    @property
    def load(self) -> dict[str, float]:
        """By name: servers that its calls keep busy, the most called first."""
        found: dict[str, float] = defaultdict(float)
        for names, rate in self.together:
            for name in names:
                found[name] += rate * self.call_s
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    @property
    def pairs(self) -> dict[tuple[str, str], float]:
        """By pair of names, in their order: requests per second that call both."""
        found: dict[tuple[str, str], float] = defaultdict(float)
        for names, rate in self.together:
            for one, other in combinations(sorted(names), 2):
                found[one, other] += rate
        return found

    @property
    def rate_hz(self) -> float:
        """Requests per second, those that call nothing included."""
        return sum(rate for _, rate in self.together)


def of_service(name: str, rate_rpm: float, call_s: float) -> Demand:
    """The demand of a synthetic service. Raises ConfigError for one that is not known."""
    known = published("services")
    if name not in known:
        raise ConfigError(f"--service: found {name!r}, expected one of {', '.join(known)}")
    names, shares = service(known[name], name).combinations()
    return _of_shares(zip(names, map(float, shares), strict=True), rate_rpm, call_s)


def of_trace(trace: Trace, rate_rpm: float | None, call_s: float) -> Demand:
    """The demand of a trace, at its own rate unless told another. Raises ConfigError for no ControlNets or no rate."""
    shares = addon_combinations(trace.table.column("controlnets"))
    if not any(names for names, _ in shares):
        raise ConfigError(f"trace {trace.name}: no request asks for a ControlNet; take a trace with add-ons")
    if rate_rpm is None:
        if not trace.span_s > 0:
            raise ConfigError(f"trace {trace.name}: all requests come at one time; say --rate-rpm")
        rate_rpm = (len(trace) - 1) / trace.span_s * 60.0
    return _of_shares(shares, rate_rpm, call_s)


def head(demand: Demand, most: int) -> Demand:
    """The demand of the ``most`` ControlNets that are called most."""
    kept = set(list(demand.load)[:most])
    called = ((tuple(name for name in names if name in kept), rate) for names, rate in demand.together)
    return Demand(_merged(called), demand.call_s)


def _of_shares(shares: Iterable[tuple[Sequence[str], float]], rate_rpm: float, call_s: float) -> Demand:
    return Demand(tuple((names, share * rate_rpm / 60.0) for names, share in _merged(shares)), call_s)


def _merged(parts: Iterable[tuple[Sequence[str], float]]) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Sum what is said of the same names, whatever their order; the most first."""
    merged: dict[tuple[str, ...], float] = defaultdict(float)
    for names, part in parts:
        merged[tuple(sorted(set(names)))] += part
    return tuple(sorted(merged.items(), key=lambda pair: (-pair[1], pair[0])))
