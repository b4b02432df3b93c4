"""Loads per request of caches of add-ons, measured and made, by size and by what leaves them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from conf.choice import choice
from sim.core.streams import stream
from sim.papers.verdicts import Judged, RequestColumns
from traces.describe.loads import KINDS, Lookups, Policy, lookups, lookups_on_nodes
from traces.synthetic.addons import service
from traces.synthetic.published import fitted_locality, published
from traces.table.trace import Trace

POLICIES: tuple[Policy, ...] = ("lru", "lfu")

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
"""Of the caches, in things."""

TOLERANCE = 0.05
"""Loads per request between ours and the measured ones that --check allows, as target S25 does."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Loads per request of one service's caches of one kind of add-on.

    Attributes:
        measured: size -> what Katz measured, LRU.
        made: policy -> loads at `sizes`, of the service's law: a prediction.
        fitted: policy -> loads at `sizes`, of a law whose locality is fitted to what was measured of LRU.
        all: different things per request of a node: what is loaded however large the cache.
    """

    service: str
    kind: str
    sizes: tuple[int, ...]
    measured: Mapping[int, float]
    made: Mapping[str, list[float]]
    fitted: Mapping[str, list[float]]
    all: float

    def at(self, size: int, how: Literal["made", "fitted"] = "made") -> float:
        """Loads per request of LRU at one of `sizes`."""
        loads: list[float] = getattr(self, how)["lru"]
        return loads[self.sizes.index(size)]


def measured() -> Mapping[str, Any]:
    """The measured points of conf/data/addon-loads.yaml."""
    return choice("data", "addon-loads")


def curves(sizes: Sequence[int] = SIZES, *, seed: int = 1, share: float = 1.0) -> list[Curve]:
    """The curves of services A and B, made and measured, with `share` of the nodes and requests that there were."""
    known = measured()
    sizes = tuple(sorted({*sizes, *known["sizes"]}))
    found = []
    for name in ("A", "B"):
        requests = int(known[name]["requests"] * share)
        asked, fitted = (_made(name, requests, seed, share, law) for law in ({}, fitted_locality(name)))
        for kind in KINDS:
            told = dict(zip(known["sizes"], known[name][kind], strict=True))
            loads, fits = (_loads(of[kind], sizes) for of in (asked, fitted))
            found.append(Curve(name, kind, sizes, told, loads, fits, asked[kind].distinct / asked[kind].requests))
    return found


def _loads(asked: Lookups, sizes: Sequence[int]) -> dict[str, list[float]]:
    return {policy: [asked.loads(size, policy) for size in sizes] for policy in POLICIES}


def of_trace(trace: Trace, name: str, sizes: Sequence[int] = SIZES) -> list[Curve]:
    """The curves of a trace's add-ons, of each of its nodes, where it tells any; nothing is measured."""
    found, ascending = [], tuple(sorted(sizes))
    for kind in KINDS:
        asked = lookups(trace, kind)
        if asked is not None and asked.total:
            loads = _loads(asked, ascending)
            found.append(Curve(name, kind, ascending, {}, loads, {}, asked.distinct / asked.requests))
    return found


def _made(name: str, requests: int, seed: int, share: float, given: Mapping[str, Any]) -> dict[str, Lookups]:
    """By kind, what is looked for on the nodes of `share` of the synthetic service `name`."""
    law = {**published("services")[name], **given}
    law["nodes"] = max(1, round(law["nodes"] * share))
    drawn = service(law, name).draw(requests, stream(seed, f"service {name}"))
    return {kind: lookups_on_nodes(drawn.node, getattr(drawn, kind)) for kind in KINDS}


def errors(found: Sequence[Curve]) -> dict[str, float]:
    """Mean and largest absolute error of the LRU loads over all measured points, predicted and fitted."""
    points = [(curve, size, load) for curve in found for size, load in curve.measured.items()]
    off = [abs(curve.at(size) - load) for curve, size, load in points]
    fitted = [abs(curve.at(size, "fitted") - load) for curve, size, load in points]
    ours = {"mean": float(np.mean(off)), "largest": max(off)}
    return ours | {"fitted_mean": float(np.mean(fitted)), "fitted_largest": max(fitted)}


def judged(facts: RequestColumns) -> dict[str, Judged]:
    """Return the verdicts of the page's JSON: every measured point beside the predicted and the fitted LRU loads."""
    found = {}
    for curve in facts["caches"]["curves"]:
        for size, measured in curve["measured"].items():
            for how, loads in (("made", curve["made"]["lru"]), ("fitted", curve["fitted"]["lru"])):
                ours = loads[curve["sizes"].index(int(size))]
                row = f"service {curve['service']}, {curve['kind']}, LRU of {size}, {how}"
                expected = f"{measured:.4g} loads per request within {TOLERANCE:g}"
                found[row] = Judged(expected, f"{ours:.4g}", abs(ours - measured) <= TOLERANCE)
    return found
