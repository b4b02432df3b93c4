"""The scorecard of real machines: all runs replayed, their errors, and what they are in JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from tqdm import tqdm

from sim.study.hardware import replay, routing
from sim.study.hardware.replay import MOVED
from sim.study.hardware.rows import QUANTILES, Routed, Submission
from sim.study.scorecard.targets import REL_TOL
from sim.study.verdicts import Facts, Judged

SCORED = ("p50", "p90", "p99", "p999", "max")
"""Predicted measures of a submission, whose mean is fitted."""

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
    routed: Sequence[Routed],
    *,
    quick: bool = False,
    moved: bool = True,
    jobs: int = 1,
) -> dict[str, Any]:
    """Replay everything, and return it as JSON has it; shares are relative errors, and times seconds.

    Args:
        submissions: MLPerf's.
        routed: llm-d's.
        quick: a part of it.
        moved: with the sensitivity of predictions to the service time.
        jobs: worker processes.

    Raises:
        ConfigError: a row that cannot be replayed; the message names it.
    """
    part = submissions[::PART] if quick else submissions
    calls = [delayed(replay.replayed)(row, moved=moved) for row in part]
    calls += [delayed(routing.replayed)(row, routing.DRAWS, moved=moved) for row in routed]
    with tqdm(total=len(calls), unit="run", desc="hardware", disable=None) as bar:
        done = []
        for each in Parallel(n_jobs=jobs, return_as="generator")(calls):
            bar.update()
            done.append(each)
    form = f"every {PART}th submission" if quick else "in full"
    return facts_of(form, done[: len(part)], done[len(part) :])


def facts_of(form: str, submissions: Sequence[replay.Replayed], routed: Sequence[Facts]) -> dict[str, Any]:
    """Return the content of the JSON file; ``form`` is ``in full``, or which part was replayed."""
    # The distribution of the submission with the most load is kept, where chance counts most.
    shown = max(submissions, key=lambda each: each.load, default=None)
    return {
        "form": form,
        "note": "MLPerf results are cited by round, division, submitter and system; not verified by MLCommons",
        "errors": {measure: _errors(submissions, measure) for measure in ("mean", *SCORED)},
        "submissions": [_submission(each) for each in submissions],
        "routed": list(routed),
        "distribution": None
        if shown is None
        else {"name": shown.row.name, "latency_s": _thinned(shown.latencies_s), "measured": _measured(shown.row)},
    }


def _errors(submissions: Sequence[replay.Replayed], measure: str) -> dict[str, float | None]:
    """Return quantiles of the absolute errors of all submissions that say what the measure was."""

    def found(*, fitted: bool) -> list[float]:
        errors = (each.error(measure, fitted=fitted) for each in submissions)
        return [abs(error) for error in errors if error is not None]

    def quantile(of: Sequence[float], share: float) -> float | None:
        return float(np.quantile(of, share)) if of else None

    fitted = found(fitted=True)
    return {
        "median": quantile(fitted, 0.5),
        "p90": quantile(fitted, 0.9),
        "runs": len(fitted),
        "unfitted_median": quantile(found(fitted=False), 0.5),
    }


def judged(facts: Facts) -> dict[str, Judged]:
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


def judged_routes(facts: Facts) -> dict[str, Judged]:
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


def _submission(each: replay.Replayed) -> dict[str, Any]:
    row = each.row
    return {
        "name": row.name,
        "accelerator": row.accelerator,
        "gpus": row.gpus,
        "source": row.source,
        "target_qps": row.target_qps,
        "scheduled_qps": {"logged": row.scheduled_qps, "ours": each.scheduled_qps},
        "load": each.load,
        "measured_s": dict(row.measured),
        **{
            name: None
            if said is None
            else {
                "image_s": said.image_s,
                "latency_s": dict(said.latency_s),
                "p99_with_service_moved_s": {f"{share:+.0%}": value for share, value in said.p99_moved_s.items()},
                "error": {measure: each.error(measure, fitted=name == "fitted") for measure in ("mean", *SCORED)},
            }
            for name, said in (("fitted", each.fitted), ("unfitted", each.unfitted))
        },
    }


def _measured(row: Submission) -> dict[str, float]:
    """The log's percentiles by probability."""
    said = {f"{share:g}": row.measured[name] for name, share in QUANTILES.items() if name in row.measured}
    ends = {share: row.measured[name] for share, name in (("0", "min"), ("1", "max")) if name in row.measured}
    return ends | said


def _thinned(latencies_s: replay.Floats) -> list[float]:
    """Quantiles at even steps, both ends among them."""
    return [round(float(each), 6) for each in np.quantile(latencies_s, np.linspace(0, 1, POINTS + 1))]
