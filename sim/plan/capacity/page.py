"""The output of a capacity search: rate.json, one line for the terminal, and the figure."""

from dataclasses import asdict
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from mezzotint.figures.palette import COLOURS, GREY, house_style, plain_numbers
from mezzotint.sim.plan.capacity.search import CONFIDENCE, Capacity, CapacitySpec, interval
from mezzotint.sim.plan.capacity.trials import Trials
from mezzotint.sim.report.compare import Spread, limit_text
from mezzotint.sim.report.figures.palette import legend_below

BAND_RATES = 200
"""Rates at which the figure's interval over replications is drawn."""


def as_json(system: str, spec: CapacitySpec, capacity: Capacity, trials: Trials) -> dict[str, Any]:
    """Return the content of rate.json: rates in requests per minute, shares of requests."""
    target = asdict(spec)
    del target["replications"]
    brackets = zip(capacity.sustained_rpm, capacity.unsustained_rpm, strict=True)
    runs = []
    for trial in capacity.trials:
        values = asdict(trial)
        replication = values.pop("replication")
        folder = trials.folder_name(replication, trial.rate_rpm)
        runs.append({"folder": folder, "seed": trials.seed(replication), **values})
    return {
        "schema": 1,
        "system": system,
        **target,
        "confidence": CONFIDENCE,
        "rate_rpm": _mean_and_ends(capacity.rate_rpm),
        "at_rate": {
            "violation_rate": _mean_and_ends(capacity.violation_rate),
            "backlog_grows": sum(trial.backlog_grows for trial in capacity.at_rate),
        },
        "replications": [
            {"seed": trials.seed(each), "carried_rpm": sustained_rpm, "not_carried_rpm": unsustained_rpm}
            for each, (sustained_rpm, unsustained_rpm) in enumerate(brackets)
        ],
        "runs": runs,
    }


def summary_line(system: str, spec: CapacitySpec, capacity: Capacity) -> str:
    """Return the capacity, its interval and the violations at that rate as one line of text."""
    rate, share = capacity.rate_rpm, capacity.violation_rate
    grows = sum(trial.backlog_grows for trial in capacity.at_rate)
    queue = f", the backlog of {grows} of {spec.replications} replications grows" if grows else ""
    return (
        f"{system}: {rate.mean:.4g} requests per minute ({_interval_words(spec)} {rate.low:.4g} to {rate.high:.4g}) "
        f"with at most {spec.violations:.1%} over {spec.slo}; "
        f"at that rate {share.mean:.1%} ({share.low:.1%} to {share.high:.1%}) of the requests exceed the limit{queue}"
    )


@house_style()
def draw(system: str, spec: CapacitySpec, capacity: Capacity) -> Figure:
    """Draw the share of requests over the limit against the rate: every run, the mean's interval, the capacity."""
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    panel = figure.add_subplot()
    colour, rate = COLOURS[0], capacity.rate_rpm
    grid, curves = np.geomspace(spec.from_rpm, spec.to_rpm, BAND_RATES), []
    for each in range(spec.replications):  # interpolated between the rates that it ran at
        own = [trial for trial in capacity.trials if trial.replication == each]
        at, shares = np.log([trial.rate_rpm for trial in own]), [trial.violation_rate for trial in own]
        curves.append(np.interp(np.log(grid), at, shares))
    means = [interval(column) for column in np.transpose(curves)]
    panel.plot(grid, [each.mean for each in means], color=colour)
    low, high = [max(0.0, each.low) for each in means], [min(1.0, each.high) for each in means]
    panel.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
    for grows, marker in ((False, "o"), (True, "x")):
        some = [trial for trial in capacity.trials if trial.backlog_grows is grows]
        rates, shares = [trial.rate_rpm for trial in some], [trial.violation_rate for trial in some]
        panel.plot(rates, shares, marker, markersize=4, color=colour, zorder=3, clip_on=False)
    panel.axhline(spec.violations, color=GREY, linestyle="--")
    panel.axvspan(rate.low, rate.high, color=COLOURS[1], alpha=0.2, linewidth=0)
    panel.axvline(rate.mean, color=COLOURS[1])
    panel.set(xscale="log", xlim=(spec.from_rpm, spec.to_rpm), ylim=(0, 1.02))
    panel.xaxis.set_major_formatter(plain_numbers())
    panel.xaxis.set_minor_formatter(plain_numbers())
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set(xlabel="Request rate (requests/min)", ylabel=f"Requests over the limit, {limit_text(spec.slo)}")
    panel.set_title(
        f"{system}: {rate.mean:.3g} requests per minute ({_interval_words(spec)} {rate.low:.3g} to {rate.high:.3g})",
        loc="left",
        fontsize=10,
    )
    handles = [
        Line2D([], [], color=colour, linestyle="", marker="o", markersize=4, label="run"),
        Line2D([], [], color=colour, linestyle="", marker="x", markersize=4, label="run whose backlog grows"),
        Line2D([], [], color=colour, linewidth=6, alpha=0.3, label=f"mean over seeds, {CONFIDENCE:.0%} interval"),
        Line2D([], [], color=GREY, linestyle="--", label=f"target: at most {spec.violations:.1%}"),
        Line2D([], [], color=COLOURS[1], linewidth=6, alpha=0.4, label="capacity and its interval"),
    ]
    legend_below(figure, handles, [str(handle.get_label()) for handle in handles])
    return figure


def _interval_words(spec: CapacitySpec) -> str:
    # the interval of a single replication is the rest of its bisection
    return f"{CONFIDENCE:.0%} interval" if spec.replications > 1 else "from"


def _mean_and_ends(spread: Spread) -> dict[str, float]:
    return {"mean": spread.mean, "low": spread.low, "high": spread.high}
