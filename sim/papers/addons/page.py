"""Page on add-ons in Markdown, and its figures."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import TypeAdapter

import mezzotint.figures.page
from mezzotint.figures.page import DASH
from mezzotint.figures.palette import COLOURS, EDGE, GREY, INK, house_style, panels, plain_numbers
from mezzotint.sim.papers.addons.caches import Curve
from mezzotint.sim.papers.study import Results
from mezzotint.sim.report.pages import image_file, write_page

NAMES = {"controlnets": "ControlNets", "loras": "LoRAs"}


def render(facts: Results, images: Sequence[str]) -> str:
    """Fill the page with the JSON file's content; ``images`` are the figures' file names, caches then routing."""
    curves, routing, placement = facts["caches"]["curves"], [], []
    for row in facts["served"]["routing"]:
        loads = (f"{row['loads_per_request'][kind]:.2f}" for kind in ("controlnet", "lora"))
        routing.append((row["name"], f"{row['rate_rpm']:g}", f"{row['mean_s']:.1f}", f"{row['p95_s']:.1f}", *loads))
    for row in facts["served"]["placement"]:
        seconds = (f"{row[key]:.2f}" for key in ("turns_s", "mean_s", "p95_s"))
        placement.append((row["name"], ", ".join(f"{load:.2f}" for load in row["load"]), *seconds))
    return mezzotint.figures.page.render(
        __package__,
        "page.md.jinja",
        facts=facts,
        images=images,
        names=NAMES,
        curves=[(curve, ("size", *curve["sizes"], "all"), list(_loads(curve))) for curve in curves],
        routing=routing,
        placement=placement,
    )


def write(folder: Path, name: str, facts: Results) -> None:
    """Write the page, the JSON file and the figures of ``facts``, the JSON file's content."""
    curves = TypeAdapter(list[Curve]).validate_python(facts["caches"]["curves"])
    figures = {image_file(name): draw(curves), image_file(f"{name}-routing"): draw_served(facts["served"])}
    write_page(folder, name, facts, render(facts, list(figures)), figures)


def _loads(curve: Results) -> Iterator[list[str]]:
    measured = [curve["measured"].get(str(size)) for size in curve["sizes"]]
    if curve["measured"]:
        yield ["measured, LRU", *map(_loads_of, measured), DASH]
    for how, last in (("made", curve["all"]), ("fitted", None)):
        for policy, loads in curve[how].items():
            yield [f"{how}, {policy.upper()}", *map(_loads_of, [*loads, last])]


def _loads_of(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}"


@house_style()
def draw(found: Sequence[Curve]) -> Figure:
    """Draw a panel for each service and kind of add-on."""
    figure, (row,) = panels(len(found), width=3.4 * len(found), height=3.5, share_y=False)
    for axes, curve in zip(row, found, strict=True):
        _panel(axes, curve)
    row[0].set_ylabel("loads per request")
    row[0].legend(loc="upper right", fontsize=7.5)
    return figure


def _panel(axes: Axes, curve: Curve) -> None:
    if curve.fitted:
        axes.plot(curve.sizes, curve.fitted["lru"], color=GREY, linestyle=":", label="LRU, fitted")
    for policy, colour, dash in (("lfu", COLOURS[1], "--"), ("lru", COLOURS[0], "-")):
        axes.plot(curve.sizes, curve.made[policy], dash, color=colour, label=f"{policy.upper()}, made")
    if curve.measured:
        axes.plot([*curve.measured], [*curve.measured.values()], "D", color=INK, markersize=4.5, label="LRU, measured")
    axes.axhline(curve.all, color=EDGE, linewidth=0.7)
    axes.annotate(
        f"unlimited cache: {curve.all:.2g}", (curve.sizes[-1], curve.all), ha="right", va="bottom", fontsize=7.5,
        xytext=(0, 8 if curve.all < 0.1 else 1), textcoords="offset points", color=EDGE,
    )  # fmt: skip
    title = f"{'Service ' if curve.measured else ''}{curve.service}: {NAMES[curve.kind]}"
    axes.set(xscale="log", ylim=(0.0, None), xlabel="size of the cache (add-ons)", title=title)
    axes.set_xticks([1, 2, 4, 8, 16, 32])
    axes.xaxis.set_major_formatter(plain_numbers())
    axes.xaxis.set_minor_formatter("")


@house_style()
def draw_served(facts: Mapping[str, Any]) -> Figure:
    """Draw mean latency and loaded ControlNets per request against the rate, a line for each router."""
    figure, ((latency, loads),) = panels(2, width=9.0, height=3.4, share_y=False)
    names = list(dict.fromkeys(row["name"] for row in facts["routing"]))
    for name, colour in zip(names, COLOURS, strict=False):
        rows = [row for row in facts["routing"] if row["name"] == name]
        rates = [row["rate_rpm"] for row in rows]
        latency.plot(rates, [row["mean_s"] for row in rows], "o-", color=colour, label=name)
        loads.plot(rates, [row["loads_per_request"]["controlnet"] for row in rows], "o-", color=colour)
    latency.set(yscale="log", ylabel="mean latency (s)", title="Routing by add-on: latency")
    latency.yaxis.set_major_formatter(plain_numbers())
    latency.yaxis.set_minor_formatter("")
    loads.set(ylabel="ControlNets loaded per request", title="and loads", ylim=(0, None))
    for axes in (latency, loads):
        axes.set_xlabel("requests per minute, 8 GPUs")
    latency.legend(fontsize=7.5)
    return figure
