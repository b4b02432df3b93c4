"""Page of the cascades in Markdown, and its figure."""

from matplotlib.figure import Figure

import mezzotint.figures.page
from mezzotint.figures.page import percent
from mezzotint.figures.palette import COLOURS, house_style, panels
from mezzotint.sim.papers.cascade.designs import DESIGNS, STUDY, comparisons
from mezzotint.sim.papers.verdicts import Results


@house_style()
def draw(facts: Results) -> Figure:
    """Draw violations and FID by rate, a row for each cascade."""
    names = list(dict.fromkeys(row["cascade"] for row in facts["rows"]))
    figure, grid = panels(2, len(names), width=10.0, height=3.4 * len(names), share_y=False)
    for axes, name in zip(grid, names, strict=True):
        for design, colour in zip(DESIGNS, COLOURS, strict=False):
            rows = [
                row for row in facts["rows"] if (row["cascade"], row["design"]) == (name, design) and row["rate_rps"]
            ]
            rates = [row["rate_rps"] for row in rows]
            axes[0].plot(rates, [100 * row["late"] for row in rows], color=colour, marker="o", label=design)
            axes[1].plot(rates, [row["fid"] for row in rows], color=colour, marker="o", label=design)
        for place, label in enumerate(
            (f"late or dropped, {STUDY.slo_s:g} s [%]", "FID of all images (lower is better)")
        ):
            axes[place].set(xlabel="requests per second", ylabel=label, title=name)
        axes[0].set_ylim(0, None)
    grid[0][0].legend(fontsize=8)
    return figure


def render(facts: Results, image: str) -> str:
    """Fill the page with the JSON file's content; ``image`` is the figure's file name."""
    rows = [
        [
            row["cascade"],
            row["design"],
            "changing" if row["rate_rps"] is None else f"{row['rate_rps']:g}",
            percent(row["late"], 1),
            percent(row["dropped"], 1),
            percent(row["light"], 0),
            f"{row['fid']:.2f}",
        ]
        for row in facts["rows"]
    ]
    claims = [
        [name, each.expected, each.ours, "within" if each.within_tolerance else "outside"]
        for name, each in comparisons(facts).items()
    ]
    return mezzotint.figures.page.render(
        __package__, "page.md.jinja", rows=rows, claims=claims, image=image, study=STUDY
    )
