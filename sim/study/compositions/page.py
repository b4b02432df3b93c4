"""The page of compositions as Markdown, and its figure."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from conf.page import table
from conf.palette import COLOURS, GREY, house_style, panels
from sim.study.compositions.designs import COMPARED, TRAFFICS, Designs, change, hits

Facts = Mapping[str, Any]
"""What the command found, as its JSON has it."""


def told(each: Mapping[str, Any]) -> str:
    """A design in a line."""
    share = "" if each["hit_rate"] is None else f", {hits(each)} hits"
    return (
        f"p50 {each['p50_s']:.2f} s, p95 {each['p95_s']:.2f} s, {each['rpm_per_gpu']:.2f} images a minute and GPU, "
        f"{each['usd_per_image']:.4f} USD an image{share}"
    )


@house_style()
def draw(facts: Facts) -> Figure:
    """Three panels for each traffic: latency under light load; throughput and cost when there is always work."""
    drawn = (
        ("p50_s", "p50 under light load (s)"),
        ("rpm_per_gpu", "images per minute and GPU"),
        ("usd_per_image", "USD an image"),
    )
    figure, grid = panels(3, len(facts["traffics"]), width=12.0, height=2.2 * len(facts["traffics"]), share_y=True)
    for row, traffic in zip(grid, facts["traffics"], strict=True):
        names = [each["name"] for each in traffic["designs"]]
        colours = [COLOURS[0] if each["parts"] else GREY for each in traffic["designs"]]
        for axes, (key, label) in zip(row, drawn, strict=True):
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
                hits(each),
            )
            for each in traffic["designs"]
        ]
        head = ("", "p50 [s]", "p95 [s]", "images/min/GPU", "USD/image", "hits")
        blocks.append(table(head, rows, right=True))
        by_name = {each["name"]: each for each in traffic["designs"]}
        blocks += [*_over_parts(by_name), asked.reading(by_name)]
    return "\n\n".join(blocks) + "\n"


def _over_parts(designs: Designs) -> list[str]:
    said = []
    for name, each in designs.items():
        for part in each["parts"]:
            changes = ", ".join(f"{what} {change(each, designs[part], key)}" for key, what in COMPARED.items())
            said.append(f"- {name} over {part}: {changes}")
    return ["\n".join(said)] if said else []
