"""Loads per request of add-on caches, measured and simulated, by size and eviction policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mezzotint.settings.choice import choice
from mezzotint.sim.core.streams import stream
from mezzotint.sim.papers.study import Comparison, Results
from mezzotint.traces.describe.loads import KINDS, Lookups, Policy, lookups, lookups_on_nodes
from mezzotint.traces.synthetic.addons import service
from mezzotint.traces.synthetic.published import fitted_locality, published
from mezzotint.traces.table.trace import Trace

POLICIES: tuple[Policy, ...] = ("lru", "lfu")

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
"""Sizes of the caches, in add-ons."""

TOLERANCE = 0.05
"""Tolerance of --check in loads per request, as of target S25."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Loads per request of one service's caches of one kind of add-on.

    Attributes:
        measured: loads by size, LRU, as measured by Katz.
        made: loads at `sizes` by policy, predicted by the synthetic service.
        fitted: loads at `sizes` by policy, of a service whose locality is fitted to the measured LRU loads.
        all: distinct add-ons per request of a node, which even an unlimited cache loads.
    """

    service: str
    kind: str
    sizes: tuple[int, ...]
    measured: Mapping[int, float]
    made: Mapping[str, list[float]]
    fitted: Mapping[str, list[float]]
    all: float

    def at(self, size: int, how: Literal["made", "fitted"] = "made") -> float:
        """Return the loads per request of LRU at one of `sizes`."""
        loads: list[float] = getattr(self, how)["lru"]
        return loads[self.sizes.index(size)]


def measured() -> Mapping[str, Any]:
    """Return the measured points of conf/data/addon-loads.yaml."""
    return choice("data", "addon-loads")


def curves(sizes: Sequence[int] = SIZES, *, seed: int = 1, share: float = 1.0) -> list[Curve]:
    """Return the curves of services A and B, with ``share`` of their nodes and requests."""
    points = measured()
    sizes = tuple(sorted({*sizes, *points["sizes"]}))
    found = []
    for name in ("A", "B"):
        requests = int(points[name]["requests"] * share)
        made, fitted = (_lookups(name, requests, seed, share, law) for law in ({}, fitted_locality(name)))
        for kind in KINDS:
            by_size = dict(zip(points["sizes"], points[name][kind], strict=True))
            loads, fits = (_loads(of[kind], sizes) for of in (made, fitted))
            found.append(Curve(name, kind, sizes, by_size, loads, fits, made[kind].distinct / made[kind].requests))
    return found


def _loads(of: Lookups, sizes: Sequence[int]) -> dict[str, list[float]]:
    return {policy: [of.loads(size, policy) for size in sizes] for policy in POLICIES}


def of_trace(trace: Trace, name: str, sizes: Sequence[int] = SIZES) -> list[Curve]:
    """Return the curves of a trace's add-ons on each of its nodes, if it has any; nothing is measured."""
    found, ascending = [], tuple(sorted(sizes))
    for kind in KINDS:
        of = lookups(trace, kind)
        if of is not None and of.total:
            loads = _loads(of, ascending)
            found.append(Curve(name, kind, ascending, {}, loads, {}, of.distinct / of.requests))
    return found


def _lookups(name: str, requests: int, seed: int, share: float, given: Mapping[str, Any]) -> dict[str, Lookups]:
    """Draw the lookups by kind on the nodes of ``share`` of the synthetic service ``name``."""
    law = {**published("services")[name], **given}
    law["nodes"] = max(1, round(law["nodes"] * share))
    drawn = service(law, name).draw(requests, stream(seed, f"service {name}"))
    return {kind: lookups_on_nodes(drawn.node, getattr(drawn, kind)) for kind in KINDS}


def errors(found: Sequence[Curve]) -> dict[str, float]:
    """Return mean and largest absolute error of the LRU loads at the measured points, predicted and fitted."""
    points = [(curve, size, load) for curve in found for size, load in curve.measured.items()]
    off = [abs(curve.at(size) - load) for curve, size, load in points]
    fitted = [abs(curve.at(size, "fitted") - load) for curve, size, load in points]
    ours = {"mean": float(np.mean(off)), "largest": max(off)}
    return ours | {"fitted_mean": float(np.mean(fitted)), "fitted_largest": max(fitted)}


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare the predicted and the fitted LRU loads in the JSON file with each measured point."""
    found = {}
    for curve in facts["caches"]["curves"]:
        for size, measured in curve["measured"].items():
            for how, loads in (("made", curve["made"]["lru"]), ("fitted", curve["fitted"]["lru"])):
                ours = loads[curve["sizes"].index(int(size))]
                row = f"service {curve['service']}, {curve['kind']}, LRU of {size}, {how}"
                expected = f"{measured:.4g} loads per request within {TOLERANCE:g}"
                found[row] = Comparison(expected, f"{ours:.4g}", abs(ours - measured) <= TOLERANCE)
    return found
