"""The scorecard of real machines: all runs replayed, their errors, and what they are in JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from tqdm import tqdm

from sim.papers.hardware import replay, routing
from sim.papers.hardware.replay import MOVED
from sim.papers.hardware.rows import QUANTILES, SCORED, PerWorkerQueues, Submission
from sim.papers.scorecard.targets import REL_TOL
from sim.papers.verdicts import Judged, RequestColumns

JUDGED = ("p50", "p90", "p99")
"""Measures of a submission that --check compares, within REL_TOL."""

LIMIT = 0.02
"""The median error of p99 above which --check fails."""

BANDED = ("mean", "p99")
"""Measures of a routed run that the page shows, and that --check compares with the band of the draws."""

BEYOND = max(MOVED)
"""How far outside the band a measured value may be: service times are not known better."""

PART = 6
"""--quick replays every sixth submission: the first, the seventh and so on, whatever they say."""

POINTS = 400
"""Of the distribution that is kept in full."""


def make(
    submissions: Sequence[Submission],
    routed: Sequence[PerWorkerQueues],
    *,
    quick: bool = False,
    moved: bool = True,
    jobs: int = 1,
) -> dict[str, Any]:
    """Replay everything, with ``quick`` a part of the submissions, and return it as JSON has it.

    With ``moved`` the predictions have their sensitivity to the service time. Shares are relative errors, and times
    seconds. Raises ConfigError, naming the row, where one cannot be replayed.
    """
    part = submissions[::PART] if quick else submissions
    calls = [delayed(replay.replayed)(row, moved=moved) for row in part]
    calls += [delayed(routing.replayed)(row, routing.DRAWS, moved=moved) for row in routed]
    run = Parallel(n_jobs=jobs, return_as="generator")(calls)
    done = list(tqdm(run, total=len(calls), unit="run", desc="hardware", disable=None))
    form = f"every {PART}th submission" if quick else "in full"
    return facts_of(form, done[: len(part)], done[len(part) :])


def facts_of(
    form: str, submissions: Sequence[tuple[RequestColumns, replay.Floats]], routed: Sequence[RequestColumns]
) -> dict[str, Any]:
    """Return the content of the JSON file; ``form`` is ``in full``, or which part was replayed."""
    runs, distribution = [run for run, _ in submissions], None
    if submissions:  # the distribution of the submission with the most load is kept, where chance counts most
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


def _errors(runs: Sequence[RequestColumns], measure: str) -> dict[str, float | None]:
    """Return quantiles of the absolute errors of all submissions that say what the measure was."""
    of = {}
    for which in ("fitted", "unfitted"):
        errors = [run[which]["error"][measure] for run in runs if run[which] is not None]
        of[which] = [abs(error) for error in errors if error is not None]

    def quantile(which: str, share: float) -> float | None:
        return float(np.quantile(of[which], share)) if of[which] else None

    return {
        "median": quantile("fitted", 0.5),
        "p90": quantile("fitted", 0.9),
        "runs": len(of["fitted"]),
        "unfitted_median": quantile("unfitted", 0.5),
    }


def judged(facts: RequestColumns) -> dict[str, Judged]:
    """Return the verdicts of a card's JSON: submissions by measure, then routed runs."""
    found = {}
    for run in facts["submissions"]:
        for measure in JUDGED:
            error = run["fitted"]["error"][measure]
            if error is not None:
                expected = f"{run['measured_s'][measure]:.4g} s within {REL_TOL:.0%}"
                ours = f"{run['fitted']['latency_s'][measure]:.4g} s"
                found[f"{run['name']}, {measure}"] = Judged(expected, ours, abs(error) <= REL_TOL)
    return found | judged_routes(facts)


def judged_routes(facts: RequestColumns) -> dict[str, Judged]:
    """Return the verdicts of the routed runs in a card's JSON."""
    found = {}
    for run in facts["routed"]:
        for measure in BANDED:
            outside, (low, high) = run["outside"][measure], run["nine_in_ten_draws_s"][measure]
            if outside is not None:
                name = f"mix {run['workload']} at {run['rate_per_s']:g}/s, {run['routing']}, {measure}"
                expected = (
                    f"{run['measured_s'][measure]:g} s at most {BEYOND:.0%} outside the band of {run['draws']} draws"
                )
                found[name] = Judged(expected, f"{low:.4g} to {high:.4g} s", abs(outside) <= BEYOND)
    return found
