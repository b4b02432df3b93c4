"""The best sequence of splits for a load that is known: the yardstick that no controller without foresight beats.

A fluid model of the cluster, window by window. It optimises weighted GPU-minutes: loading models, given to a smaller
model, or waiting in the queues at the end of each window. It ignores that requests are whole, that a worker ends what
it has aboard before it changes, chance inside a window, latency limits, and what another split would cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.control.split import Demand

Reals = NDArray[np.float64]


class Split(NamedTuple):
    """``large`` GPUs hold the large model, the others the small one of number ``rung``."""

    large: int
    rung: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """What serves.

    Args:
        gpus: N.
        large_rpm, small_rpm: full generations per minute of a GPU with the large model, and with each small one.
        large_load_s, small_load_s: seconds to load each.
        period_s: length of a window.
        most: the most GPUs with the large model.
        shared: the large ones take hits too, with what misses leave (quality mode).
    """

    gpus: int
    large_rpm: float
    small_rpm: tuple[float, ...]
    large_load_s: float
    small_load_s: tuple[float, ...]
    period_s: float
    most: int
    shared: bool = True

    @property
    def minutes(self) -> float:
        return self.period_s / 60

    def splits(self) -> list[Split]:
        """All that there are; with every GPU large there is no small model to choose."""
        rungs = range(len(self.small_rpm))
        return [Split(n, rung) for rung in rungs for n in range(1, self.most + 1) if n < self.gpus or rung == 0]

    def moved(self, before: Split, after: Split) -> tuple[int, int]:
        """GPUs that load the large model, and that load a small one."""
        small, were = self.gpus - after.large, self.gpus - before.large
        stay = min(small, were) if before.rung == after.rung else 0
        return max(0, after.large - before.large), small - stay


@dataclass(frozen=True, slots=True)
class Weights:
    """What a GPU-minute counts of work that is ``waiting`` at the end of a window, and of a GPU that holds a ``small``
    model, whose images are worse (0 where only throughput counts). Loading a model counts 1."""

    waiting: float = 10.0
    small: float = 1.0


class Window(NamedTuple):
    """What a split can do in one window: capacities in full generations, and what it costs whatever comes."""

    large: float
    small: float
    small_rpm: float
    cost: float


def window(fleet: Fleet, weights: Weights, before: Split, after: Split) -> Window:
    """A window in which ``before`` becomes ``after`` at its start; what loads serves when it is done."""
    to_large, to_small = fleet.moved(before, after)
    minutes, small = fleet.minutes, fleet.gpus - after.large
    large_load, small_load = (
        min(load_s / 60, minutes) for load_s in (fleet.large_load_s, fleet.small_load_s[after.rung])
    )
    loading = to_large * large_load + to_small * small_load
    return Window(
        (after.large * minutes - to_large * large_load) * fleet.large_rpm,
        (small * minutes - to_small * small_load) * fleet.small_rpm[after.rung],
        fleet.small_rpm[after.rung],
        loading + weights.small * small * minutes,
    )


def served(
    fleet: Fleet, weights: Weights, able: Window, asked: Demand, misses: Reals, hits: Reals
) -> tuple[Reals, Reals, Reals]:
    """One window from each of several backlogs (n,): the cost of each, and the backlogs that are left. ``misses`` and
    ``hits`` are what waits already, in full generations."""
    misses = misses + asked.miss_rpm * fleet.minutes
    done = np.minimum(misses, able.large)
    spare = able.large - done if fleet.shared else 0.0
    misses = misses - done
    hits = np.maximum(hits + asked.hit_rpm * fleet.minutes - able.small - spare, 0.0)
    waiting = misses / fleet.large_rpm + hits / able.small_rpm
    return able.cost + weights.waiting * waiting, misses, hits


def cost(fleet: Fleet, weights: Weights, start: Split, load: Sequence[Demand], plan: Sequence[Split]) -> float:
    """What ``plan``, a split for each window of ``load``, costs from ``start`` with empty queues."""
    total, misses, hits = np.zeros(1), np.zeros(1), np.zeros(1)
    for before, after, asked in zip([start, *plan], plan, load, strict=False):
        able = window(fleet, weights, before, after)
        spent, misses, hits = served(fleet, weights, able, asked, misses, hits)
        total = total + spent
    return float(total[0])


@dataclass(frozen=True, slots=True)
class Plan:
    """A split for each window, its cost, and whether no other is cheaper, or only none of those that were kept."""

    splits: list[Split]
    cost: float
    exact: bool


def best(fleet: Fleet, weights: Weights, start: Split, load: Sequence[Demand], most_kept: int = 200) -> Plan:
    """The cheapest plan, by dynamic programming over windows and splits with the backlog as the state.

    Of the ways to a split at the end of a window those are kept that no other beats in cost and in both backlogs at
    once: less waiting never costs more later, so the search is exact while ``most_kept`` suffices. Beyond that the
    cheapest are kept.

    Args:
        start: the split before the first window, queues empty.
        load: of each window.
        most_kept: ways kept for each split.
    """
    splits = fleet.splits()
    ways = {start: _Ways(np.zeros(1), np.zeros(1), np.zeros(1))}
    trace: list[dict[Split, list[tuple[Split, int]]]] = []
    exact = True
    for asked in load:
        reached: dict[Split, _Ways] = {}
        back: dict[Split, list[tuple[Split, int]]] = {}
        for after in splits:
            origins: list[tuple[Split, int]] = []
            parts: list[tuple[Reals, Reals, Reals]] = []
            for before, way in ways.items():
                able = window(fleet, weights, before, after)
                spent, misses, hits = served(fleet, weights, able, asked, way.misses, way.hits)
                parts.append((way.cost + spent, misses, hits))
                origins += [(before, at) for at in range(len(way.cost))]
            total, misses, hits = (np.concatenate(column) for column in zip(*parts, strict=True))
            kept, whole = _unbeaten(total, misses, hits, most_kept)
            exact = exact and whole
            reached[after] = _Ways(total[kept], misses[kept], hits[kept])
            back[after] = [origins[at] for at in kept]
        ways = reached
        trace.append(back)
    last = min(ways, key=lambda split: float(ways[split].cost.min()))
    at = int(ways[last].cost.argmin())
    total_cost = float(ways[last].cost[at])
    found = []
    for back in reversed(trace):
        found.append(last)
        last, at = back[last][at]
    return Plan(found[::-1], total_cost, exact)


class _Ways(NamedTuple):
    cost: Reals
    misses: Reals
    hits: Reals


def _unbeaten(total: Reals, misses: Reals, hits: Reals, most: int) -> tuple[NDArray[np.int64], bool]:
    """Numbers of those that no other beats, cheapest first, ``most`` at most; and whether these are all."""
    order = np.lexsort((hits, misses, total))
    misses, hits = misses[order], hits[order]
    alive = np.ones(len(order), np.bool_)
    kept: list[int] = []
    while alive.any():
        if len(kept) == most:
            return order[kept], False
        at = int(alive.argmax())
        kept.append(at)
        alive &= ~((misses >= misses[at]) & (hits >= hits[at]))
    return order[kept], True
