"""`mezzotint reproduce autoscaling`: fixed clusters and autoscalers over a day."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from mezzotint.figures.page import percent
from mezzotint.figures.palette import COLOURS, GREY, INK, house_style, panels
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.runs import Finished, Point, finish
from mezzotint.sim.papers.study import (
    DATA,
    RESULTS,
    RUNS,
    Check,
    Comparison,
    Jobs,
    Names,
    Output,
    Quick,
    Results,
    RunsOn,
    Study,
    Traces,
    Work,
    read_data,
)
from mezzotint.traces.table.trace import read

DAY_S = 86_400.0

BIN_S = 1800.0
"""Seconds of one point of the figure over the day."""

MAX_LATE = 0.01
"""Largest share of violations at which clusters are compared by price."""

FIXED, PERFECT = "fixed", "perfect knowledge"


@dataclass(frozen=True, slots=True)
class Scaler:
    """One controller, and the values of the setting that trades price for violations.

    Attributes:
        key: the setting, below ``controller``.
        own: its value in the file of the controller.
    """

    name: str
    controller: str
    key: str
    values: tuple[float, ...]
    own: float


@dataclass(frozen=True, slots=True)
class Day:
    """One day of requests: ``title``, the overrides that make it, and what its trace says of its arrival times."""

    title: str
    overrides: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The days, controllers, and start-up times in seconds that are compared."""

    days: tuple[Day, ...]
    scalers: tuple[Scaler, ...]
    startups_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """One run: ``kind`` is FIXED or a scaler's name, ``setting`` its GPUs or the value of its key."""

    day: int
    kind: str
    setting: float
    startup_s: float | None
    is_default: bool
    point: Point


INPUTS: Inputs = read_data(DATA / "autoscaling.yaml", Inputs)

STYLES = {scaler.name: colour for scaler, colour in zip(INPUTS.scalers, COLOURS, strict=False)}
STYLES |= {PERFECT: INK, FIXED: GREY}

KEYS = {scaler.name: scaler.key.rpartition(".")[2] for scaler in INPUTS.scalers}


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
    if len(name) > len(trace):
        raise ConfigError(f"--name: found {name[-1]} without a trace; add --trace FILE")

    def measure() -> Results:
        titles = [*name, *(path.stem for path in trace[len(name) :])]
        days = [*INPUTS.days[: 1 if quick else None], *map(busiest_day, trace, titles)]
        if not check:
            STUDY.refuse_loss(output, [day.title for day in days], quick=quick)
        planned = list(clusters(days, gpus, quick))
        runs = finish([cluster.point for cluster in planned], work, jobs, launcher).of_study(STUDY.name)
        return measure_days(days, gpus, planned, runs)

    return STUDY.reproduce(measure, output, check=check, quick=quick)


def clusters(days: Sequence[Day], gpus: int, quick: bool) -> Iterator[Cluster]:
    """Yield the clusters of each day; at most ``gpus`` GPUs can be rented. Start-up times vary on the first day.

    ``quick`` takes the setting of each controller's file and the middle value alone.
    """
    for number, day in enumerate(days):
        common = (f"experiment={STUDY.name}", f"cluster.count={gpus}", *day.overrides)
        fixed = {round(count) for count in np.linspace(max(gpus // 4, 1), gpus, 3 if quick else 13)}
        for count in sorted(fixed):
            point = Point(STUDY.name, {}, (*common, f"cluster.count={count}"))
            yield Cluster(number, FIXED, count, None, count == gpus, point)
        for scaler in INPUTS.scalers:
            words = (*common, f"controller={scaler.controller}")
            middle = scaler.values[len(scaler.values) // 2]
            for value in sorted({scaler.own, middle}) if quick else scaler.values:
                point = Point(STUDY.name, {}, (*words, f"controller.{scaler.key}={value}"))
                yield Cluster(number, scaler.name, value, None, value == scaler.own, point)
            for startup_s in () if quick or number else INPUTS.startups_s:
                point = Point(STUDY.name, {}, (*words, f"controller.startup_s={startup_s}"))
                yield Cluster(number, scaler.name, scaler.own, startup_s, False, point)


def busiest_day(path: Path, title: str) -> Day:
    """Return the 24 hours of the trace at ``path`` with the most requests, at its own times.

    Raises:
        TraceError: the file is no trace.
    """
    trace = read(path)
    arrival_s = trace.arrival_s
    ends = np.searchsorted(arrival_s, arrival_s + DAY_S)
    first = int((ends - np.arange(len(ends))).argmax())
    where = (
        "trace=file",
        f"trace.path={path}",
        "arrivals=trace",
        "arrivals.rate_rpm=null",
        f"trace.requests={ends[first]}",
        f"preload={first}",
    )
    return Day(title, where, trace.notes.get("arrival_s", ""))


def measure_days(
    days: Sequence[Day], gpus: int, planned: Sequence[Cluster], runs: Sequence[Finished]
) -> dict[str, Any]:
    """Return the results of ``planned``, whose runs are ``runs``, as JSON."""
    measured: list[dict[str, Any]] = [{"title": day.title, "note": day.note, "rows": []} for day in days]
    for cluster, run in zip(planned, runs, strict=True):
        day = measured[cluster.day]
        day["rows"].append(_measure(cluster, run))
        if cluster.is_default:
            day.setdefault("series", {})[cluster.kind] = _over_the_day(run)
            day["requests"] = int(run.number("requests", "arrived"))
            day["limit_s"] = run.number("slo", "2x", "limit_s")
    assumed = {row["what"]: row["value"] for row in runs[0].summary["assumptions"]}
    return {"gpus": gpus, "usd_per_gpu_h": assumed["price of a GPU [USD/h]"], "days": measured}


def _measure(cluster: Cluster, run: Finished) -> dict[str, Any]:
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
    bins = ((time_s - time_s[0]) // BIN_S).astype(int)
    span_s = np.bincount(bins, seconds)
    rpm = 60 * np.bincount(bins, np.diff(arrived, append=arrived[-1])) / span_s
    return {"gpus": np.round(np.bincount(bins, on * seconds) / span_s, 3).tolist(), "rpm": np.round(rpm, 2).tolist()}


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare the price of each controller, where at most ``MAX_LATE`` are late, with the cheapest such fixed cluster.

    Perfect knowledge is compared with every other controller too.
    """
    found = {}
    for day in facts["days"]:
        best = cheapest(day["rows"])
        fixed, perfect = best.get(FIXED), best.get(PERFECT)
        for kind, row in best.items():
            if fixed is not None and kind != FIXED:
                found[f"{day['title']}: {kind} over a fixed cluster"] = _cheaper(row, fixed)
            if perfect is not None and kind not in (FIXED, PERFECT):
                found[f"{day['title']}: perfect knowledge over {kind}"] = _cheaper(perfect, row)
    return found


def cheapest(rows: Sequence[Results]) -> dict[str, Results]:
    """Return the cheapest row of each kind of cluster at which at most ``MAX_LATE`` of the requests are late."""
    best: dict[str, Results] = {}
    for row in rows:
        is_allowed = row["startup_s"] is None and row["late"] <= MAX_LATE
        if is_allowed and row["usd_per_1000"] < best.get(row["kind"], {"usd_per_1000": inf})["usd_per_1000"]:
            best[row["kind"]] = row
    return best


def _cheaper(row: Results, other: Results) -> Comparison:
    price, bound = row["usd_per_1000"], other["usd_per_1000"]
    return Comparison(f"at most {bound:.2f} USD per 1,000 images", f"{price:.2f}", price <= bound)


def lines(facts: Results) -> Iterator[str]:
    """Yield each cluster's results."""
    for day in facts["days"]:
        for row in day["rows"]:
            yield (
                f"{day['title']}: {cluster_name(row)}: {percent(row['late'], 2)} late, p95 {row['p95_s']:.2f} s, "
                f"{row['usd_per_1000']:.2f} USD per 1,000 images, {row['gpu_h']:.1f} GPU-hours, "
                f"{row['switches']} loads"
            )


def cluster_name(row: Results) -> str:
    """Return the name of a row's cluster, such as ``fixed, 12 GPUs``."""
    if row["kind"] == FIXED:
        return f"fixed, {row['setting']:g} GPUs"
    start = "" if row["startup_s"] is None else f", start-up {row['startup_s']:g} s"
    return f"{row['kind']}, {KEYS[row['kind']]} {row['setting']:g}{start}"


@house_style()
def draw(facts: Results) -> dict[str, Figure]:
    """Draw two panels for each day: arrivals and GPUs over the day, and price against violations."""
    figure, grid = panels(2, len(facts["days"]), width=12.0, height=3.6 * len(facts["days"]), share_y=False)
    for (over_time, prices), day in zip(grid, facts["days"], strict=True):
        _draw_series(over_time, day)
        _draw_prices(prices, day)
        over_time.set_title(day["title"])
    grid[0][1].legend(fontsize=8)
    return {"": figure}


def _draw_series(axes: Axes, day: Results) -> None:
    rates = axes.twinx()
    for kind, series in day["series"].items():
        hours = [BIN_S / 3600 * (bin_ + 0.5) for bin_ in range(len(series["gpus"]))]
        axes.plot(hours, series["gpus"], color=STYLES[kind], label=kind, linestyle=":" if kind == FIXED else "-")
        if kind == FIXED:
            rates.fill_between(hours, series["rpm"], color=GREY, alpha=0.2, linewidth=0)
    rates.set_ylim(0, None)
    rates.set_ylabel("requests a minute (area)")
    rates.grid(False)
    axes.set_ylim(0, None)
    axes.set_xlim(0, 24)
    axes.set_xticks(range(0, 25, 4))
    axes.set_xlabel("hour")
    axes.set_ylabel("GPUs on or starting")


def _draw_prices(axes: Axes, day: Results) -> None:
    for kind, colour in STYLES.items():
        rows = [row for row in day["rows"] if row["kind"] == kind and row["startup_s"] is None]
        rows.sort(key=lambda row: row["setting"])
        late, prices = [row["late"] for row in rows], [row["usd_per_1000"] for row in rows]
        axes.plot(late, prices, color=colour, marker="o", markersize=4, label=kind)
    axes.set_xscale("symlog", linthresh=1e-3, linscale=0.5)
    axes.set_xlim(-1e-4, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    axes.set_ylim(0, None)
    axes.set_xlabel("requests over twice the standalone latency")
    axes.set_ylabel("USD per 1,000 images")


def values(facts: Results) -> Results:
    """Return the cheapest clusters of each day and those with the settings of their files, by the day's title."""
    defaults = {scaler.name: scaler.own for scaler in INPUTS.scalers}
    days = {
        day["title"]: {
            "best": cheapest(day["rows"]),
            "defaults": [
                row for row in day["rows"] if row["startup_s"] is None and row["setting"] == defaults.get(row["kind"])
            ],
        }
        for day in facts["days"]
    }
    started = [row for row in facts["days"][0]["rows"] if row["startup_s"] is not None]
    startups = {kind: [row for row in started if row["kind"] == kind] for kind in (row["kind"] for row in started)}
    return {"clusters": days, "name": cluster_name, "max_late": MAX_LATE, "fixed": FIXED, "startups": startups}


STUDY = Study(
    "autoscaling", comparisons, draw, values, lines, parts=lambda facts: [day["title"] for day in facts["days"]]
)
