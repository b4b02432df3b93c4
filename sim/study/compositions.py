"""`mezzotint scorecard compositions`: designs that nobody has run, each beside the parts that it is made of."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from conf.atomic import atomic_files, output_folder
from conf.markdown import table
from conf.palette import COLOURS, GREY, house_style, panels
from sim.errors import ConfigError
from sim.study.scorecard.finished import Finished
from sim.study.scorecard.points import Point
from sim.study.scorecard.runner import finish

NAME = "compositions"

CLUSTER = ("cluster=h800-batches", "cluster.count=8", "quality=alpha", "slo=[]", "seed=1")

ROWS, QUICK_ROWS = 600, 60
"""Requests that are served in each run; before them as many fill the caches, three times."""

COPIES = (
    "allocation.servers=4",
    "controlnets.placement=[[controlnet-1],[controlnet-2],[controlnet-1],[controlnet-2]]",
)
"""Two servers for each of two ControlNets."""

Facts = dict[str, Any]

Designs = Mapping[str, Mapping[str, Any]]
"""What was measured of each design of one traffic, by its name."""


@dataclass(frozen=True, slots=True)
class Design:
    """One bar: what it is called, the overrides that make it, and the parts that it is a composition of."""

    name: str
    overrides: tuple[str, ...]
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """One comparison: the same requests for all of its designs, at a light rate and at more than can be served."""

    title: str
    overrides: tuple[str, ...]
    light_rpm: float
    designs: tuple[Design, ...]
    reading: Callable[[Designs], str]
    """What the numbers show, in words that are true of any."""


def _addons(of: Designs) -> str:
    series, gangs = of["diffusers"], of["swiftdiffusion"]
    per_gpu = [each["rpm_per_gpu"] for each in of.values()]
    caches = "; ".join(
        f"{what} {_change(of[name], other, 'p50_s')} at {_hits(of[name])} hits"
        for what, name, other in (
            ("NIRVANA's before diffusers", "nirvana, add-ons in series", series),
            ("NIRVANA's under SwiftDiffusion", "swiftdiffusion under nirvana", gangs),
            ("MoDM's before diffusers", "modm with add-ons", series),
        )
    )
    return (
        f"Per GPU they give from {min(per_gpu):.2f} to {max(per_gpu):.2f} images a minute. SwiftDiffusion has "
        f"{gangs['p50_s'] / series['p50_s']:.0%} of the median latency of diffusers and "
        f"{gangs['rpm_per_gpu'] / series['rpm_per_gpu']:.0%} of its images per GPU: a gang holds all of its GPUs while "
        f"some of them wait. What a cache changes of the median: {caches}. A LoRA that is not there is loaded whether "
        "its request hits or not."
    )


def _prompts(of: Designs) -> str:
    alone = of["vanilla"]["rpm_per_gpu"]
    cache, batches, both = (
        of[name]["rpm_per_gpu"] / alone
        for name in ("modm, one at a time", "patched batches", "modm before patched batches")
    )
    return (
        f"Vanilla's throughput times {cache:.2f} with the cache, times {batches:.2f} with batches, and times "
        f"{both:.2f} with both; the product of the two would be {cache * batches:.2f}. The cache changes the "
        f"throughput of requests that are served one at a time by {cache - 1:+.0%}, and that of batches by "
        f"{both / batches - 1:+.0%}: a hit leaves fewer steps, but a batch pays for a step whoever is in it."
    )


def _controlnets(of: Designs) -> str:
    batches, gangs = of["4 servers, patched batches"], of["swiftdiffusion, gangs"]
    return (
        "Where ControlNets run on servers, batches change the throughput by "
        f"{_change(batches, of['4 servers, one at a time'], 'rpm_per_gpu')}, a server answering one call at a time; "
        "where the ControlNets lie, with one copy of each for two, changes it by "
        f"{_change(of['the same, a copy of each'], batches, 'rpm_per_gpu')}. Shared servers give "
        f"{batches['rpm_per_gpu'] / gangs['rpm_per_gpu']:.2f} times the images per GPU of gangs. Requests with LoRAs "
        "in their weights cannot share a batch at all, which is why none are asked for here."
    )


def _change(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> str:
    return f"{one[key] / other[key] - 1:+.0%}"


def _hits(each: Mapping[str, Any]) -> str:
    return "-" if each["hit_rate"] is None else f"{each['hit_rate']:.0%}"


TRAFFICS = (
    Traffic(
        "Service A: prompts with ControlNets and LoRAs",
        ("trace=synthetic-service-a",),
        10.0,
        (
            Design("diffusers", ("system=diffusers",)),
            Design("nirvana, add-ons in series", ("system=nirvana-add-ons",)),
            Design("swiftdiffusion", ("system=swiftdiffusion",)),
            Design(
                "swiftdiffusion under nirvana", ("system=swiftdiffusion-nirvana",),
                ("nirvana, add-ons in series", "swiftdiffusion"),
            ),
            Design("modm with add-ons", ("system=modm-add-ons",), ("diffusers",)),
        ),
        _addons,
    ),
    Traffic(
        "Prompts alone, 1024x1024",
        ("trace=synthetic",),
        60.0,
        (
            Design("vanilla", ("system=vanilla",)),
            Design("modm, one at a time", ("system=modm-add-ons",)),
            Design("patched batches", ("system=patched-cache", "feature_cache=none")),
            Design("modm before patched batches", ("system=modm-patched",), ("modm, one at a time", "patched batches")),
        ),
        _prompts,
    ),
    Traffic(
        "Two ControlNets for every request, no LoRA",
        ("trace=add-ons", "trace.controlnets=2", "trace.loras=0"),
        20.0,
        (
            Design("diffusers", ("system=diffusers",)),
            Design("swiftdiffusion, gangs", ("system=swiftdiffusion",)),
            Design("4 servers, one at a time", ("system=patched-add-ons", *COPIES, "executor.limit=1")),
            Design(
                "4 servers, patched batches", ("system=patched-add-ons", *COPIES, "executor.limit=4"),
                ("4 servers, one at a time",),
            ),
            Design("the same, a copy of each", ("system=patched-add-ons", "allocation.servers=4", "executor.limit=4")),
        ),
        _controlnets,
    ),
)  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run what is missing, compare, write the page, its data and its figure; returns the exit status.

    Raises:
        ConfigError: a run that failed, or a file that cannot be written.
    """
    facts = study(args.work, args.jobs, QUICK_ROWS if args.quick else ROWS)
    for traffic in facts["traffics"]:
        for each in traffic["designs"]:
            print(f"{traffic['title']}: {each['name']}: {_told(each)}")
    if args.check:
        return 0
    output_folder(args.output, ConfigError)
    name = f"{NAME}-quick" if args.quick else NAME
    files = [args.output / f"{name}.{kind}" for kind in ("md", "json", "png")]
    with atomic_files(files, ConfigError) as (markdown, data, image):
        draw(facts).savefig(image, format="png", metadata={"Software": None})
        data.write_text(json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        markdown.write_text(render(facts, files[2].name), encoding="utf-8")
    for file in files:
        print(file)
    return 0


def study(work: Path, jobs: int, rows: int) -> Facts:
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


def _measured(light: Any, full: Any) -> Facts:
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


def _told(each: Mapping[str, Any]) -> str:
    hits = "" if each["hit_rate"] is None else f", {_hits(each)} hits"
    return (
        f"p50 {each['p50_s']:.2f} s, p95 {each['p95_s']:.2f} s, {each['rpm_per_gpu']:.2f} images a minute and GPU, "
        f"{each['usd_per_image']:.4f} USD an image{hits}"
    )


@house_style()
def draw(facts: Facts) -> Figure:
    """Three panels for each traffic: latency under light load; throughput and cost when there is always work."""
    shown = (
        ("p50_s", "p50 under light load (s)"),
        ("rpm_per_gpu", "images per minute and GPU"),
        ("usd_per_image", "USD an image"),
    )
    figure, grid = panels(3, len(facts["traffics"]), width=12.0, height=2.2 * len(facts["traffics"]), share_y=True)
    for row, traffic in zip(grid, facts["traffics"], strict=True):
        names = [each["name"] for each in traffic["designs"]]
        colours = [COLOURS[0] if each["parts"] else GREY for each in traffic["designs"]]
        for axes, (key, label) in zip(row, shown, strict=True):
            bars = axes.barh(range(len(names)), [each[key] for each in traffic["designs"]], 0.65, color=colours)
            axes.bar_label(bars, [f"{each[key]:.3g}" for each in traffic["designs"]], padding=3, fontsize=8)
            axes.set_yticks(range(len(names)), names)
            axes.margins(x=0.18)
            axes.grid(False, axis="y")
            axes.set_xlabel(label)
        row[0].invert_yaxis()
        row[0].set_title(traffic["title"])
    return figure


def render(facts: Facts, image: str) -> str:
    """The page."""
    blocks = [
        "# Compositions that nobody has run",
        f"Made by `mezzotint scorecard compositions`: SDXL on eight H800, {facts['rows']} requests after "
        f"{3 * facts['rows']} that fill the caches, one seed. Latency is that of a light load, throughput and cost "
        "those of more work than can be done. Assumed: 3 USD a GPU and hour; of batches and of other sizes, "
        "PatchedServe's H100 scaled (`cluster=h800-batches`); MoDM's cache refines hits on SDXL itself, since nobody "
        "measured add-ons for a smaller model. Every hit's image quality is what its design's own paper says of it, if "
        "anything: nothing here is about quality.",
        f"![Each composition beside its parts]({image})",
    ]
    for traffic, asked in zip(facts["traffics"], TRAFFICS, strict=True):
        blocks.append(f"## {traffic['title']}")
        rows = [
            (
                f"**{each['name']}**" if each["parts"] else each["name"],
                *(f"{each[key]:.2f}" for key in ("p50_s", "p95_s", "rpm_per_gpu")),
                f"{each['usd_per_image']:.4f}",
                _hits(each),
            )
            for each in traffic["designs"]
        ]
        head = ("", "p50 [s]", "p95 [s]", "images/min/GPU", "USD/image", "hits")
        blocks.append(table(head, rows, right=True))
        by_name = {each["name"]: each for each in traffic["designs"]}
        blocks += [*_over_parts(by_name), asked.reading(by_name)]
    return "\n\n".join(blocks) + "\n"


def _over_parts(designs: Designs) -> list[str]:
    keys = {"p50_s": "p50", "p95_s": "p95", "rpm_per_gpu": "throughput", "usd_per_image": "cost"}
    said = []
    for name, each in designs.items():
        for part in each["parts"]:
            changes = ", ".join(f"{what} {_change(each, designs[part], key)}" for key, what in keys.items())
            said.append(f"- {name} over {part}: {changes}")
    return ["\n".join(said)] if said else []
