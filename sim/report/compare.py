"""Comparison of runs: replicas of one system at one load, and the loads that systems have in common."""

import math
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mezzotint.sim.core.slo import OWN, parse_limit
from mezzotint.sim.report.labels import Load, Scalar, natural
from mezzotint.sim.report.runs import Run

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over replicas with their extremes or its confidence interval, in the quantity's own unit."""

    mean: float
    low: float
    high: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class SeriesAtLoad:
    """One series at one load: a run for each seed. Reruns of the same configuration and seed count once."""

    series: str
    load: Load
    runs: tuple[Run, ...]

    def by_seed(self, *keys: str) -> dict[tuple[Scalar, ...], float]:
        """Return the summary's number under `keys` by seed, for the seeds that have it."""
        return {run.replica: value for run in self.runs if (value := run.number(*keys)) is not None}

    def spread(self, *keys: str) -> Spread | None:
        """Return the spread of the summary's number under `keys` over the replicas that have it; None if none has."""
        values = self.by_seed(*keys).values()
        return Spread(sum(values) / len(values), min(values), max(values), len(values)) if values else None

    def mean(self, *keys: str) -> float | None:
        """Return the mean of the summary's number under `keys` over the replicas that have it; None if none has."""
        spread = self.spread(*keys)
        return None if spread is None else spread.mean

    @property
    def is_overloaded(self) -> bool:
        """True if some replica served less than was offered."""
        return any(run.is_overloaded for run in self.runs)

    @property
    def is_undecided(self) -> bool:
        """True if no replica is overloaded, and some is too short to tell."""
        verdicts = {run.load_verdict for run in self.runs}
        return "undecided" in verdicts and "overloaded" not in verdicts


def cells(runs: Sequence[Run]) -> list[SeriesAtLoad]:
    """Group runs by load and series, in ascending load."""
    groups: dict[tuple[str, Load], dict[tuple[Scalar, ...], Run]] = defaultdict(dict)
    for run in runs:
        groups[run.series, run.load].setdefault(run.replica, run)
    ordered = sorted(groups.items(), key=lambda item: (item[0][1].order, natural(item[0][0])))
    return [SeriesAtLoad(series, load, tuple(replicas.values())) for (series, load), replicas in ordered]


def beyond_noise(one: SeriesAtLoad, other: SeriesAtLoad, *keys: str) -> bool:
    """Return True if zero lies outside the 95 % interval of the difference of two series.

    With two or more shared seeds, which have the same arrivals on both sides, this is Student's interval of the paired
    differences; otherwise Welch's. With a single seed the noise is unknown: False.
    """
    from scipy import stats  # imported here, since it takes half a second

    ours, theirs = one.by_seed(*keys), other.by_seed(*keys)
    shared = ours.keys() & theirs.keys()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # seeds may not differ at all
        if len(shared) > 1:
            test = stats.ttest_1samp([ours[seed] - theirs[seed] for seed in shared], 0.0)
        elif len(ours) > 1 and len(theirs) > 1:
            test = stats.ttest_ind(list(ours.values()), list(theirs.values()), equal_var=False)
        else:
            return False
    return bool(test.pvalue < 0.05)


def shared_loads(members: Iterable[Run | SeriesAtLoad]) -> list[Load]:
    """Return the loads that most series share, ascending."""
    shared: dict[Load, set[str]] = defaultdict(set)
    for member in members:
        shared[member.load].add(member.series)
    max_count = max(map(len, shared.values()), default=0)
    loads = (load for load, names in shared.items() if len(names) == max_count)
    return sorted(loads, key=lambda load: load.order)


def common_loads(members: Iterable[Run | SeriesAtLoad]) -> list[Load]:
    """Return the loads that most series share; of more than three, evenly spaced ones with both ends."""
    return thin_out(shared_loads(members), 3)


def thin_out(values: Sequence[T], max_count: int) -> list[T]:
    """Return `values`, or `max_count` evenly spaced ones of them, including both ends."""
    if len(values) <= max_count:
        return list(values)
    return [values[round(index * (len(values) - 1) / (max_count - 1))] for index in range(max_count)]


def slo_multiples(runs: Sequence[Run]) -> list[str]:
    """Return every SLO name that some run measured: own deadlines ("own"), then multiples ("2x"), then seconds ("10s").

    Multiples and seconds are in order of size.
    """

    def size(name: str) -> tuple[bool, bool, float, str]:
        try:
            limit = parse_limit(name)
        except ValueError:
            return (name != OWN, True, math.inf, name)
        return (True, limit.unit == "s", limit.value, name)

    return sorted({name for run in runs for name in run.summary["slo"] or {}}, key=size)


def limit_name(name: str) -> str:
    """Return an SLO's name for a sentence: "2x limit", "own deadline"."""
    return "own deadline" if name == OWN else f"{name} limit"


def limit_text(name: str) -> str:
    """Return an SLO's name for a title: "2x standalone latency", "10s", "own deadline"."""
    return name if name.endswith("s") else "own deadline" if name == OWN else f"{name} standalone latency"


def hit_shares(cell: SeriesAtLoad) -> dict[str, float] | None:
    """Return the share of lookups by steps skipped: {"5": 0.1, ..., "unknown": hits without a K, "miss": the rest}.

    The shares sum to one and are means over the replicas. None for a series without a cache or without a lookup.
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
    return {key: sum(bar.get(key, 0.0) for bar in bars) / len(bars) for key in sorted(keys, key=steps_order)}


def steps_order(key: str) -> tuple[float, str]:
    """Return the sort key of steps skipped: numbers ascending, then unknown and miss."""
    try:
        return (float(key), key)
    except ValueError:
        return (float("inf"), {"unknown": "1", "miss": "2"}.get(key, key))
