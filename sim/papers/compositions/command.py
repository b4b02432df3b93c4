"""`mezzotint scorecard compositions`: designs that nobody has run, each beside the parts that it is made of."""

import sys
from pathlib import Path
from typing import Any

from sim.core.errors import ConfigError
from sim.papers.compositions.designs import TRAFFICS, judged
from sim.papers.scorecard.finished import Finished
from sim.papers.scorecard.options import RESULTS, RUNS, Check, Jobs, Output, Quick, Work
from sim.papers.scorecard.points import Point
from sim.papers.scorecard.runner import finish
from sim.papers.verdicts import checked, committed
from sim.report.pages import write_page

NAME = "compositions"

CLUSTER = ("cluster=h800-batches", "cluster.count=8", "quality=alpha", "slo=[]", "seed=1")

FULL = ("arrivals=saturation", "arrivals.gap_s=0.1")

ROWS, QUICK_ROWS = 600, 60
"""Requests that are served in each run; before them as many fill the caches, three times."""


def compare(
    quick: Quick = False, check: Check = False, jobs: Jobs = 1, output: Output = RESULTS, work: Work = RUNS
) -> int:
    """Run designs that nobody has run, each beside its parts, and write compositions.md, .json and .png.

    Raises:
        ConfigError: a run that failed, or a file that cannot be written.
    """
    from sim.papers.compositions import page  # what draws takes a second to import

    name = f"{NAME}-quick" if quick else NAME
    before = committed(output / f"{name}.json", judged) if check else {}
    facts = study(work, jobs, QUICK_ROWS if quick else ROWS)
    for traffic in facts["traffics"]:
        for each in traffic["designs"]:
            print(f"{traffic['title']}: {each['name']}: {page.line_of(each)}")
    if check:
        return checked(before, judged(facts))
    image = f"{name}.png"
    write_page(output, name, facts, page.render(facts, image), {image: page.draw(facts)})
    return 0


def study(work: Path, jobs: int, rows: int) -> dict[str, Any]:
    """All designs, each under light load and under more than it can serve."""
    asked: list[Point] = []
    length = (f"trace.requests={4 * rows}", f"preload={3 * rows}")
    for traffic in TRAFFICS:
        few = ("arrivals=poisson", f"arrivals.rate_rpm={traffic.light_rpm}")
        for design in traffic.designs:
            common = (*design.overrides, *traffic.overrides, *CLUSTER, *length)
            asked += [Point(NAME, {}, (*common, *load)) for load in (few, FULL)]
    done = finish(asked, work, jobs).outcomes
    for point, outcome in done:
        if isinstance(outcome, str):
            print(f"mezzotint: {point.command}: {outcome}", file=sys.stderr)
            raise ConfigError(f"scorecard compositions: a run failed: {outcome}")
    runs = (run for _, run in done if isinstance(run, Finished))
    traffics: list[dict[str, Any]] = []
    for traffic in TRAFFICS:
        traffics.append({"title": traffic.title, "light_rpm": traffic.light_rpm, "designs": []})
        for design in traffic.designs:
            light, full = next(runs), next(runs)
            told = {"name": design.name, "parts": list(design.parts), "command": light.point.command}
            traffics[-1]["designs"].append(told | _measured(light, full))
    return {"rows": rows, "traffics": traffics}


def _measured(light: Finished, full: Finished) -> dict[str, Any]:
    return {
        "p50_s": light.number("latency_s", "p50"),
        "p95_s": light.number("latency_s", "p95"),
        "rpm_per_gpu": full.number("throughput_rpm") / full.number("gpu", "count"),
        "usd_per_image": full.number("cost_usd", "per_image"),
        "hit_rate": full.summary["cache"]["hit_rate"],
    }
