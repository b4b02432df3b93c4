"""Best sequence of splits for a known load: the yardstick that no controller without foresight beats.

A fluid model of the cluster. It minimises weighted GPU-minutes: loading models, holding a small model,
or waiting in the queues at the end of each window. It ignores that requests are whole, that a worker drains before it
changes, chance inside a window, latency limits, and other contents of the cache under another split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.control.split import Demand

Reals = NDArray[np.float64]


class Split(NamedTuple):
    """Split with ``large`` GPUs on the large model, the others on the small one of number ``rung``."""

    large: int
    rung: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """GPUs of a cluster, and the speed and load times of its models.

    Args:
        gpus: N.
        large_rpm, small_rpm: full generations per minute of a GPU with the large model, and with each small one.
        large_load_s, small_load_s: seconds to load each.
        period_s: length of a window.
        max_large: largest number of GPUs with the large model.
        shared: True if GPUs with the large model also take hits, after misses (quality mode).
    """

    gpus: int
    large_rpm: float
    small_rpm: tuple[float, ...]
    large_load_s: float
    small_load_s: tuple[float, ...]
    period_s: float
    max_large: int
    shared: bool = True

    @property
    def minutes(self) -> float:
        return self.period_s / 60

    def splits(self) -> list[Split]:
        """Return all splits; with every GPU large there is no small model to choose."""
        rungs = range(len(self.small_rpm))
        return [Split(n, rung) for rung in rungs for n in range(1, self.max_large + 1) if n < self.gpus or rung == 0]

    def gpus_to_load(self, before: Split, after: Split) -> tuple[int, int]:
        """Return the numbers of GPUs that load the large model, and that load a small one."""
        small, small_before = self.gpus - after.large, self.gpus - before.large
        unchanged = min(small, small_before) if before.rung == after.rung else 0
        return max(0, after.large - before.large), small - unchanged


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of a GPU-minute of work ``waiting`` at the end of a window, and of a GPU with a ``small`` model.
    ``small`` stands for worse images: 0 if only throughput counts. Loading a model counts 1."""

    waiting: float = 10.0
    small: float = 1.0


class WindowCapacity(NamedTuple):
    """Capacities of a split in one window, in full generations, and its cost before any request comes."""

    large: float
    small: float
    small_rpm: float
    cost: float


def window_capacity(fleet: Fleet, weights: Weights, before: Split, after: Split) -> WindowCapacity:
    """Return the capacity of a window at whose start ``before`` becomes ``after``; loading GPUs serve afterwards."""
    to_large, to_small = fleet.gpus_to_load(before, after)
    minutes, small = fleet.minutes, fleet.gpus - after.large
    large_load, small_load = (
        min(load_s / 60, minutes) for load_s in (fleet.large_load_s, fleet.small_load_s[after.rung])
    )
    loading = to_large * large_load + to_small * small_load
    return WindowCapacity(
        (after.large * minutes - to_large * large_load) * fleet.large_rpm,
        (small * minutes - to_small * small_load) * fleet.small_rpm[after.rung],
        fleet.small_rpm[after.rung],
        loading + weights.small * small * minutes,
    )


def serve_window(
    fleet: Fleet, weights: Weights, capacity: WindowCapacity, demand: Demand, misses: Reals, hits: Reals
) -> tuple[Reals, Reals, Reals]:
    """Serve one window from each of the backlogs ``misses`` and ``hits`` (n,), in full generations; return the cost of
    each, and the backlogs that are left."""
    misses = misses + demand.miss_rpm * fleet.minutes
    done = np.minimum(misses, capacity.large)
    spare = capacity.large - done if fleet.shared else 0.0
    misses = misses - done
    hits = np.maximum(hits + demand.hit_rpm * fleet.minutes - capacity.small - spare, 0.0)
    waiting = misses / fleet.large_rpm + hits / capacity.small_rpm
    return capacity.cost + weights.waiting * waiting, misses, hits


def plan_cost(fleet: Fleet, weights: Weights, start: Split, load: Sequence[Demand], plan: Sequence[Split]) -> float:
    """Return the cost of ``plan``, a split for each window of ``load``, from ``start`` with empty queues."""
    total, misses, hits = np.zeros(1), np.zeros(1), np.zeros(1)
    for before, after, demand in zip([start, *plan], plan, load, strict=False):
        capacity = window_capacity(fleet, weights, before, after)
        window_cost, misses, hits = serve_window(fleet, weights, capacity, demand, misses, hits)
        total = total + window_cost
    return float(total[0])


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Split of each window, and the cost. ``exact`` is True if no plan is cheaper, False if only no kept plan is."""

    splits: list[Split]
    cost: float
    exact: bool


def best_plan(fleet: Fleet, weights: Weights, start: Split, load: Sequence[Demand], max_kept: int = 200) -> SplitPlan:
    """Return the cheapest plan, by dynamic programming over windows and splits with the backlog as the state.

    Of the ways to a split at the end of a window the search keeps those that no other beats in cost and both backlogs.
    Less waiting never costs more later, so it is exact while ``max_kept`` suffices. Beyond that it keeps the cheapest.

    Args:
        start: the split before the first window, queues empty.
        load: demand of each window.
        max_kept: ways kept for each split.
    """
    splits = fleet.splits()
    ways = {start: _Ways(np.zeros(1), np.zeros(1), np.zeros(1))}
    trace: list[dict[Split, list[tuple[Split, int]]]] = []
    exact = True
    for demand in load:
        reached: dict[Split, _Ways] = {}
        back: dict[Split, list[tuple[Split, int]]] = {}
        for after in splits:
            origins: list[tuple[Split, int]] = []
            parts: list[tuple[Reals, Reals, Reals]] = []
            for before, way in ways.items():
                capacity = window_capacity(fleet, weights, before, after)
                window_cost, misses, hits = serve_window(fleet, weights, capacity, demand, way.misses, way.hits)
                parts.append((way.cost + window_cost, misses, hits))
                origins += [(before, number) for number in range(len(way.cost))]
            total, misses, hits = (np.concatenate(column) for column in zip(*parts, strict=True))
            kept, complete = _unbeaten(total, misses, hits, max_kept)
            exact = exact and complete
            reached[after] = _Ways(total[kept], misses[kept], hits[kept])
            back[after] = [origins[number] for number in kept]
        ways = reached
        trace.append(back)
    last = min(ways, key=lambda split: float(ways[split].cost.min()))
    number = int(ways[last].cost.argmin())
    total_cost = float(ways[last].cost[number])
    splits_backwards = []
    for back in reversed(trace):
        splits_backwards.append(last)
        last, number = back[last][number]
    return SplitPlan(splits_backwards[::-1], total_cost, exact)


class _Ways(NamedTuple):
    cost: Reals
    misses: Reals
    hits: Reals


def _unbeaten(total: Reals, misses: Reals, hits: Reals, max_kept: int) -> tuple[NDArray[np.int64], bool]:
    """Return the numbers of unbeaten ways, cheapest first, at most ``max_kept``; and True if these are all."""
    order = np.lexsort((hits, misses, total))
    misses, hits = misses[order], hits[order]
    unbeaten = np.ones(len(order), np.bool_)
    kept: list[int] = []
    while unbeaten.any():
        if len(kept) == max_kept:
            return order[kept], False
        first = int(unbeaten.argmax())
        kept.append(first)
        unbeaten &= ~((misses >= misses[first]) & (hits >= hits[first]))
    return order[kept], True
