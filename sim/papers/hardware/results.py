"""Results of the replayed runs of real machines: their errors, as JSON."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from mezzotint.sim.papers.hardware import replay, routing
from mezzotint.sim.papers.hardware.replay import SERVICE_TIME_CHANGES
from mezzotint.sim.papers.hardware.rows import QUANTILES, SCORED, RoutedRun, Submission
from mezzotint.sim.papers.scorecard.targets import REL_TOL
from mezzotint.sim.papers.study import Comparison, Results
from mezzotint.sim.run.pool import Launcher, run_calls

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


def make(
    submissions: Sequence[Submission],
    routed: Sequence[RoutedRun],
    *,
    quick: bool = False,
    with_sensitivity: bool = True,
    jobs: int = 1,
    launcher: Launcher = "joblib",
) -> dict[str, Any]:
    """Replay all runs, or with ``quick`` a part of the submissions, and return the content of the JSON file.

    Args:
        with_sensitivity: also predict with the service time changed by `SERVICE_TIME_CHANGES`.

    Raises:
        ConfigError: a row, which the message names, cannot be replayed.
    """
    part = submissions[::PART] if quick else submissions
    calls: list[Callable[[], Any]]
    calls = [partial(replay.replay_submission, row, with_sensitivity=with_sensitivity) for row in part]
    calls += [partial(routing.replay_routing, row, routing.DRAWS, with_sensitivity=with_sensitivity) for row in routed]
    run = run_calls(calls, jobs, launcher)
    done = list(tqdm(run, total=len(calls), unit="run", desc="hardware", disable=None))
    form = f"every {PART}th submission" if quick else "in full"
    return facts_of(form, done[: len(part)], done[len(part) :])


def facts_of(
    form: str, submissions: Sequence[tuple[Results, replay.Floats]], routed: Sequence[Results]
) -> dict[str, Any]:
    """Return the content of the JSON file; ``form`` is ``in full``, or the part that was replayed."""
    runs, distribution = [run for run, _ in submissions], None
    if submissions:  # at the highest load, chance matters most
        run, latencies_s = max(submissions, key=lambda each: each[0]["load"])
        shares = {"min": 0.0, "max": 1.0, **QUANTILES}
        distribution = {
            "name": run["name"],
            "latency_s": [round(float(each), 6) for each in np.quantile(latencies_s, np.linspace(0, 1, POINTS + 1))],
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
    for which in ("fitted", "unfitted"):
        errors = [run[which]["error"][measure] for run in runs if run[which] is not None]
        absolute[which] = [abs(error) for error in errors if error is not None]

    def quantile(which: str, share: float) -> float | None:
        return float(np.quantile(absolute[which], share)) if absolute[which] else None

    return {
        "median": quantile("fitted", 0.5),
        "p90": quantile("fitted", 0.9),
        "runs": len(absolute["fitted"]),
        "unfitted_median": quantile("unfitted", 0.5),
    }


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare the runs of the JSON file with the measurements: submissions by measure, then routed runs."""
    found = {}
    for run in facts["submissions"]:
        for measure in COMPARED:
            error = run["fitted"]["error"][measure]
            if error is not None:
                expected = f"{run['measured_s'][measure]:.4g} s within {REL_TOL:.0%}"
                ours = f"{run['fitted']['latency_s'][measure]:.4g} s"
                found[f"{run['name']}, {measure}"] = Comparison(expected, ours, abs(error) <= REL_TOL)
    return found | route_comparisons(facts)


def route_comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare the routed runs of the JSON file with the measurements."""
    found = {}
    for run in facts["routed"]:
        for measure in BANDED:
            outside, (low, high) = run["outside"][measure], run["nine_in_ten_draws_s"][measure]
            if outside is not None:
                name = f"mix {run['workload']} at {run['rate_per_s']:g}/s, {run['routing']}, {measure}"
                measured = f"{run['measured_s'][measure]:g} s"
                expected = f"{measured} at most {MAX_OUTSIDE:.0%} outside the band of {run['draws']} draws"
                found[name] = Comparison(expected, f"{low:.4g} to {high:.4g} s", abs(outside) <= MAX_OUTSIDE)
    return found
