"""`mezzotint reproduce compositions`: untested combinations of designs, compared with their parts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from mezzotint.figures.page import percent
from mezzotint.figures.palette import COLOURS, GREY, house_style, panels
from mezzotint.sim.papers.runs import Finished, Point, RunOptions, command_of
from mezzotint.sim.papers.study import DATA, Comparison, Results, Study, read_data

COMPARED = {"p50_s": "p50", "p95_s": "p95", "rpm_per_gpu": "throughput", "usd_per_image": "cost"}
"""Measures that compare a composition with its parts; less is better, except for throughput."""

MIN_GAIN = 0.01
"""Smallest relative gain over a part that counts."""

CLUSTER = ("cluster=h800-batches", "slo=[]")

EACH = ("cluster.count=8", "quality=alpha", "seed=1")
"""Of every run."""

SATURATION = ("arrivals=saturation", "arrivals.gap_s=0.1")

ROWS, QUICK_ROWS = 600, 60
"""Requests that each run serves, after three times as many that fill the caches."""

DAY = 40
"""Times as many requests of a day, which fill no cache: 20 hours at 20 a minute."""


@dataclass(frozen=True, slots=True)
class Design:
    """One design: its name, its overrides, and the names of its parts if it is a composition."""

    name: str
    overrides: tuple[str, ...]
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traffic:
    """One comparison: the same requests for all designs, at a light rate and at saturation, or over a day.

    Attributes:
        light_rpm: requests a minute of the light rate.
        day_rpm: requests a minute, the mean of a day, in place of both.
    """

    title: str
    overrides: tuple[str, ...]
    designs: tuple[Design, ...]
    cluster: tuple[str, ...] = CLUSTER
    light_rpm: float | None = None
    day_rpm: float | None = None

    def loads(self) -> list[tuple[str, ...]]:
        """Return the overrides of the load at which latency is measured, and of that for throughput and cost."""
        if self.day_rpm is not None:
            return [("arrivals=day", f"arrivals.rate_rpm={self.day_rpm}")]
        return [("arrivals=poisson", f"arrivals.rate_rpm={self.light_rpm}"), SATURATION]


TRAFFICS: tuple[Traffic, ...] = read_data(DATA / "compositions.yaml", tuple[Traffic, ...])


def points(rows: int) -> list[Point]:
    """Return the runs: for each design one for each load."""
    warmed, day = (f"trace.requests={4 * rows}", f"preload={3 * rows}"), (f"trace.requests={DAY * rows}",)
    return [
        Point("compositions", {}, (*traffic.cluster, *traffic.overrides, *design.overrides, *EACH, *served, *load))
        for traffic in TRAFFICS
        for served in [day if traffic.day_rpm else warmed]
        for design in traffic.designs
        for load in traffic.loads()
    ]


def measure_traffic(traffic: Traffic, runs: Iterator[Finished]) -> Results:
    """Return the results of the next runs, one for each load, of each design of ``traffic``."""
    designs = []
    for design in traffic.designs:
        of_loads = [next(runs) for _ in traffic.loads()]
        designs.append({"name": design.name, "parts": list(design.parts)} | _measure(of_loads[0], of_loads[-1]))
    return {"title": traffic.title, "light_rpm": traffic.light_rpm, "day_rpm": traffic.day_rpm, "designs": designs}


def _measure(light: Finished, saturated: Finished) -> dict[str, Any]:
    return {
        "command": light.point.command,
        "p50_s": light.number("latency_s", "p50"),
        "p95_s": light.number("latency_s", "p95"),
        "rpm_per_gpu": saturated.number("throughput_rpm") / saturated.number("gpu", "count"),
        "usd_per_image": saturated.number("cost_usd", "per_image"),
        "hit_rate": saturated.summary["cache"]["hit_rate"],
    }


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare each composition in the JSON file with each of its parts: is it better by `MIN_GAIN`?"""
    rows = {}
    for traffic in facts["traffics"]:
        designs = {design["name"]: design for design in traffic["designs"]}
        for name, design in designs.items():
            for part in design["parts"]:
                for key, what in COMPARED.items():
                    ours, other = design[key], designs[part][key]
                    gain = ours / other - 1 if key == "rpm_per_gpu" else 1 - ours / other
                    expected = f"{MIN_GAIN:.0%} better than {other:.4g}"
                    row = f"{traffic['title']}: {name} over {part}, {what}"
                    rows[row] = Comparison(expected, f"{ours:.4g}", gain >= MIN_GAIN)
    return rows


def lines(facts: Results) -> Iterator[str]:
    """Yield each design's results."""
    for traffic in facts["traffics"]:
        for design in traffic["designs"]:
            hits = "" if design["hit_rate"] is None else f", {percent(design['hit_rate'], 0)} hits"
            yield (
                f"{traffic['title']}: {design['name']}: p50 {design['p50_s']:.2f} s, p95 {design['p95_s']:.2f} s, "
                f"{design['rpm_per_gpu']:.2f} images a minute and GPU, {design['usd_per_image']:.4f} USD an image{hits}"
            )


@house_style()
def draw(facts: Results) -> dict[str, Figure]:
    """Draw three panels for each traffic: latency at light load, throughput and cost at saturation; of a day all."""
    drawn = {"p50_s": "p50 under light load (s)", "rpm_per_gpu": "images per minute and GPU"}
    drawn["usd_per_image"] = "USD an image"
    figure, grid = panels(3, len(facts["traffics"]), width=12.0, height=2.2 * len(facts["traffics"]), share_y=True)
    for row, traffic in zip(grid, facts["traffics"], strict=True):
        designs = traffic["designs"]
        colours = [COLOURS[0] if design["parts"] else GREY for design in designs]
        for axes, (key, label) in zip(row, drawn.items(), strict=True):
            bars = axes.barh(range(len(designs)), [design[key] for design in designs], 0.65, color=colours)
            axes.bar_label(bars, [f"{design[key]:.3g}" for design in designs], padding=3, fontsize=8)
            axes.set_yticks(range(len(designs)), [design["name"] for design in designs])
            axes.margins(x=0.18)
            axes.grid(False, axis="y")
            axes.set_xlabel(label.replace("light load", "the load of a day") if traffic["day_rpm"] else label)
        row[0].invert_yaxis()
        row[0].set_title(traffic["title"])
    return {"": figure}


def values(facts: Results) -> Results:
    """Return the designs by traffic and name."""
    designs = {traffic["title"]: {row["name"]: row for row in traffic["designs"]} for traffic in facts["traffics"]}
    return {"compared": COMPARED, "designs": designs}


STUDY = Study("compositions", comparisons, draw, values, lines)


@command_of(STUDY)
def compare(options: RunOptions) -> Results:
    """Compare untested combinations of designs with their parts, and write compositions.md, .json and .svg.

    Raises:
        ConfigError: a run failed, or a file cannot be written.
    """
    rows = QUICK_ROWS if options.quick else ROWS
    runs = iter(options.finish(points(rows)))
    return {"rows": rows, "traffics": [measure_traffic(traffic, runs) for traffic in TRAFFICS]}
