"""Page of stages apart and together in Markdown, and its figure."""

from matplotlib.figure import Figure

import mezzotint.figures.page
from mezzotint.figures.page import number, percent
from mezzotint.figures.palette import COLOURS, GREY, house_style, panels, plain_numbers
from mezzotint.sim.papers.apart.rows import comparisons
from mezzotint.sim.papers.study import Results


@house_style()
def draw(facts: Results) -> Figure:
    """Draw two panels: measured over simulated values of the cells, and throughput by the division of the GPUs."""
    figure, ((cells, rates),) = panels(2, 1, width=12.0, height=4.2, share_y=False)
    for group, colour in zip(facts["rows"], (*COLOURS, GREY), strict=False):
        pairs = [(each["expected"], each["ours"]) for each in group["cells"] if isinstance(each["expected"], float)]
        if pairs:
            expected, ours = zip(*pairs, strict=True)
            cells.plot(expected, ours, "o", color=colour, markersize=5, label=group["group"].partition(",")[0])
    ends = (0.015, 500)
    cells.plot(ends, ends, color=GREY, linewidth=0.8)
    cells.set_xscale("log")
    cells.set_yscale("log")
    for axis in (cells.xaxis, cells.yaxis):
        axis.set_major_formatter(plain_numbers())
    cells.set_xlabel("measured (images a second, seconds, or ratio)")
    cells.set_ylabel("simulated")
    places = 0
    for (title, rows), colour in zip(facts["sensitivity"].items(), COLOURS, strict=False):
        best = max(row["rate"] for row in rows)
        at = range(places, places + len(rows))
        rates.barh(at, [row["rate"] / best for row in rows], 0.7, color=colour, label=title)
        places += len(rows) + 1
    labels = [each for rows in facts["sensitivity"].values() for each in [*(row["division"] for row in rows), ""]]
    rates.set_yticks(range(len(labels)), labels, fontsize=7)
    rates.invert_yaxis()
    rates.set_xlabel("throughput over the best division")
    rates.legend(fontsize=7, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, columnspacing=1)
    return figure


def render(facts: Results, image: str) -> str:
    """Fill the page with the JSON file's content; ``image`` is the figure's file name."""
    compared = comparisons(facts)
    groups = [
        {
            "title": group["group"],
            "note": group["note"],
            "tolerance": percent(group["tolerance"], 0),
            "rows": [
                [
                    each["what"],
                    _text(each["expected"]),
                    _text(each["ours"]),
                    percent(each["ours"] / each["expected"] - 1, 1, sign=True)
                    if isinstance(each["expected"], float)
                    else "",
                    "within" if compared[f"{group['group']}: {each['what']}"].within_tolerance else "outside",
                ]
                for each in group["cells"]
            ],
        }
        for group in facts["rows"]
    ]
    within = sum(each.within_tolerance for each in compared.values())
    sensitivity = {
        title: [[row["division"], number(row["rate"], 3), row["busiest"], percent(row["busy"], 0)] for row in rows]
        for title, rows in facts["sensitivity"].items()
    }
    return mezzotint.figures.page.render(
        __package__,
        "page.md.jinja",
        facts=facts,
        image=image,
        groups=groups,
        within=within,
        count=len(compared),
        sensitivity=sensitivity,
        limit_s=facts["limit_s"],
        limit_share=percent(facts["late"], 0),
    )


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else number(value)
