"""Runs side by side: replicas of one system at one load, and the loads at which systems can be compared."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from sim.study.identity import Load
from sim.study.runs import Run


@dataclass(frozen=True, slots=True)
class Spread:
    """A quantity over replicas: its mean and its extremes, in the quantity's own unit."""

    mean: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Cell:
    """The replicas (seeds) of one series at one load."""

    series: str
    load: Load
    runs: tuple[Run, ...]

    def spread(self, *keys: str) -> Spread | None:
        """The summary's number under `keys` over the replicas that have it; None if none has."""
        return spread([value for run in self.runs if (value := run.number(*keys)) is not None])


def spread(values: Sequence[float]) -> Spread | None:
    """Mean and extremes of `values`; None if there are none."""
    if not values:
        return None
    return Spread(sum(values) / len(values), min(values), max(values), len(values))


def cells(runs: Sequence[Run]) -> list[Cell]:
    """Runs grouped by load and series, in ascending load."""
    groups: dict[tuple[str, Load], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.series, run.load].append(run)
    ordered = sorted(groups.items(), key=lambda item: (item[0][1].order, item[0][0]))
    return [Cell(series, load, tuple(members)) for (series, load), members in ordered]


def common_loads(runs: Sequence[Run], most: int = 3) -> list[Load]:
    """The loads that most series share, ascending; of more than `most`, evenly spaced ones with both ends."""
    shared: dict[Load, set[str]] = defaultdict(set)
    for run in runs:
        shared[run.load].add(run.series)
    if not shared:
        return []
    widest = max(len(series) for series in shared.values())
    loads = sorted((load for load, series in shared.items() if len(series) == widest), key=lambda x: x.order)
    if len(loads) <= most:
        return loads
    return [loads[round(index * (len(loads) - 1) / (most - 1))] for index in range(most)] if most > 1 else loads[-1:]


def slo_multiples(runs: Sequence[Run]) -> list[str]:
    """Every SLO name that some run measured ("2x", "4x"), by size."""

    def size(name: str) -> tuple[float, str]:
        try:
            return (float(name.rstrip("x×")), name)
        except ValueError:
            return (float("inf"), name)

    return sorted({name for run in runs for name in run.summary["slo"] or {}}, key=size)


def hit_shares(cell: Cell) -> dict[str, float] | None:
    """Share of lookups by steps skipped: {"5": 0.1, ..., "unknown": hits without a K, "miss": the rest}.

    They sum to one. Averaged over the replicas; None for a series without a cache or without one lookup.
    """
    bars = [bar for run in cell.runs if (bar := _hit_shares(run)) is not None]
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


def _hit_shares(run: Run) -> dict[str, float] | None:
    hit_rate = run.number("cache", "hit_rate")
    if hit_rate is None:
        return None
    hit_rate = min(max(hit_rate, 0.0), 1.0)
    keys = run.summary["cache"]["hit_share_by_k"] or {}
    known = {key: share for key in keys if (share := run.number("cache", "hit_share_by_k", key))}
    total = sum(known.values())
    shares = {key: hit_rate * share / total for key, share in known.items()} if hit_rate else {}
    if hit_rate and not known:
        shares["unknown"] = hit_rate
    return shares | {"miss": 1.0 - hit_rate}
