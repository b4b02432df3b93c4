"""Predicted against measured on the diagonal, one point a run; and one distribution in full."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from conf.palette import COLOURS, EDGE, GREY, INK, house_style, panels

Facts = Mapping[str, Any]
"""The card as its JSON has it (card.plain)."""

SHOWN = {"p50": COLOURS[0], "p90": COLOURS[2], "p99": COLOURS[1]}
"""Measures on the diagonal, by colour."""


@house_style()
def draw(facts: Facts) -> Figure | None:
    """Three panels: the fitted predictions, those with nothing fitted, the distribution; None without a submission."""
    if not facts["submissions"]:
        return None
    figure, ((fitted, unfitted, distribution),) = panels(3, width=12.6, height=4.4, share_y=False)
    _diagonal(fitted, facts, "fitted", f"{len(facts['submissions'])} MLPerf SDXL runs: mean fitted")
    _diagonal(unfitted, facts, "unfitted", "Nothing fitted: the offline rate")
    _distribution(distribution, facts["distribution"])
    return figure


def _diagonal(axes: Axes, facts: Facts, which: str, title: str) -> None:
    ends = []
    for measure, colour in SHOWN.items():
        runs = [run for run in facts["submissions"] if measure in run["measured_s"] and run[which] is not None]
        measured = np.array([run["measured_s"][measure] for run in runs])
        said = np.array([run[which]["latency_s"][measure] for run in runs])
        moved = [run[which]["p99_with_service_moved_s"] for run in runs]
        if measure == "p99" and all(moved):
            low, high = (np.array([pick(each.values()) for each in moved]) for pick in (min, max))
            bars = np.abs(np.array([low, high]) - said)
            axes.errorbar(measured, said, bars, linestyle="", color=colour, alpha=0.35, linewidth=1)
        error = np.median(np.abs(said / measured - 1)) if len(runs) else np.nan
        axes.plot(measured, said, "o", color=colour, markersize=4, alpha=0.8, label=f"{measure}: {error:.1%} off")
        ends += [*measured, *said]
    line = [min(ends, default=1.0) * 0.9, max(ends, default=1.0) * 1.1]
    axes.plot(line, line, color=EDGE, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlim=line, ylim=line, xlabel="measured latency (s)", title=title)
    axes.set_ylabel("simulated (s); bars: p99 if the service took ±3 %")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")
        axis.set_tick_params(which="both", labelsize=7)
    axes.legend(title="median error", loc="lower right")


def _distribution(axes: Axes, shown: Mapping[str, Any]) -> None:
    latency_s = np.array(shown["latency_s"])
    axes.plot(latency_s, np.linspace(0, 1, len(latency_s)), color=COLOURS[0], linewidth=2, label="simulated")
    measured = {float(share): value for share, value in shown["measured"].items()}
    axes.plot([*measured.values()], [*measured], "D", color=INK, markersize=4.5, label="the log's percentiles")
    for share in (0.5, 0.99):
        axes.axhline(share, color=GREY, linewidth=0.6, linestyle=":")
    axes.set(xlabel="latency (s)", ylabel="requests no slower", ylim=(-0.02, 1.03))
    axes.set_title(_wrapped(shown["name"]))
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend(loc="lower right")


def _wrapped(name: str) -> str:
    parts = name.split(", ")
    return f"{', '.join(parts[:3])}\n{', '.join(parts[3:])}" if len(parts) > 3 else name
