"""What a search for the highest rate found: the file that holds it, its line, and its figure."""

from dataclasses import asdict
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from conf.palette import COLOURS, GREY, house_style, plain_numbers
from sim.plan.capacity.points import Points
from sim.plan.capacity.search import CONFIDENCE, Found, Question, interval
from sim.report.compare import Spread, limit_words
from sim.report.palette import below

FINE = 200
"""Rates at which the band over replications is drawn."""


def facts(system: str, question: Question, found: Found, points: Points) -> dict[str, Any]:
    """rate.json: rates in requests per minute, shares of requests."""
    asked = asdict(question)
    del asked["replications"]
    ends = zip(found.carried_rpm, found.not_carried_rpm, strict=True)
    runs = []
    for point in found.points:
        known = asdict(point)
        replication = known.pop("replication")
        runs.append({"folder": points.name(replication, point.rate_rpm), "seed": points.seed(replication), **known})
    return {
        "schema": 1,
        "system": system,
        **asked,
        "confidence": CONFIDENCE,
        "rate_rpm": _ends(found.rate_rpm),
        "at_rate": {
            "violation_rate": _ends(found.violation_rate),
            "backlog_grows": sum(point.backlog_grows for point in found.at_rate),
        },
        "replications": [
            {"seed": points.seed(each), "carried_rpm": carried_rpm, "not_carried_rpm": not_carried_rpm}
            for each, (carried_rpm, not_carried_rpm) in enumerate(ends)
        ],
        "runs": runs,
    }


def line(system: str, question: Question, found: Found) -> str:
    """The answer in one line."""
    rate, share = found.rate_rpm, found.violation_rate
    grows = sum(point.backlog_grows for point in found.at_rate)
    queue = f", the backlog of {grows} of {question.replications} grows" if grows else ""
    return (
        f"{system}: {rate.mean:.4g} requests per minute ({_of(question)} {rate.low:.4g} to {rate.high:.4g}) "
        f"with at most {question.violations:.1%} over {question.slo}; "
        f"at that rate {share.mean:.1%} ({share.low:.1%} to {share.high:.1%}) of the requests are over it{queue}"
    )


@house_style()
def draw(system: str, question: Question, found: Found) -> Figure:
    """The share of requests over the limit against the rate: every run, their mean with its interval, the answer."""
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    panel = figure.add_subplot()
    colour, rate = COLOURS[0], found.rate_rpm
    grid, curves = np.geomspace(question.from_rpm, question.to_rpm, FINE), []
    for each in range(question.replications):  # taken as straight between the rates it ran at
        own = [point for point in found.points if point.replication == each]
        at, shares = np.log([point.rate_rpm for point in own]), [point.violation_rate for point in own]
        curves.append(np.interp(np.log(grid), at, shares))
    means = [interval(column) for column in np.transpose(curves)]
    panel.plot(grid, [each.mean for each in means], color=colour)
    low, high = [max(0.0, each.low) for each in means], [min(1.0, each.high) for each in means]
    panel.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
    for grows, marker in ((False, "o"), (True, "x")):
        some = [point for point in found.points if point.backlog_grows is grows]
        rates, shares = [point.rate_rpm for point in some], [point.violation_rate for point in some]
        panel.plot(rates, shares, marker, markersize=4, color=colour, zorder=3, clip_on=False)
    panel.axhline(question.violations, color=GREY, linestyle="--")
    panel.axvspan(rate.low, rate.high, color=COLOURS[1], alpha=0.2, linewidth=0)
    panel.axvline(rate.mean, color=COLOURS[1])
    panel.set(xscale="log", xlim=(question.from_rpm, question.to_rpm), ylim=(0, 1.02))
    panel.xaxis.set_major_formatter(plain_numbers())
    panel.xaxis.set_minor_formatter(plain_numbers())
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set(xlabel="Request rate (requests/min)", ylabel=f"Requests over the limit, {limit_words(question.slo)}")
    panel.set_title(
        f"{system}: {rate.mean:.3g} requests per minute ({_of(question)} {rate.low:.3g} to {rate.high:.3g})",
        loc="left",
        fontsize=10,
    )
    handles = [
        Line2D([], [], color=colour, linestyle="", marker="o", markersize=4, label="a run"),
        Line2D([], [], color=colour, linestyle="", marker="x", markersize=4, label="a run whose backlog grows"),
        Line2D([], [], color=colour, linewidth=6, alpha=0.3, label=f"mean over seeds, {CONFIDENCE:.0%}"),
        Line2D([], [], color=GREY, linestyle="--", label=f"{question.violations:.1%}, as asked"),
        Line2D([], [], color=COLOURS[1], linewidth=6, alpha=0.4, label="highest rate, and its interval"),
    ]
    below(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def _of(question: Question) -> str:
    """What the interval of the answer is: of replications, or what bisection left open of one."""
    return f"{CONFIDENCE:.0%} interval" if question.replications > 1 else "from"


def _ends(found: Spread) -> dict[str, float]:
    return {"mean": found.mean, "low": found.low, "high": found.high}
