"""Panels of the mix of requests: sizes, steps, images, base models, ControlNets and LoRAs."""

from typing import Any

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


def values(panel: Axes, series: Series[Mix], *, what: str, title: str, label: str) -> None:
    """Draw the most frequent values of a column of `mezzotint.traces.describe.mix.COLUMNS`."""
    # in the order of the first trace that has any
    known = [(look, counts[what]) for look, counts in series if counts[what]]
    order = [value for value, _ in known[0][1][:MAX_BARS]] if known else []
    extra = any(len(counts) > len(order) for _, counts in known)
    for look, counts in known:
        share = dict(counts)
        heights = [share.pop(value, 0.0) for value in order] + ([sum(share.values())] if extra else [])
        shift, width = look.offset(0.75)
        bars = panel.barh(np.arange(len(heights)) + shift, heights, width, color=look.colour)
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


def calls(panel: Axes, series: Series[Use], *, what: str) -> None:
    """Draw the share of the calls that go to the most popular of one kind."""
    known = [(look, use) for look, counts in series if (use := counts[what]) is not None and len(use.calls)]
    for look, use in known:
        share = np.cumsum(use.calls) / use.calls.sum()
        marker = "o" if len(share) < 20 else ""
        panel.plot(np.arange(1, len(share) + 1), share, color=look.colour, label=look.label, marker=marker)
    if what != "base_model":
        _mark_published(panel, what, "share_of_top", markersize=5)
    logarithmic(panel, "x")
    shares(panel, "Share of the calls")
    panel.set(xlabel=f"Most popular {NAMES[what]}", title=f"Popularity of {NAMES[what]}")
    if known and what != "base_model":
        panel.legend(fontsize=7.5, loc="lower right")
    if not known:
        empty(panel, "unknown")


def per_request(panel: Axes, series: Series[Use], *, what: str) -> None:
    """Draw the number of one kind that a request uses, if known."""
    longest = _mark_published(panel, what, "per_request")
    for look, counts in series:
        use = counts[what]
        if use is not None:
            shift, width = look.offset(0.6)
            panel.bar(np.arange(len(use.per_request)) + shift, use.per_request, width, color=look.colour)
            longest = max(longest, len(use.per_request))
    panel.set_xticks(range(longest))
    panel.grid(False, axis="x")
    shares(panel, "Share of the requests")
    panel.set(xlabel=f"{NAMES[what]} of a request", title=f"{NAMES[what]} per request")
    panel.legend(fontsize=7.5)


def _mark_published(panel: Axes, what: str, statistic: str, **style: Any) -> int:
    """Mark a statistic of Katz's services. Returns its largest number of points."""
    longest = 0
    for name, service in published()["services"].items():
        points = service[what][statistic]
        x, y = (points.keys(), points.values()) if isinstance(points, dict) else (range(len(points)), points)
        panel.plot(list(x), list(y), MARKERS[name], color=GREY, label=service["source"], **style)
        longest = max(longest, len(points))
    return longest
