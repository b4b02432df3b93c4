"""The demand on ControlNet servers: sets of ControlNets called together, their rates and the time of a call."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from mezzotint.sim.core.errors import ConfigError
from mezzotint.traces.describe.loads import addon_combinations
from mezzotint.traces.synthetic.addons import service
from mezzotint.traces.synthetic.published import published
from mezzotint.traces.table.trace import Trace


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
            for one, other in combinations(sorted(names), 2):
                pairs[one, other] += rate
        return pairs

    @property
    def rate_hz(self) -> float:
        """Requests per second, including those that call no ControlNet."""
        return sum(rate for _, rate in self.together)


def of_service(name: str, rate_rpm: float, call_s: float) -> Demand:
    """Return the demand of a synthetic service. Raises ConfigError for an unknown one."""
    known = published("services")
    if name not in known:
        raise ConfigError(f"--service: found {name!r}, expected one of {', '.join(known)}")
    names, shares = service(known[name], name).combinations()
    return _of_shares(zip(names, map(float, shares), strict=True), rate_rpm, call_s)


def of_trace(trace: Trace, rate_rpm: float | None, call_s: float) -> Demand:
    """Return the demand of a trace, at ``rate_rpm`` or its own rate.

    Raises:
        ConfigError: the trace has no ControlNets, or ``rate_rpm`` is None and it has no rate.
    """
    shares = addon_combinations(trace.table.column("controlnets"))
    if not any(names for names, _ in shares):
        raise ConfigError(f"trace {trace.name}: no request asks for a ControlNet; take a trace with add-ons")
    if rate_rpm is None:
        if not trace.span_s > 0:
            raise ConfigError(f"trace {trace.name}: all requests arrive at one time; give --rate-rpm")
        rate_rpm = (len(trace) - 1) / trace.span_s * 60.0
    return _of_shares(shares, rate_rpm, call_s)


def head(demand: Demand, count: int) -> Demand:
    """Return the demand of the ``count`` most called ControlNets."""
    kept = set(list(demand.load)[:count])
    called = ((tuple(name for name in names if name in kept), rate) for names, rate in demand.together)
    return Demand(_merged(called), demand.call_s)


def _of_shares(shares: Iterable[tuple[Sequence[str], float]], rate_rpm: float, call_s: float) -> Demand:
    return Demand(tuple((names, share * rate_rpm / 60.0) for names, share in _merged(shares)), call_s)


def _merged(parts: Iterable[tuple[Sequence[str], float]]) -> tuple[tuple[tuple[str, ...], float], ...]:
    """Sum the shares or rates of equal sets of names; the largest first."""
    merged: dict[tuple[str, ...], float] = defaultdict(float)
    for names, part in parts:
        merged[tuple(sorted(set(names)))] += part
    return tuple(sorted(merged.items(), key=lambda pair: (-pair[1], pair[0])))
