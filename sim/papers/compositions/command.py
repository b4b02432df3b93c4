"""`mezzotint reproduce compositions`: untested combinations of designs, compared with their parts."""

from pathlib import Path
from typing import Any

from mezzotint.sim.papers.compositions.designs import TRAFFICS, comparisons
from mezzotint.sim.papers.runs import Finished, Point, finish
from mezzotint.sim.papers.study import (
    RESULTS,
    RUNS,
    Check,
    Jobs,
    Output,
    Quick,
    RunsOn,
    Work,
    read_committed,
    report_lost,
)
from mezzotint.sim.report.pages import write_study
from mezzotint.sim.run.pool import Launcher

NAME = "compositions"

CLUSTER = ("cluster=h800-batches", "cluster.count=8", "quality=alpha", "slo=[]", "seed=1")

SATURATION = ("arrivals=saturation", "arrivals.gap_s=0.1")

ROWS, QUICK_ROWS = 600, 60
"""Requests that each run serves, after three times as many that fill the caches."""


def compare(
    quick: Quick = False,
    check: Check = False,
    jobs: Jobs = 1,
    launcher: RunsOn = "joblib",
    output: Output = RESULTS,
    work: Work = RUNS,
) -> int:
    """Compare untested combinations of designs with their parts, and write compositions.md, .json and .svg.

    Raises:
        ConfigError: a run failed, or a file cannot be written.
    """
    from mezzotint.sim.papers.compositions import page  # importing matplotlib takes a second

    name = f"{NAME}-quick" if quick else NAME
    before = read_committed(output / f"{name}.json", comparisons) if check else {}
    facts = run_designs(work, jobs, QUICK_ROWS if quick else ROWS, launcher)
    for traffic in facts["traffics"]:
        for each in traffic["designs"]:
            print(f"{traffic['title']}: {each['name']}: {page.line_of(each)}")
    if check:
        return report_lost(before, comparisons(facts))
    write_study(output, name, facts, page.render, page.draw)
    return 0


def run_designs(work: Path, jobs: int, rows: int, launcher: Launcher = "joblib") -> dict[str, Any]:
    """Run every design at light load and at saturation, and return the results as JSON."""
    planned: list[Point] = []
    length = (f"trace.requests={4 * rows}", f"preload={3 * rows}")
    for traffic in TRAFFICS:
        light = ("arrivals=poisson", f"arrivals.rate_rpm={traffic.light_rpm}")
        for design in traffic.designs:
            common = (*design.overrides, *traffic.overrides, *CLUSTER, *length)
            planned += [Point(NAME, {}, (*common, *load)) for load in (light, SATURATION)]
    runs = iter(finish(planned, work, jobs, launcher).of_study(NAME))
    traffics: list[dict[str, Any]] = []
    for traffic in TRAFFICS:
        traffics.append({"title": traffic.title, "light_rpm": traffic.light_rpm, "designs": []})
        for design in traffic.designs:
            light_run, saturated = next(runs), next(runs)
            row = {"name": design.name, "parts": list(design.parts), "command": light_run.point.command}
            traffics[-1]["designs"].append(row | _measured(light_run, saturated))
    return {"rows": rows, "traffics": traffics}


def _measured(light: Finished, saturated: Finished) -> dict[str, Any]:
    return {
        "p50_s": light.number("latency_s", "p50"),
        "p95_s": light.number("latency_s", "p95"),
        "rpm_per_gpu": saturated.number("throughput_rpm") / saturated.number("gpu", "count"),
        "usd_per_image": saturated.number("cost_usd", "per_image"),
        "hit_rate": saturated.summary["cache"]["hit_rate"],
    }
