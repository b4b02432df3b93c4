"""Page and figure of the replayed runs: predicted against measured, and one distribution."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import mezzotint.figures.page
from mezzotint.figures.page import DASH, percent
from mezzotint.figures.palette import COLOURS, EDGE, GREY, INK, house_style, panels
from mezzotint.sim.papers.hardware.results import BANDED
from mezzotint.sim.papers.study import Results

NAMES = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9", "max": "maximum"}

MEASURE_COLOURS = {"p50": COLOURS[0], "p90": COLOURS[2], "p99": COLOURS[1]}
"""Colours of the measures in the scatter plots."""


def render(facts: Results, image: str) -> str:
    """Fill the page with the JSON file's content; ``image`` is the figure's file name, if any."""
    runs = facts["submissions"]
    scheduled = [each["scheduled_qps"] for each in runs if each["scheduled_qps"]["logged"] is not None]
    keys = ("median", "p90", "unfitted_median")
    return mezzotint.figures.page.render(
        __package__,
        "page.md.jinja",
        facts=facts,
        image=image,
        equal=sum(f"{rate['ours']:.2f}" == f"{rate['logged']:.2f}" for rate in scheduled),
        errors=[(name, *(percent(facts["errors"][of][key], 2) for key in keys)) for of, name in NAMES.items()],
        above=[run for run in runs if run["load"] > 1],
        runs=[_submission(run) for run in runs],
        planned=[
            run
            | {
                "same": run["planned_gpus"] == run["gpus"],
                "unfitted_load": run["unfitted"]["image_s"] * run["target_qps"] / run["gpus"],
            }
            for run in runs
            if run["unfitted"] is not None and "planned_gpus" in run
        ],
        routed=[_routed(run) for run in facts["routed"]],
        in_bands=_in_bands(facts["routed"]),
    )


def tally(facts: Results) -> str:
    """Return the median errors in a line."""
    errors = [f"{NAMES[name]} {percent(facts['errors'][name]['median'], 2)}" for name in ("p50", "p90", "p99", "max")]
    runs = len(facts["submissions"])
    line = f"{runs} submissions ({facts['form']}), median error: {', '.join(errors)}" if runs else "no submissions"
    return line + (f"; {_in_bands(facts['routed'])}" if facts["routed"] else "")


def _in_bands(runs: Sequence[Results]) -> str:
    """Return in words how many measured values are in the band of draws, and the distance of the others."""
    distances, planned = _outside(runs), _outside([each for each in runs if each["routing"] != "random"])
    line = (
        f"routed, nothing fitted: {distances.count(0)} of {len(distances)} measured means and p99 in the band of draws"
    )
    return line + (f"; without random routing at most {percent(max(planned), 2)} outside" if planned else "")


def _outside(runs: Sequence[Results]) -> list[float]:
    found = (each["outside"][name] for each in runs for name in BANDED)
    return [abs(value) for value in found if value is not None]


def _submission(run: Results) -> list[str]:
    fitted, unfitted = run["fitted"], run["unfitted"]

    def pairs(prediction: Results | None, *measures: str) -> list[str]:
        ours = prediction["latency_s"] if prediction is not None else {}
        return [f"{_seconds(run['measured_s'].get(name))} → {_seconds(ours.get(name))}" for name in measures]

    def band(prediction: Results | None, share: int) -> str:
        if prediction is None:
            return DASH
        return spread(prediction["latency_s"]["p99"], prediction["p99_with_service_moved_s"], share)

    return [
        f"{run['name']} ({run['accelerator']})",
        *(str(run["gpus"]), f"{run['load']:.3f}", _seconds(run["measured_s"]["mean"])),
        *pairs(fitted, "p50", "p90", "p99"),
        percent(fitted["error"]["p99"], sign=True),
        *pairs(fitted, "p999", "max"),
        *(band(fitted, share) for share in (1, 2, 3)),
        *pairs(unfitted, "mean", "p99"),
        band(unfitted, 3),
        percent(unfitted and unfitted["error"]["p99"], sign=True),
    ]


def _routed(each: Results) -> list[str]:
    cells = [each["workload"], f"{each['rate_per_s']:g}", each["routing"]]
    for name in BANDED:
        measured, outside = each["measured_s"].get(name), each["outside"][name]
        low, high = each["nine_in_ten_draws_s"][name]
        cells += [DASH if measured is None else f"{measured:g}", f"{low:.2f} to {high:.2f}"]
        cells += ["in the band" if outside == 0 else percent(outside, sign=True)]
    median_s = each["predicted_s"]["p99"]
    changed_s = {change: latency_s["p99"] for change, latency_s in each["with_service_moved_s"].items()}
    return [*cells, _seconds(median_s), *(spread(median_s, changed_s, share) for share in (1, 2, 3))]


def spread(predicted_s: float, changed_s: Mapping[str, float], share: int) -> str:
    """Return the range of a prediction if the service time changes by up to ``share`` per cent."""
    within = [value for change, value in changed_s.items() if abs(float(change.removesuffix("%"))) <= share]
    return f"{min([predicted_s, *within]):.2f} to {max([predicted_s, *within]):.2f}" if within else DASH


def _seconds(value: float | None) -> str:
    return DASH if value is None else f"{value:.2f}"


@house_style()
def draw(facts: Results) -> Figure | None:
    """Draw the fitted predictions, those with nothing fitted, and a distribution; return None without a submission."""
    if not facts["submissions"]:
        return None
    figure, ((fitted, unfitted, distribution),) = panels(3, width=12.6, height=4.4, share_y=False)
    _diagonal(fitted, facts, "fitted", f"{len(facts['submissions'])} MLPerf SDXL runs: mean fitted")
    _diagonal(unfitted, facts, "unfitted", "Nothing fitted: the offline rate")
    _distribution(distribution, facts["distribution"])
    return figure


def _diagonal(axes: Axes, facts: Results, which: str, title: str) -> None:
    ends = []
    for measure, colour in MEASURE_COLOURS.items():
        runs = [run for run in facts["submissions"] if measure in run["measured_s"] and run[which] is not None]
        measured = np.array([run["measured_s"][measure] for run in runs])
        predicted = np.array([run[which]["latency_s"][measure] for run in runs])
        changed = [run[which]["p99_with_service_moved_s"] for run in runs]
        if measure == "p99" and all(changed):
            low, high = (np.array([pick(each.values()) for each in changed]) for pick in (min, max))
            bars = np.abs(np.array([low, high]) - predicted)
            axes.errorbar(measured, predicted, bars, linestyle="", color=colour, alpha=0.35, linewidth=1)
        error = np.median(np.abs(predicted / measured - 1)) if len(runs) else np.nan
        axes.plot(measured, predicted, "o", color=colour, markersize=4, alpha=0.8, label=f"{measure}: {error:.1%} off")
        ends += [*measured, *predicted]
    line = [min(ends, default=1.0) * 0.9, max(ends, default=1.0) * 1.1]
    axes.plot(line, line, color=EDGE, linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlim=line, ylim=line, xlabel="measured latency (s)", title=title)
    axes.set_ylabel("simulated (s); bars: p99 with service time ±3 %")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")
        axis.set_tick_params(which="both", labelsize=7)
    axes.legend(title="median error", loc="lower right")


def _distribution(axes: Axes, stored: Mapping[str, Any]) -> None:
    latency_s = np.array(stored["latency_s"])
    axes.plot(latency_s, np.linspace(0, 1, len(latency_s)), color=COLOURS[0], linewidth=2, label="simulated")
    measured = {float(share): value for share, value in stored["measured"].items()}
    axes.plot([*measured.values()], [*measured], "D", color=INK, markersize=4.5, label="the log's percentiles")
    for share in (0.5, 0.99):
        axes.axhline(share, color=GREY, linewidth=0.6, linestyle=":")
    axes.set(xlabel="latency (s)", ylabel="share of requests", ylim=(-0.02, 1.03))
    parts = stored["name"].split(", ")
    axes.set_title(", ".join(parts[:3]) + (f"\n{', '.join(parts[3:])}" if len(parts) > 3 else ""))
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend(loc="lower right")
