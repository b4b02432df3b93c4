"""`mezzotint reproduce addons`: loads of add-on caches, routing by add-on, placement of ControlNets."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import TypeAdapter

from mezzotint.figures.palette import COLOURS, EDGE, GREY, INK, house_style, panels, plain_numbers
from mezzotint.settings.choice import choice
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.streams import SERVICE, stream
from mezzotint.sim.papers.runs import Point, finish
from mezzotint.sim.papers.study import (
    RESULTS,
    RUNS,
    Check,
    Comparison,
    Jobs,
    Names,
    Output,
    Quick,
    Results,
    RunsOn,
    Study,
    Traces,
    Work,
)
from mezzotint.sim.plan.placement import find_demand, naive_placements, solve
from mezzotint.sim.plan.placement_command import CALL_S, STEPS
from mezzotint.sim.run.pool import Launcher
from mezzotint.traces.describe.loads import KINDS, Lookups, Policy, lookups, lookups_on_nodes
from mezzotint.traces.synthetic.addons import service
from mezzotint.traces.synthetic.published import fitted_locality, published
from mezzotint.traces.table.trace import Trace, read

SERVED = choice("data", "addons")
"""The runs of routing and placement."""

QUICK = 0.1
"""Share of the nodes and requests in --quick."""

ROWS = 800
"""Requests of a run; a tenth with --quick."""

NAMES = {"controlnets": "ControlNets", "loras": "LoRAs"}

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


def compare(
    trace: Traces = [],  # noqa: B006  Typer reads it
    name: Names = [],  # noqa: B006
    sizes: Annotated[
        str, typer.Option(metavar="N,N,...", help="sizes of the caches, in add-ons [default: 1 to 32]")
    ] = "",
    quick: Quick = False,
    check: Check = False,
    jobs: Jobs = 1,
    launcher: RunsOn = "joblib",
    output: Output = RESULTS,
    work: Work = RUNS,
) -> int:
    """Compare caches of ControlNets and LoRAs with measurements, and write addons.md, .json and .svg.

    Raises:
        ConfigError: a file cannot be written, or a size is out of range.
    """
    chosen = _sizes(sizes) or SIZES

    def measure() -> Results:
        found = curves(chosen, share=QUICK if quick else 1.0)
        error = errors(found)
        for row, path in enumerate(trace):
            found += of_trace(read(path), name[row] if row < len(name) else path.stem, chosen)
        if not check:
            STUDY.refuse_loss(output, [curve.service for curve in found], quick=quick)
        points = sum(len(curve.measured) for curve in found)
        caches = {"curves": [asdict(curve) for curve in found], "points": points, "error": error}
        served = {} if check else {"served": serve(work, jobs, ROWS // 10 if quick else ROWS, launcher)}
        return {"caches": caches} | served

    return STUDY.reproduce(measure, output, check=check, quick=quick)


def _sizes(text: str) -> tuple[int, ...]:
    words = text.split(",") if text else []
    if not all(word.strip().isdecimal() and 0 < int(word) <= 10_000 for word in words):
        raise ConfigError(f"--sizes: found {text!r}, expected whole numbers from 1 to 10,000, such as 1,2,4")
    return tuple(int(word) for word in words)


def measured_loads() -> Mapping[str, Any]:
    """Return the measured points of conf/data/addon-loads.yaml."""
    return choice("data", "addon-loads")


def curves(sizes: Sequence[int] = SIZES, *, seed: int = 1, share: float = 1.0) -> list[Curve]:
    """Return the curves of services A and B, with ``share`` of their nodes and requests."""
    points = measured_loads()
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
    drawn = service(law, name).draw(requests, stream(seed, SERVICE.format(name)))
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


def serve(work: Path, jobs: int, rows: int, launcher: Launcher = "joblib") -> dict[str, Any]:
    """Finish the runs of ``rows`` requests each, and return their results as JSON. Raises ConfigError: a run failed."""
    planned: list[tuple[str, str, float, Point]] = []
    routing, placement, common = SERVED["routing"], SERVED["placement"], SERVED["common"]
    for name, words in routing["routers"].items():
        for rate in routing["rates_rpm"]:
            words_of_rate = (f"arrivals.rate_rpm={rate:g}", f"trace.requests={rows}")
            overrides = (*routing["overrides"], *common, *words, *words_of_rate)
            planned.append(("routing", name, rate, Point("addons", {}, overrides)))
    rate, servers = placement["rate_rpm"], placement["servers"]
    demand = find_demand("A", None, rate, CALL_S * STEPS).head(16)
    solved = solve(demand, servers, placement["limit"], placement["room"])
    assert solved is not None
    placements = {"solved": solved, **naive_placements(demand, servers)}
    for name, placed in placements.items():
        overrides = (
            *placement["overrides"],
            *common,
            placed.override,
            f"trace.requests={2 * rows}",
        )
        planned.append(("placement", name, rate, Point("addons", {}, overrides)))
    runs = finish([point for *_, point in planned], work, jobs, launcher).of_study(STUDY.name)
    found: dict[str, Any] = {"rows": rows, "routing": [], "placement": []}
    for (kind, name, rate, _), run in zip(planned, runs, strict=True):
        row: dict[str, Any] = {
            "name": name,
            "rate_rpm": rate,
            "mean_s": run.number("latency_s", "mean"),
            "p95_s": run.number("latency_s", "p95"),
            "loads_per_request": run.summary["addons"]["loads_per_request"],
        }
        if kind == "placement":
            row |= {"load": list(placements[name].load), "turns_s": placements[name].turns_s}
        found[kind].append(row)
    return found


@house_style()
def draw(facts: Results) -> dict[str, Figure]:
    """Draw a panel for each service and kind of add-on, and the runs with each router."""
    return {"": draw_caches(read_curves(facts)), "-routing": _draw_routing(facts["served"]["routing"])}


@house_style()
def draw_caches(found: Sequence[Curve]) -> Figure:
    """Draw a panel for each service and kind of add-on."""
    figure, (row,) = panels(len(found), width=3.4 * len(found), height=3.5, share_y=False)
    for axes, curve in zip(row, found, strict=True):
        _panel(axes, curve)
    row[0].set_ylabel("loads per request")
    row[0].legend(loc="upper right", fontsize=7.5)
    return figure


def _panel(axes: Axes, curve: Curve) -> None:
    if curve.fitted:
        axes.plot(curve.sizes, curve.fitted["lru"], color=GREY, linestyle=":", label="LRU, fitted")
    for policy, colour, dash in (("lfu", COLOURS[1], "--"), ("lru", COLOURS[0], "-")):
        axes.plot(curve.sizes, curve.made[policy], dash, color=colour, label=f"{policy.upper()}, made")
    if curve.measured:
        axes.plot([*curve.measured], [*curve.measured.values()], "D", color=INK, markersize=4.5, label="LRU, measured")
    axes.axhline(curve.all, color=EDGE, linewidth=0.7)
    axes.annotate(
        f"unlimited cache: {curve.all:.2g}", (curve.sizes[-1], curve.all), ha="right", va="bottom", fontsize=7.5,
        xytext=(0, 8 if curve.all < 0.1 else 1), textcoords="offset points", color=EDGE,
    )  # fmt: skip
    title = f"{'Service ' if curve.measured else ''}{curve.service}: {NAMES[curve.kind]}"
    axes.set(xscale="log", ylim=(0.0, None), xlabel="size of the cache (add-ons)", title=title)
    axes.set_xticks([1, 2, 4, 8, 16, 32])
    axes.xaxis.set_major_formatter(plain_numbers())
    axes.xaxis.set_minor_formatter("")


def _draw_routing(routing: Sequence[Results]) -> Figure:
    """Draw mean latency and loaded ControlNets per request against the rate, a line for each router."""
    figure, ((latency, loads),) = panels(2, width=9.0, height=3.4, share_y=False)
    names = list(dict.fromkeys(row["name"] for row in routing))
    for name, colour in zip(names, COLOURS, strict=False):
        rows = [row for row in routing if row["name"] == name]
        rates = [row["rate_rpm"] for row in rows]
        latency.plot(rates, [row["mean_s"] for row in rows], "o-", color=colour, label=name)
        loads.plot(rates, [row["loads_per_request"]["controlnet"] for row in rows], "o-", color=colour)
    latency.set(yscale="log", ylabel="mean latency (s)", title="Routing by add-on: latency")
    latency.yaxis.set_major_formatter(plain_numbers())
    latency.yaxis.set_minor_formatter("")
    loads.set(ylabel="ControlNets loaded per request", title="and loads", ylim=(0, None))
    for axes in (latency, loads):
        axes.set_xlabel("requests per minute, 8 GPUs")
    latency.legend(fontsize=7.5)
    return figure


def read_curves(facts: Results) -> list[Curve]:
    """Return the curves in the JSON file."""
    return TypeAdapter(list[Curve]).validate_python(facts["caches"]["curves"])


def lines(facts: Results) -> Iterator[str]:
    """Yield the loads of each curve."""
    for curve in read_curves(facts):
        measured = {size: f" ({load:.3f})" for size, load in curve.measured.items()}
        loads = ", ".join(f"{size}: {curve.at(size):.3f}{measured.get(size, '')}" for size in curve.sizes)
        yield f"{curve.service}, {curve.kind}, LRU, loads per request by size (measured): {loads}"


STUDY = Study(
    "addons",
    comparisons,
    draw,
    values=lambda _: {"names": NAMES},
    lines=lines,
    parts=lambda facts: [curve["service"] for curve in facts["caches"]["curves"]],
)
