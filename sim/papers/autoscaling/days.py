"""Days of requests, and the clusters that are compared on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import inf
from pathlib import Path

import numpy as np

from mezzotint.sim.papers.runs import Point
from mezzotint.sim.papers.study import Comparison, Results, read_data
from mezzotint.traces.table.trace import read

NAME = "autoscaling"

DAY_S = 86_400.0

MAX_LATE = 0.01
"""Largest share of violations at which clusters are compared by price."""

FIXED = "fixed"


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
class Study:
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


STUDY: Study = read_data(Path(str(files("mezzotint.conf"))) / "data" / "autoscaling.yaml", Study)


def clusters(days: Sequence[Day], gpus: int, quick: bool) -> Iterator[Cluster]:
    """Yield the clusters of each day; at most ``gpus`` GPUs can be rented. Start-up times vary on the first day.

    ``quick`` takes the setting of each controller's file and the middle value alone.
    """
    for number, day in enumerate(days):
        common = (f"experiment={NAME}", f"cluster.count={gpus}", *day.overrides)
        fixed = {round(count) for count in np.linspace(max(gpus // 4, 1), gpus, 3 if quick else 13)}
        for count in sorted(fixed):
            point = Point(NAME, {}, (*common, f"cluster.count={count}"))
            yield Cluster(number, FIXED, count, None, count == gpus, point)
        for scaler in STUDY.scalers:
            words = (*common, f"controller={scaler.controller}")
            middle = scaler.values[len(scaler.values) // 2]
            for value in sorted({scaler.own, middle}) if quick else scaler.values:
                point = Point(NAME, {}, (*words, f"controller.{scaler.key}={value}"))
                yield Cluster(number, scaler.name, value, None, value == scaler.own, point)
            for startup_s in () if quick or number else STUDY.startups_s:
                point = Point(NAME, {}, (*words, f"controller.startup_s={startup_s}"))
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


def comparisons(facts: Results) -> dict[str, Comparison]:
    """Compare the price of each controller, where at most ``MAX_LATE`` are late, with the cheapest such fixed cluster.

    Perfect knowledge is compared with every other controller too.
    """
    found = {}
    for day in facts["days"]:
        best = cheapest(day["rows"])
        fixed, perfect = best.get(FIXED), best.get("perfect knowledge")
        for kind, row in best.items():
            if fixed is not None and kind != FIXED:
                found[f"{day['title']}: {kind} over a fixed cluster"] = _cheaper(row, fixed)
            if perfect is not None and kind not in (FIXED, "perfect knowledge"):
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
