"""The page on add-ons as Markdown."""

from collections.abc import Iterator, Sequence

import conf.page
from conf.page import DASH
from sim.study.addons.figure import NAMES
from sim.study.verdicts import Facts


def render(facts: Facts, images: Sequence[str]) -> str:
    """Fill the page with the study's JSON; ``images`` are the file names of the figures on caches and on routing."""
    curves, routing, placement = facts["caches"]["curves"], [], []
    for row in facts["served"]["routing"]:
        loads = (f"{row['loads_per_request'][kind]:.2f}" for kind in ("controlnet", "lora"))
        routing.append((row["name"], f"{row['rate_rpm']:g}", f"{row['mean_s']:.1f}", f"{row['p95_s']:.1f}", *loads))
    for row in facts["served"]["placement"]:
        seconds = (f"{row[key]:.2f}" for key in ("turns_s", "mean_s", "p95_s"))
        placement.append((row["name"], ", ".join(f"{load:.2f}" for load in row["load"]), *seconds))
    return conf.page.render(
        __package__,
        "page.md.jinja",
        facts=facts,
        images=images,
        names=NAMES,
        curves=[(curve, ("size", *curve["sizes"], "all"), list(_loads(curve))) for curve in curves],
        routing=routing,
        placement=placement,
    )


def _loads(curve: Facts) -> Iterator[list[str]]:
    measured = [curve["measured"].get(str(size)) for size in curve["sizes"]]
    if curve["measured"]:
        yield ["measured, LRU", *map(_loads_of, measured), DASH]
    for how, last in (("made", curve["all"]), ("fitted", None)):
        for policy, loads in curve[how].items():
            yield [f"{how}, {policy.upper()}", *map(_loads_of, [*loads, last])]


def _loads_of(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}"
