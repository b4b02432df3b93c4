"""Runs of the page on add-ons: routing by add-on, and placement of ControlNets by solver and by rule."""

from pathlib import Path
from typing import Any

from mezzotint.settings.choice import choice
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.scorecard.runs.finished import Finished
from mezzotint.sim.papers.scorecard.runs.points import Point
from mezzotint.sim.papers.scorecard.runs.runner import finish
from mezzotint.sim.plan.placement import find_demand, naive_placements, solve
from mezzotint.sim.plan.placement_command import CALL_S, STEPS
from mezzotint.sim.run.pool import Launcher

STUDY = choice("data", "addons")


def run_studies(work: Path, jobs: int, rows: int, launcher: Launcher = "joblib") -> dict[str, Any]:
    """Finish the runs of ``rows`` requests each, and return their results as JSON. Raises ConfigError: a run failed."""
    planned: list[tuple[str, str, float, Point]] = []
    routing, placement, common = STUDY["routing"], STUDY["placement"], STUDY["common"]
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
    outcomes = finish([point for *_, point in planned], work, jobs, launcher).outcomes
    found: dict[str, Any] = {"rows": rows, "routing": [], "placement": []}
    for (kind, name, rate, point), (_, outcome) in zip(planned, outcomes, strict=True):
        if not isinstance(outcome, Finished):
            raise ConfigError(f"reproduce addons: a run failed: {outcome} ({point.command})")
        row: dict[str, Any] = {
            "name": name,
            "rate_rpm": rate,
            "mean_s": outcome.number("latency_s", "mean"),
            "p95_s": outcome.number("latency_s", "p95"),
            "loads_per_request": outcome.summary["addons"]["loads_per_request"],
        }
        if kind == "placement":
            row |= {"load": list(placements[name].load), "turns_s": placements[name].turns_s}
        found[kind].append(row)
    return found
