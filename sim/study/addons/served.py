"""Runs behind the page on add-ons: routing by add-on, and ControlNets placed by the solver and by rule."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.errors import ConfigError
from sim.study.placement.command import CALL_S, STEPS
from sim.study.placement.demand import head, of_service
from sim.study.placement.solve import in_turn, one_each, solve
from sim.study.scorecard.finished import Finished
from sim.study.scorecard.points import Point
from sim.study.scorecard.runner import finish

Facts = dict[str, Any]

COMMON = ("cluster=h800", "quality=alpha", "slo=[]", "seed=1")

ROUTERS: Mapping[str, tuple[str, ...]] = {
    "random": ("router=random",),
    "least requests": ("router=least-requests",),
    "by add-on, worth its seconds": ("router=by-addons",),
    "by add-on, at any price": ("router=by-addons", "router.worth=1e6"),
}

ROUTED = (
    *("system=diffusers", "scheduler=routed", "cluster.count=8", "trace=synthetic-service-b"),
    *("controlnets.most=3", "loras.keep=true", "loras.create=false"),
)
"""Service B on eight GPUs that keep three ControlNets each, and LoRAs, merged in place, until others are asked for."""

RATES_RPM = (20.0, 40.0, 60.0, 70.0)

SERVERS, RATE_RPM, ROOM, LIMIT = 6, 120.0, 8, 0.7

PLACED = (
    *("system=swiftdiffusion", "scheduler=fcfs", "controlnets=servers", "allocation=controlnet-servers"),
    *("trace=synthetic-service-a", "cluster.count=22", f"allocation.servers={SERVERS}"),
    f"arrivals.rate_rpm={RATE_RPM:g}",
)
"""Service A on sixteen GPUs for denoisers and six for ControlNets."""


def served(work: Path, jobs: int, rows: int) -> Facts:
    """Run what is missing, ``rows`` requests each. Raises ConfigError where a run failed."""
    asked: list[tuple[str, str, float, Point]] = []
    for name, words in ROUTERS.items():
        for rate in RATES_RPM:
            overrides = (*ROUTED, *COMMON, *words, f"arrivals.rate_rpm={rate:g}", f"trace.requests={rows}")
            asked.append(("routing", name, rate, Point("addons", {}, overrides)))
    demand = head(of_service("A", RATE_RPM, CALL_S * STEPS), 16)
    solved = solve(demand, SERVERS, LIMIT, ROOM)
    assert solved is not None
    placements = {"solved": solved, "one each": one_each(demand, SERVERS), "in turn": in_turn(demand, SERVERS)}
    for name, placed in placements.items():
        plain = json.dumps(placed.servers).replace('"', "").replace(" ", "")
        overrides = (*PLACED, *COMMON, f"controlnets.placement={plain}", f"trace.requests={2 * rows}")
        asked.append(("placement", name, RATE_RPM, Point("addons", {}, overrides)))
    outcomes = finish([point for *_, point in asked], work, jobs).outcomes
    found: Facts = {"rows": rows, "routing": [], "placement": []}
    for (kind, name, rate, point), (_, outcome) in zip(asked, outcomes, strict=True):
        if not isinstance(outcome, Finished):
            raise ConfigError(f"scorecard addons: a run failed: {outcome} ({point.command})")
        said: Facts = {
            "name": name,
            "rate_rpm": rate,
            "mean_s": outcome.number("latency_s", "mean"),
            "p95_s": outcome.number("latency_s", "p95"),
            "loads_per_request": outcome.summary["addons"]["loads_per_request"],
        }
        if kind == "placement":
            said |= {"load": list(placements[name].load), "turns_s": placements[name].turns_s}
        found[kind].append(said)
    return found
