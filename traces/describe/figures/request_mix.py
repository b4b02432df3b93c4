"""Panels of the mix of requests: sizes, steps, images, base models, ControlNets and LoRAs."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from mezzotint.figures.palette import GREY
from mezzotint.traces.describe.figures.axes import Series, empty, logarithmic, published, shares
from mezzotint.traces.describe.mix import Mix, Popularity

MAX_BARS = 8
"""Values drawn each as a bar; rarer ones share one bar."""

NAMES = {"base_model": "base models", "controlnets": "ControlNets", "loras": "LoRAs"}
MARKERS = {"A": "s", "B": "^"}

Use = dict[str, Popularity | None]


def values(what: str, title: str, label: str) -> Callable[[Axes, Series[Mix]], None]:
    """Return a panel of the most frequent values of a column of `mezzotint.traces.describe.mix.COLUMNS`."""

    def panel_of(panel: Axes, series: Series[Mix]) -> None:
        # in the order of the first trace that has any
        known = [(look, found[what]) for look, found in series if found[what]]
        order = [value for value, _ in known[0][1][:MAX_BARS]] if known else []
        extra = any(len(found) > len(order) for _, found in known)
        for look, found in known:
            share = dict(found)
            heights = [share.pop(value, 0.0) for value in order] + ([sum(share.values())] if extra else [])
            shift, width = look.offset(0.75)
            at = np.arange(len(heights)) + shift
            bars = panel.barh(at, heights, width, color=look.colour)
            panel.bar_label(bars, [f"{height:.1%}" for height in heights], fontsize=7.5, padding=2)
        names = [*(value.replace("x", " × ") for value in order), *["other"] * extra]
        panel.set_yticks(range(len(names)), names)
        panel.invert_yaxis()
        panel.margins(x=0.16)
        panel.grid(False, axis="y")
        panel.xaxis.set_major_formatter(PercentFormatter(1.0))
        panel.set_xlim(left=0.0)
        panel.set(xlabel="Share of the requests", ylabel=label, title=title)
        if not known:
            empty(panel, "unknown")

    return panel_of


def calls(what: str) -> Callable[[Axes, Series[Use]], None]:
    """Return a panel of the share of the calls that go to the most popular of one kind."""

    def panel_of(panel: Axes, series: Series[Use]) -> None:
        drawn = False
        for look, found in series:
            use = found[what]
            if use is None or not len(use.calls):
                continue
            share = np.cumsum(use.calls) / use.calls.sum()
            ranks = np.arange(1, len(share) + 1)
            panel.plot(ranks, share, color=look.colour, label=look.label, marker="o" if len(share) < 20 else "")
            drawn = True
        for name, service in published()["services"].items() if what in ("controlnets", "loras") else ():
            points = service[what]["share_of_top"]
            mark = {"marker": MARKERS[name], "color": GREY, "markersize": 5, "label": service["source"]}
            panel.plot(list(points), list(points.values()), linestyle="", **mark)
        logarithmic(panel, "x")
        shares(panel, "Share of the calls")
        panel.set(xlabel=f"Most popular {NAMES[what]}", title=f"Popularity of {NAMES[what]}")
        if drawn and what != "base_model":
            panel.legend(fontsize=7.5, loc="lower right")
        if not drawn:
            empty(panel, "unknown")

    return panel_of


def per_request(what: str) -> Callable[[Axes, Series[Use]], None]:
    """Return a panel of the number of one kind that a request uses, if known."""

    def panel_of(panel: Axes, series: Series[Use]) -> None:
        longest = 0
        for look, found in series:
            use = found[what]
            if use is not None:
                shift, width = look.offset(0.6)
                panel.bar(np.arange(len(use.per_request)) + shift, use.per_request, width, color=look.colour)
                longest = max(longest, len(use.per_request))
        for name, service in published()["services"].items():
            known = service[what]["per_request"]
            mark = {"marker": MARKERS[name], "color": GREY, "label": service["source"]}
            panel.plot(range(len(known)), known, linestyle="", **mark)
            longest = max(longest, len(known))
        panel.set_xticks(range(longest))
        panel.grid(False, axis="x")
        shares(panel, "Share of the requests")
        panel.set(xlabel=f"{NAMES[what]} of a request", title=f"{NAMES[what]} per request")
        panel.legend(fontsize=7.5)

    return panel_of
