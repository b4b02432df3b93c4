"""`mezzotint scorecard compositions`: designs that nobody has run, each beside the parts that it is made of."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from conf.atomic import atomic_files, check_ours, output_folder
from sim.errors import ConfigError
from sim.study.compositions import page
from sim.study.compositions.designs import TRAFFICS, judged
from sim.study.scorecard.finished import Finished
from sim.study.scorecard.points import Point
from sim.study.scorecard.runner import finish
from sim.study.verdicts import checked, committed

NAME = "compositions"

CLUSTER = ("cluster=h800-batches", "cluster.count=8", "quality=alpha", "slo=[]", "seed=1")

ROWS, QUICK_ROWS = 600, 60
"""Requests that are served in each run; before them as many fill the caches, three times."""


def run(args: argparse.Namespace) -> int:
    """Run what is missing, compare, write the page, its data and its figure; returns the exit status.

    Raises:
        ConfigError: a run that failed, or a file that cannot be written.
    """
    name = f"{NAME}-quick" if args.quick else NAME
    before = committed(args.output / f"{name}.json", judged) if args.check else {}
    facts = study(args.work, args.jobs, QUICK_ROWS if args.quick else ROWS)
    for traffic in facts["traffics"]:
        for each in traffic["designs"]:
            print(f"{traffic['title']}: {each['name']}: {page.told(each)}")
    if args.check:
        return checked(before, judged(facts))
    output_folder(args.output, ConfigError)
    files = [args.output / f"{name}.{kind}" for kind in ("md", "json", "png")]
    check_ours(files[0], ConfigError, "a page of scorecard compositions", b"# Compositions")
    with atomic_files(files, ConfigError) as (markdown, data, image):
        page.draw(facts).savefig(image, format="png", metadata={"Software": None})
        data.write_text(json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        markdown.write_text(page.render(facts, files[2].name), encoding="utf-8")
    for file in files:
        print(file)
    return 0


def study(work: Path, jobs: int, rows: int) -> dict[str, Any]:
    """All designs, each under light load and under more than it can serve."""
    asked: dict[tuple[int, int, str], Point] = {}
    for at, traffic in enumerate(TRAFFICS):
        for place, design in enumerate(traffic.designs):
            common = (
                *design.overrides,
                *traffic.overrides,
                *CLUSTER,
                f"trace.requests={4 * rows}",
                f"preload={3 * rows}",
            )
            loads = {
                "light": ("arrivals=poisson", f"arrivals.rate_rpm={traffic.light_rpm}"),
                "full": ("arrivals=saturation", "arrivals.gap_s=0.1"),
            }
            for load, words in loads.items():
                asked[at, place, load] = Point(NAME, {}, (*common, *words))
    runs = finish(list(asked.values()), work, jobs)
    done = dict(zip(asked, (outcome for _, outcome in runs.outcomes), strict=True))
    for key, outcome in done.items():
        if isinstance(outcome, str):
            print(f"mezzotint: {asked[key].command}: {outcome}", file=sys.stderr)
            raise ConfigError(f"scorecard compositions: a run failed: {outcome}")
    return {
        "rows": rows,
        "traffics": [
            {
                "title": traffic.title,
                "light_rpm": traffic.light_rpm,
                "designs": [
                    {"name": design.name, "parts": list(design.parts), "command": asked[at, place, "light"].command}
                    | _measured(done[at, place, "light"], done[at, place, "full"])
                    for place, design in enumerate(traffic.designs)
                ],
            }
            for at, traffic in enumerate(TRAFFICS)
        ],
    }


def _measured(light: Any, full: Any) -> dict[str, Any]:
    assert isinstance(light, Finished)
    assert isinstance(full, Finished)
    gpus = full.number("gpu", "count")
    return {
        "p50_s": light.number("latency_s", "p50"),
        "p95_s": light.number("latency_s", "p95"),
        "rpm_per_gpu": full.number("throughput_rpm") / gpus,
        "usd_per_image": full.number("cost_usd", "per_image"),
        "hit_rate": full.summary["cache"]["hit_rate"],
    }
