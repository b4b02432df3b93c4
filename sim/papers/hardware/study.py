"""The study: replays, their errors, the figure and the page."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from mezzotint.figures.page import DASH, percent
from mezzotint.figures.palette import COLOURS, EDGE, GREY, INK, house_style, panels
from mezzotint.sim.papers.hardware import llmd
from mezzotint.sim.papers.hardware.llmd import RoutedRun, replay_routing, routed_config
from mezzotint.sim.papers.hardware.mlperf import (
    QUANTILES,
    SCORED,
    SERVICE_TIME_CHANGES,
    Floats,
    OfflineRun,
    Submission,
    image_s_by_round,
    physical,
    replay_at,
    replay_submission,
)
from mezzotint.sim.papers.rows import read_rows
from mezzotint.sim.papers.scorecard.targets import REL_TOL
from mezzotint.sim.papers.study import (
    DATA,
    RESULTS,
    Check,
    Comparison,
    Jobs,
    Output,
    Quick,
    Results,
    RunsOn,
    Study,
    read_committed,
    report_lost,
)
from mezzotint.sim.run.pool import Launcher, run_calls

SUBMISSIONS, ROUTED = DATA / "mlperf-sdxl-server.csv", DATA / "llmd-routing.csv"
OFFLINE = DATA / "mlperf-sdxl-offline.csv"

COMPARED = ("p50", "p90", "p99")
"""Measures of a submission that --check compares, within REL_TOL."""

LIMIT = 0.02
"""Median error of p99 above which --check fails."""

BANDED = ("mean", "p99")
"""Measures of a routed run that the page shows and --check compares with the band of the draws."""

MAX_OUTSIDE = max(SERVICE_TIME_CHANGES)
"""Largest distance of a measured value from the band: the precision of the service times."""

PART = 6
"""--quick replays every sixth submission from the first."""

POINTS = 400
"""Quantiles of the distribution that is stored."""

NAMES = {"mean": "mean", "p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9", "max": "maximum"}

MEASURE_COLOURS = {"p50": COLOURS[0], "p90": COLOURS[2], "p99": COLOURS[1]}
"""Colours of the measures in the scatter plots."""

OF_USER = "of your own, a CSV as in conf/data, instead of all packaged ones"


def compare(
    runs: Annotated[Path | None, typer.Option(metavar="FILE", help=f"MLPerf SDXL server runs {OF_USER}")] = None,
    routing: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"runs of a mix or a trace {OF_USER}"),
    ] = None,
    quick: Quick = False,
    check: Check = False,
    jobs: Jobs = 1,
    launcher: RunsOn = "joblib",
    output: Output = RESULTS,
) -> int:
    """Replay published runs of real machines, and write hardware.md, .json and .svg.

    Raises:
        ConfigError: a file cannot be read or written, or a row cannot be replayed.
    """
    is_packaged = runs is None and routing is None
    before = read_committed(output / f"{STUDY.name}.json", comparisons) if check and is_packaged else {}
    if is_packaged:
        runs, routing = SUBMISSIONS, ROUTED
    submissions = read_rows(runs, Submission)[:: PART if quick else 1] if runs is not None else []
    routed = read_rows(routing, RoutedRun) if routing is not None else []
    if not check:
        STUDY.refuse_loss(output, [row.name for row in submissions], quick=quick)
    for row in routed:
        routed_config(row)  # an unknown mix or router is refused before hours of other work
    calls: list[Callable[[], Any]]
    calls = [partial(replay_submission, row, with_sensitivity=not check) for row in submissions]
    calls += [partial(replay_routing, row, llmd.DRAWS, with_sensitivity=not check) for row in routed]
    done = list(tqdm(run_calls(calls, jobs, launcher), total=len(calls), unit="run", desc=STUDY.name, disable=None))
    predict_by_kind(submissions, [run for run, _ in done[: len(submissions)]], jobs, launcher)
    form = f"every {PART}th submission" if quick else "in full"
    facts = facts_of(form, done[: len(submissions)], done[len(submissions) :])
    if is_packaged:
        facts["rounds"] = image_s_by_round(read_rows(OFFLINE, OfflineRun))
    else:
        facts |= {"of_user": {"runs": str(runs), "routing": str(routing)}, "note": "runs of the user's own"}
    if not check:
        STUDY.write(facts, output, f"{STUDY.name}-quick" if quick else "")
    print(tally(facts))
    if not check:
        return 0
    now = comparisons(facts)
    if not is_packaged:  # no verdicts are committed: the median and every routed run must be within tolerance
        now = required(facts)
        before = {name: replace(row, within_tolerance=True) for name, row in now.items()}
    elif quick:
        before = {name: row for name, row in before.items() if name in now}
    return report_lost(before, now)


def predict_by_kind(
    rows: Sequence[Submission], runs: Sequence[dict[str, Any]], jobs: int = 1, launcher: Launcher = "joblib"
) -> None:
    """Add to each run the prediction ``by_kind``, from its offline rate and the other runs of its kind of GPU alone.

    Their median ratio of the server's seconds per image to the offline ones stands for its own, so that nothing is
    fitted on the run. None without another run of the kind, or without an offline rate.
    """
    ratios: dict[int, float] = {}
    for index, run in enumerate(runs):
        others = [_ratio(other) for other in _of_kind(run["accelerator"], runs) if other is not run]
        if run["unfitted"] is not None and others:
            ratios[index] = float(np.median(others))
    calls = [partial(replay_at, rows[index], ratio) for index, ratio in ratios.items()]
    predicted: dict[int, Results] = dict(zip(ratios, run_calls(calls, jobs, launcher), strict=True))
    for index, run in enumerate(runs):
        run["by_kind"] = predicted.get(index)


def _of_kind(accelerator: str, runs: Sequence[Results]) -> list[Results]:
    """Return the runs with an offline rate on a kind of GPU."""
    return [run for run in runs if run["unfitted"] and physical(run["accelerator"]) == physical(accelerator)]


def _ratio(run: Results) -> float:
    """Return the seconds per image of the server run, fitted, over those of the offline run."""
    return float(run["fitted"]["image_s"] / run["unfitted"]["image_s"])


def facts_of(form: str, submissions: Sequence[tuple[Results, Floats]], routed: Sequence[Results]) -> dict[str, Any]:
    """Return the content of the JSON file; ``form`` is ``in full``, or the part that was replayed."""
    runs, distribution = [run for run, _ in submissions], None
    if submissions:  # at the highest load, chance matters most
        run, latencies_s = max(submissions, key=lambda pair: pair[0]["load"])
        shares = {"min": 0.0, "max": 1.0, **QUANTILES}
        levels = np.quantile(latencies_s, np.linspace(0, 1, POINTS + 1))
        distribution = {
            "name": run["name"],
            "latency_s": [round(float(level), 6) for level in levels],
            "measured": {
                f"{share:g}": run["measured_s"][of] for of, share in shares.items() if of in run["measured_s"]
            },
        }
    return {
        "form": form,
        "note": "MLPerf results are cited by round, division, submitter and system; not verified by MLCommons",
        "errors": {measure: _errors(runs, measure) for measure in ("mean", *SCORED)},
        "submissions": runs,
        "routed": list(routed),
        "distribution": distribution,
    }


def _errors(runs: Sequence[Results], measure: str) -> dict[str, float | None]:
    """Return quantiles of the absolute errors of the submissions that report the measure."""
    absolute = {}
    for which in ("fitted", "unfitted", "by_kind"):
        errors = [run[which]["error"][measure] for run in runs if run.get(which) is not None]
        absolute[which] = [abs(error) for error in errors if error is not None]

    def quantile(which: str, share: float) -> float | None:
        return float(np.quantile(absolute[which], share)) if absolute[which] else None

    return {
        "median": quantile("fitted", 0.5),
        "p90": quantile("fitted", 0.9),
        "runs": len(absolute["fitted"]),
        "unfitted_median": quantile("unfitted", 0.5),
        "by_kind_median": quantile("by_kind", 0.5),
    }


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare the runs of the JSON file with the measurements: submissions by measure, then `required`."""
    rows = {}
    for run in facts["submissions"]:
        for measure in COMPARED:
            error = run["fitted"]["error"][measure]
            if error is not None:
                expected = f"{run['measured_s'][measure]:.4g} s within {REL_TOL:.0%}"
                ours = f"{run['fitted']['latency_s'][measure]:.4g} s"
                rows[f"{run['name']}, {measure}"] = Comparison(expected, ours, abs(error) <= REL_TOL)
    return rows | required(facts)


def required(facts: Results) -> dict[str, Comparison]:
    """Compare the median error of p99 with `LIMIT`, and the routed runs with the measurements."""
    rows, error = {}, facts["errors"]["p99"]["median"]
    if error is not None:
        rows["median error of p99"] = Comparison(f"at most {LIMIT:.0%}", f"{error:.2%}", error <= LIMIT)
    for run in facts["routed"]:
        for measure in BANDED:
            outside, (low, high) = run["outside"][measure], run["nine_in_ten_draws_s"][measure]
            if outside is not None:
                name = f"mix {run['workload']} at {run['rate_per_s']:g}/s, {run['routing']}, {measure}"
                measured = f"{run['measured_s'][measure]:g} s"
                expected = f"{measured} at most {MAX_OUTSIDE:.0%} outside the band of {run['draws']} draws"
                rows[name] = Comparison(expected, f"{low:.4g} to {high:.4g} s", abs(outside) <= MAX_OUTSIDE)
    return rows


def tally(facts: Results) -> str:
    """Return the median errors in a line."""
    errors = [f"{NAMES[name]} {percent(facts['errors'][name]['median'], 2)}" for name in ("p50", "p90", "p99", "max")]
    runs = len(facts["submissions"])
    line = f"{runs} submissions ({facts['form']}), median error: {', '.join(errors)}" if runs else "no submissions"
    return line + (f"; {_in_bands(facts['routed'])}" if facts["routed"] else "")


def _in_bands(runs: Sequence[Results]) -> str:
    """Return in words how many measured values are in the band of draws, and the distance of the others."""
    pairs = [(run["routing"], name, run["outside"][name]) for run in runs for name in BANDED]
    distances = [(routing, name, abs(distance)) for routing, name, distance in pairs if distance is not None]
    planned = [distance for routing, _, distance in distances if routing != "random"]
    inside = sum(distance == 0 for *_, distance in distances)
    near = sum(distance <= llmd.REPETITION[name] for _, name, distance in distances)
    line = f"routed, nothing fitted: {inside} of {len(distances)} measured means and p99 in the band of draws"
    line += f", {near} within the difference of a repetition of it"
    return line + (f"; without random routing at most {percent(max(planned), 2)} outside" if planned else "")


def kinds(runs: Sequence[Results]) -> list[dict[str, Any]]:
    """Describe the submissions by accelerator, the largest ratio first.

    Returns:
        Rows of ``accelerator``, number of ``runs``, median ``ratio`` of the seconds per image (server, fitted, over
        offline), and median absolute errors of p99. ``error`` is with nothing fitted, ``by_kind_error`` with the ratio
        of the kind's other runs.
    """
    accelerators = dict.fromkeys(physical(run["accelerator"]) for run in runs if run["unfitted"] is not None)
    of_kinds = {accelerator: _of_kind(accelerator, runs) for accelerator in accelerators}
    rows = [
        {
            "accelerator": accelerator,
            "runs": len(found),
            "ratio": float(np.median(list(map(_ratio, found)))),
            "error": _errors(found, "p99")["unfitted_median"],
            "by_kind_error": _errors(found, "p99")["by_kind_median"],
        }
        for accelerator, found in of_kinds.items()
    ]
    return sorted(rows, key=lambda row: -row["ratio"])


def spread(predicted_s: float, changes: Iterable[str], changed_s: Iterable[float], share: int) -> str:
    """Return the range of a prediction if the service time changes by up to ``share`` per cent.

    Args:
        changes, changed_s: such as ``-1%``, and what is predicted with each.
    """
    within = [
        value for change, value in zip(changes, changed_s, strict=True) if abs(int(change.removesuffix("%"))) <= share
    ]
    return f"{min([predicted_s, *within]):.2f} to {max([predicted_s, *within]):.2f}" if within else DASH


def values(facts: Results) -> Results:
    """Return what the page counts and selects."""
    runs = facts["submissions"]
    rates = [run["scheduled_qps"] for run in runs if run["scheduled_qps"]["logged"] is not None]
    planned = [run for run in runs if run["unfitted"] is not None]
    return {
        "names": NAMES,
        "banded": BANDED,
        "repetition": llmd.REPETITION,
        "spread": spread,
        "equal": sum(f"{rate['ours']:.2f}" == f"{rate['logged']:.2f}" for rate in rates),
        "above": [run["name"] for run in runs if run["load"] > 1],
        "planned": len(planned),
        "others": [run for run in planned if run["planned_gpus"] != run["gpus"]],
        "kinds": kinds(runs),
        "rounds": {name: rounds for name, rounds in facts.get("rounds", {}).items() if len(rounds) > 1},
        "in_bands": _in_bands(facts["routed"]),
    }


@house_style()
def draw(facts: Results) -> dict[str, Figure | None]:
    """Draw the fitted predictions, those with nothing fitted, and a distribution; None without a submission."""
    if not facts["submissions"]:
        return {"": None}
    figure, ((fitted, unfitted, distribution),) = panels(3, width=12.6, height=4.4, share_y=False)
    _diagonal(fitted, facts, "fitted", f"{len(facts['submissions'])} MLPerf SDXL runs: mean fitted")
    _diagonal(unfitted, facts, "unfitted", "Nothing fitted: the offline rate")
    _distribution(distribution, facts["distribution"])
    return {"": figure}


def _diagonal(axes: Axes, facts: Results, which: str, title: str) -> None:
    ends = []
    for measure, colour in MEASURE_COLOURS.items():
        runs = [run for run in facts["submissions"] if measure in run["measured_s"] and run[which] is not None]
        measured = np.array([run["measured_s"][measure] for run in runs])
        predicted = np.array([run[which]["latency_s"][measure] for run in runs])
        changed = [run[which]["p99_with_service_moved_s"].values() for run in runs]
        if measure == "p99" and all(changed):
            low, high = (np.array([pick(levels) for levels in changed]) for pick in (min, max))
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


STUDY = Study("hardware", comparisons, draw, values, parts=lambda facts: [run["name"] for run in facts["submissions"]])
