"""`mezzotint reproduce autoscaling`: fixed clusters and autoscalers over a day."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.autoscaling.days import NAME, STUDY, Cluster, Day, busiest_day, clusters, comparisons
from mezzotint.sim.papers.runs import Finished, finish
from mezzotint.sim.papers.study import (
    RESULTS,
    RUNS,
    Check,
    Jobs,
    Names,
    Output,
    Quick,
    RunsOn,
    Traces,
    Work,
    read_committed,
    report_lost,
)
from mezzotint.sim.report.pages import write_study
from mezzotint.sim.run.pool import Launcher

BIN_S = 1800.0
"""Seconds of one point of the figure over the day."""


def compare(
    trace: Traces = [],  # noqa: B006  Typer reads it
    name: Names = [],  # noqa: B006
    gpus: Annotated[int, typer.Option(min=4, metavar="N", help="most GPUs that can be rented")] = 16,
    quick: Quick = False,
    check: Check = False,
    jobs: Jobs = 1,
    launcher: RunsOn = "joblib",
    output: Output = RESULTS,
    work: Work = RUNS,
) -> int:
    """Compare fixed clusters with autoscalers over a day, and write autoscaling.md, .json and .svg.

    Each --trace adds its own busiest 24 hours.

    Raises:
        ConfigError: a run failed, or a file cannot be written.
    """
    from mezzotint.sim.papers.autoscaling import page  # importing matplotlib takes a second

    if len(name) > len(trace):
        raise ConfigError(f"--name: found {name[-1]} without a trace; add --trace FILE")
    stem = f"{NAME}-quick" if quick else NAME
    before = read_committed(output / f"{stem}.json", comparisons) if check else {}
    titles = [*name, *(path.stem for path in trace[len(name) :])]
    days = [*STUDY.days[: 1 if quick else None], *map(busiest_day, trace, titles)]
    facts = run_days(days, gpus, quick, work, jobs, launcher)
    for day in facts["days"]:
        for row in day["rows"]:
            print(f"{day['title']}: {page.line_of(row)}")
    if check:
        return report_lost(before, comparisons(facts))
    write_study(output, stem, facts, page.render, page.draw)
    return 0


def run_days(
    days: Sequence[Day], gpus: int, quick: bool, work: Path, jobs: int, launcher: Launcher = "joblib"
) -> dict[str, Any]:
    """Run every cluster on every day, and return the results as JSON."""
    planned = list(clusters(days, gpus, quick))
    found: list[dict[str, Any]] = [{"title": day.title, "note": day.note, "rows": []} for day in days]
    runs = finish([each.point for each in planned], work, jobs, launcher).of_study(NAME)
    for cluster, run in zip(planned, runs, strict=True):
        day = found[cluster.day]
        day["rows"].append(_measured(cluster, run))
        if cluster.is_default:
            day.setdefault("series", {})[cluster.kind] = _over_the_day(run)
            day["requests"] = int(run.number("requests", "arrived"))
            day["limit_s"] = run.number("slo", "2x", "limit_s")
    assumed = {row["what"]: row["value"] for row in runs[0].summary["assumptions"]}
    return {"gpus": gpus, "usd_per_gpu_h": assumed["price of a GPU [USD/h]"], "days": found}


def _measured(cluster: Cluster, run: Finished) -> dict[str, Any]:
    return {
        "kind": cluster.kind,
        "setting": cluster.setting,
        "startup_s": cluster.startup_s,
        "late": run.number("slo", "2x", "violation_rate"),
        "p95_s": run.number("latency_s", "p95"),
        "usd_per_1000": 1000 * run.number("cost_usd", "per_image"),
        "gpu_h": run.number("gpu", "seconds") / 3600,
        "busy": run.number("gpu", "busy_fraction"),
        "switches": int(run.number("gpu", "switches")),
    }


def _over_the_day(run: Finished) -> dict[str, list[float]]:
    """Return GPUs on or starting, and arrivals per minute, in bins of ``BIN_S``."""
    rented = () if run.summary["gpu"]["switches"] == 0 else ("gpus_on", "gpus_starting")
    table = run.cluster("time_s", "seconds", "arrived", *rented)
    time_s, seconds, arrived = (table[name].to_numpy() for name in ("time_s", "seconds", "arrived"))
    on = sum((table[name].to_numpy() for name in rented), np.zeros(len(time_s)))
    on = on if rented else on + run.number("gpu", "count")
    place = ((time_s - time_s[0]) // BIN_S).astype(int)
    span_s = np.bincount(place, seconds)
    rpm = 60 * np.bincount(place, np.diff(arrived, append=arrived[-1])) / span_s
    return {"gpus": np.round(np.bincount(place, on * seconds) / span_s, 3).tolist(), "rpm": np.round(rpm, 2).tolist()}
