"""Runs side by side: replicas of one system at one load, and the loads at which systems can be compared."""

import math
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from sim.core.slo import parse_limit
from sim.report.labels import Load, Scalar, natural
from sim.report.runs import Run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over replicas, with its extremes or the interval that holds it, in the quantity's own unit."""

    mean: float
    low: float
    high: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Cell:
    """One series at one load: its replicas (seeds), each with the runs that repeat it."""

    series: str
    load: Load
    replicas: tuple[tuple[Run, ...], ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        """A run for each seed: what is run again under the same configuration and seed counts once."""
        return tuple(reruns[0] for reruns in self.replicas)

    def by_seed(self, *keys: str) -> dict[tuple[Scalar, ...], float]:
        """The summary's number under `keys` by seed, of the seeds that have it."""
        found = ((run.replica, run.number(*keys)) for reruns in self.replicas for run in reversed(reruns))
        return {replica: value for replica, value in found if value is not None}

    def spread(self, *keys: str) -> Spread | None:
        """The summary's number under `keys` over the replicas that have it; None if none has."""
        values = self.by_seed(*keys).values()
        return Spread(sum(values) / len(values), min(values), max(values), len(values)) if values else None

    @property
    def backlog_grows(self) -> bool:
        """Whether the queue of some replica grows for as long as requests come."""
        return any(run.backlog_grows for run in self.runs)


def cells(runs: Sequence[Run]) -> list[Cell]:
    """Runs grouped by load and series, in ascending load."""
    groups: dict[tuple[str, Load], dict[tuple[Scalar, ...], list[Run]]] = defaultdict(dict)
    for run in runs:
        groups[run.series, run.load].setdefault(run.replica, []).append(run)
    ordered = sorted(groups.items(), key=lambda item: (item[0][1].order, natural(item[0][0])))
    return [
        Cell(series, load, tuple(tuple(reruns) for reruns in replicas.values())) for (series, load), replicas in ordered
    ]


def beyond_noise(one: Cell, other: Cell, *keys: str) -> bool:
    """Whether two series differ by more than chance: zero lies outside the 95 % interval of their difference.

    Student's interval over seeds: of the differences seed by seed where they share two or more, which sees the same
    arrivals on both sides, else Welch's. One seed tells nothing of chance.
    """
    from scipy import stats  # half a second, which `mezzotint plan` need not pay

    ours, theirs = one.by_seed(*keys), other.by_seed(*keys)
    shared = ours.keys() & theirs.keys()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of seeds that do not differ at all
        if len(shared) > 1:
            found = stats.ttest_1samp([ours[seed] - theirs[seed] for seed in shared], 0.0)
        elif len(ours) > 1 and len(theirs) > 1:
            found = stats.ttest_ind(list(ours.values()), list(theirs.values()), equal_var=False)
        else:
            return False
    return bool(found.pvalue < 0.05)


def common_loads(runs: Sequence[Run]) -> list[Load]:
    """The loads that most series share, ascending; of more than three, evenly spaced ones with both ends."""
    shared: dict[Load, set[str]] = defaultdict(set)
    for run in runs:
        shared[run.load].add(run.series)
    widest = max(map(len, shared.values()), default=0)
    return thinned(sorted((load for load, of in shared.items() if len(of) == widest), key=lambda load: load.order), 3)


def thinned(values: Sequence[T], most: int) -> list[T]:
    """`values`, or of more than `most` as many evenly spaced ones with both ends."""
    if len(values) <= most:
        return list(values)
    return [values[round(index * (len(values) - 1) / (most - 1))] for index in range(most)]


def slo_multiples(runs: Sequence[Run]) -> list[str]:
    """Every SLO name that some run measured ("2x", "4x", "10s"): multiples before seconds, each by size."""

    def size(name: str) -> tuple[bool, float, str]:
        try:
            limit = parse_limit(name)
        except ValueError:
            return (True, math.inf, name)
        return (limit.unit == "s", limit.value, name)

    return sorted({name for run in runs for name in run.summary["slo"] or {}}, key=size)


def limit_words(name: str) -> str:
    """An SLO's name as a title shows it: "2x standalone latency", "10s"."""
    return name if name.endswith("s") else f"{name} standalone latency"


def hit_shares(cell: Cell) -> dict[str, float] | None:
    """Share of lookups by steps skipped: {"5": 0.1, ..., "unknown": hits without a K, "miss": the rest}.

    They sum to one. Averaged over the replicas; None for a series without a cache or without one lookup.
    """
    bars = []
    for run in cell.runs:
        hit_rate = run.number("cache", "hit_rate")
        if hit_rate is None:
            continue
        hit_rate = min(max(hit_rate, 0.0), 1.0)
        by_k = run.summary["cache"]["hit_share_by_k"] or {}
        known = {key: share for key in by_k if (share := run.number("cache", "hit_share_by_k", key))}
        total = sum(known.values())
        shares = {key: hit_rate * share / total for key, share in known.items()} if hit_rate else {}
        unknown = {"unknown": hit_rate} if hit_rate and not known else {}
        bars.append(shares | unknown | {"miss": 1.0 - hit_rate})
    if not bars:
        return None
    keys = {key for bar in bars for key in bar}
    return {key: sum(bar.get(key, 0.0) for bar in bars) / len(bars) for key in sorted(keys, key=by_steps)}


def by_steps(key: str) -> tuple[float, str]:
    """Sort key for steps skipped: ascending, then what has no number."""
    try:
        return (float(key), key)
    except ValueError:
        return (float("inf"), {"unknown": "1", "miss": "2"}.get(key, key))
