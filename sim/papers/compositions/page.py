"""Page of compositions in Markdown, and its figure."""

from matplotlib.figure import Figure

import mezzotint.figures.page
from mezzotint.figures.page import percent
from mezzotint.figures.palette import COLOURS, GREY, house_style, panels
from mezzotint.sim.papers.compositions.designs import COMPARED
from mezzotint.sim.papers.study import Results


def line_of(each: Results) -> str:
    """Return a design's results in a line."""
    share = "" if each["hit_rate"] is None else f", {percent(each['hit_rate'], 0)} hits"
    return (
        f"p50 {each['p50_s']:.2f} s, p95 {each['p95_s']:.2f} s, {each['rpm_per_gpu']:.2f} images a minute and GPU, "
        f"{each['usd_per_image']:.4f} USD an image{share}"
    )


@house_style()
def draw(facts: Results) -> Figure:
    """Draw three panels for each traffic: latency at light load, throughput and cost at saturation."""
    drawn = {"p50_s": "p50 under light load (s)", "rpm_per_gpu": "images per minute and GPU"}
    drawn["usd_per_image"] = "USD an image"
    figure, grid = panels(3, len(facts["traffics"]), width=12.0, height=2.2 * len(facts["traffics"]), share_y=True)
    for row, traffic in zip(grid, facts["traffics"], strict=True):
        names = [each["name"] for each in traffic["designs"]]
        colours = [COLOURS[0] if each["parts"] else GREY for each in traffic["designs"]]
        for axes, (key, label) in zip(row, drawn.items(), strict=True):
            bars = axes.barh(range(len(names)), [each[key] for each in traffic["designs"]], 0.65, color=colours)
            axes.bar_label(bars, [f"{each[key]:.3g}" for each in traffic["designs"]], padding=3, fontsize=8)
            axes.set_yticks(range(len(names)), names)
            axes.margins(x=0.18)
            axes.grid(False, axis="y")
            axes.set_xlabel(label)
        row[0].invert_yaxis()
        row[0].set_title(traffic["title"])
    return figure


def render(facts: Results, image: str) -> str:
    """Fill the page with the JSON file's content; ``image`` is the figure's file name."""
    traffics = facts["traffics"]
    return mezzotint.figures.page.render(
        __package__,
        "page.md.jinja",
        facts=facts,
        image=image,
        compared=COMPARED,
        rows=[[_row(each) for each in traffic["designs"]] for traffic in traffics],
        by_name=[{each["name"]: each for each in traffic["designs"]} for traffic in traffics],
    )


def _row(each: Results) -> list[str]:
    name = f"**{each['name']}**" if each["parts"] else each["name"]
    numbers = [f"{each[key]:.2f}" for key in ("p50_s", "p95_s", "rpm_per_gpu")]
    return [name, *numbers, f"{each['usd_per_image']:.4f}", percent(each["hit_rate"], 0)]
