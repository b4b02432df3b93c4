"""Yardstick of MoDM's monitor: the best splits for the load that a finished run recorded, followed in another run.

They are the best of a fluid model of the cluster. It minimises weighted GPU-minutes: loading models, holding the small
model, or waiting in the queues at the end of each window. It ignores that requests are whole, that a worker drains
before it changes, chance inside a window, latency limits, and other contents of the cache under another split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mezzotint.backends.base import Backend, weights_of
from mezzotint.settings.ranges import Amount, Count, SomeSeconds
from mezzotint.sim.control.monitor import WindowCounts
from mezzotint.sim.control.roles import HitSplitter, role_gauge
from mezzotint.sim.control.split import Demand
from mezzotint.sim.control.timetable import Timetable
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import HIT, LOOKUPS
from mezzotint.sim.core.run_folder import REQUESTS
from mezzotint.sim.core.workload import capacity_rpm
from mezzotint.sim.metrics.run_files import read_columns
from mezzotint.sim.protocols import Run

Reals = NDArray[np.float64]


@dataclass(slots=True)
class Hindsight(HitSplitter):
    """Split the cluster between two models in the best way for a load known beforehand (``best_plan``).

    A finished run of the same trace and arrivals gives the load of each window: requests, hits, and the steps that hits
    had left. Under other splits this run may have a few other hits.

    Args:
        folder: run directory of that run.
        period_s: length of a window.
        waiting, small: weights of the objective (Fleet).
        max_kept: ways that the search keeps for each split.
    """

    folder: str
    period_s: SomeSeconds = 180.0
    waiting: Amount = 10.0
    small: Amount = 1.0
    max_kept: Count = 200

    def bind(self, run: Run) -> None:
        if len(run.models) != 2:
            raise ConfigError(
                f"controller: found the models {', '.join(run.models)}, and GPUs are split between two; choose another "
                "models="
            )
        cluster, remedy = run.cluster, "choose controller=modm-throughput or modm-quality"
        check_one_kind(cluster.kinds, "controller=modm-hindsight", "its plan is of a cluster of", remedy)
        large, small = run.models
        fleet = Fleet(
            cluster.gpus,
            capacity_rpm(run.backend, run.model(large)),
            capacity_rpm(run.backend, run.model(small)),
            _load_s(run.backend, run.model(large)),
            _load_s(run.backend, run.model(small)),
            self.period_s,
            self.waiting,
            self.small,
        )
        load = recorded_demand(Path(self.folder), self.period_s)
        plan = best_plan(fleet, cluster.roles().count(large), load, self.max_kept)
        for role in run.models:
            run.gauge(f"gpus_{role}", role_gauge(cluster, role))
        truncated = f"the cheapest of {self.max_kept} ways kept for each split"
        found = "no plan is cheaper" if plan.exact else truncated
        run.assume(
            "splits planned in hindsight, their cost [GPU-min]",
            [len(load), round(plan.cost, 3)],
            f"{best_plan.__module__}, weights: waiting {self.waiting:g}, small {self.small:g}, loading 1; {found}",
        )
        splits = {
            number * self.period_s: {large: count, small: cluster.gpus - count}
            for number, count in enumerate(plan.large)
        }
        Timetable(splits).bind(run)


def _load_s(backend: Backend, model: Model) -> float:
    return backend.load(weights_of(model.name)).seconds


def recorded_demand(folder: Path, period_s: float) -> list[Demand]:
    """Return the load of each window of the run in ``folder``, from 0 s to its last arrival. Raises ConfigError if
    there is none."""
    try:
        rows = read_columns(folder / REQUESTS, ("arrival_s", "lookup", "skipped", "steps"))
    except ConfigError as error:
        raise ConfigError(f"controller.folder: {folder} holds no run of the same trace; {error}") from None
    arrival_s, skipped, steps = (rows[name].to_numpy() for name in ("arrival_s", "skipped", "steps"))
    hit = (rows["lookup"] == LOOKUPS[HIT]).to_numpy()
    left = np.where(hit, 1 - skipped / steps, 0.0)
    window = arrival_s // period_s
    ends = np.searchsorted(window, np.arange(window[-1] + 1), side="right").tolist()  # rows are in the order of arrival
    spans = [slice(first, end) for first, end in pairwise([0, *ends])]
    return [
        WindowCounts(span.stop - span.start, int(hit[span].sum()), float(left[span].sum())).demand(period_s)
        for span in spans
    ]


@dataclass(frozen=True, slots=True)
class Fleet:
    """GPUs of a cluster, the speed and load times of its two models, and the weights of the objective.

    GPUs with the large model also take hits, after misses (MoDM's quality mode).

    Args:
        large_rpm, small_rpm: full generations per minute of a GPU with each model.
        large_load_s, small_load_s: seconds to load each.
        period_s: length of a window.
        waiting: weight of a GPU-minute of work that waits at the end of a window. Loading a model counts 1.
        small: weight of a GPU-minute on the small model, which stands for worse images.
    """

    gpus: int
    large_rpm: float
    small_rpm: float
    large_load_s: float
    small_load_s: float
    period_s: float
    waiting: float = 10.0
    small: float = 1.0

    @property
    def minutes(self) -> float:
        return self.period_s / 60

    def window(self, before: int, after: int) -> "WindowCapacity":
        """Return the capacity of a window at whose start ``after`` GPUs become large, ``before`` of which were.
        Loading GPUs serve afterwards."""
        to_large, to_small = max(0, after - before), max(0, before - after)
        minutes, small = self.minutes, self.gpus - after
        large_load, small_load = (min(load_s / 60, minutes) for load_s in (self.large_load_s, self.small_load_s))
        loading = to_large * large_load + to_small * small_load
        return WindowCapacity(
            (after * minutes - to_large * large_load) * self.large_rpm,
            (small * minutes - to_small * small_load) * self.small_rpm,
            loading + self.small * small * minutes,
        )

    def serve(
        self, capacity: "WindowCapacity", demand: Demand, misses: Reals, hits: Reals
    ) -> tuple[Reals, Reals, Reals]:
        """Serve one window from each of the backlogs ``misses`` and ``hits`` (n,), in full generations; return the cost
        of each, and the backlogs that are left."""
        misses = misses + demand.miss_rpm * self.minutes
        done = np.minimum(misses, capacity.large)
        spare = capacity.large - done
        misses = misses - done
        hits = np.maximum(hits + demand.hit_rpm * self.minutes - capacity.small - spare, 0.0)
        waiting = misses / self.large_rpm + hits / self.small_rpm
        return capacity.cost + self.waiting * waiting, misses, hits


class WindowCapacity(NamedTuple):
    """Capacities of the GPUs of each model in one window, in full generations, and their cost before any request."""

    large: float
    small: float
    cost: float


class SplitPlan(NamedTuple):
    """GPUs with the large model in each window, and the cost. ``exact`` is True if no plan is cheaper, False if only no
    kept plan is."""

    large: list[int]
    cost: float
    exact: bool


def best_plan(fleet: Fleet, start: int, load: Sequence[Demand], max_kept: int = 200) -> SplitPlan:
    """Return the cheapest plan, by dynamic programming over windows and splits with the backlog as the state.

    Of the ways to a split at the end of a window the search keeps those that no other beats in cost and both backlogs.
    Less waiting never costs more later, so it is exact while ``max_kept`` suffices. Beyond that it keeps the cheapest.

    Args:
        start: GPUs with the large model before the first window, queues empty.
        load: demand of each window.
        max_kept: ways kept for each split.
    """
    ways = {start: _Ways(np.zeros(1), np.zeros(1), np.zeros(1))}
    trace: list[dict[int, list[tuple[int, int]]]] = []
    exact = True
    for demand in load:
        reached: dict[int, _Ways] = {}
        back: dict[int, list[tuple[int, int]]] = {}
        for after in range(1, fleet.gpus + 1):
            origins: list[tuple[int, int]] = []
            parts: list[_Ways] = []
            for before, way in ways.items():
                window_cost, misses, hits = fleet.serve(fleet.window(before, after), demand, way.misses, way.hits)
                parts.append(_Ways(way.cost + window_cost, misses, hits))
                origins += [(before, number) for number in range(len(way.cost))]
            every = _Ways(*(np.concatenate(column) for column in zip(*parts, strict=True)))
            kept, complete = _unbeaten(every, max_kept)
            exact = exact and complete
            reached[after] = _Ways(*(column[kept] for column in every))
            back[after] = [origins[number] for number in kept]
        ways = reached
        trace.append(back)
    last = min(ways, key=lambda large: float(ways[large].cost.min()))
    number = int(ways[last].cost.argmin())
    cost = float(ways[last].cost[number])
    backwards = []
    for back in reversed(trace):
        backwards.append(last)
        last, number = back[last][number]
    return SplitPlan(backwards[::-1], cost, exact)


class _Ways(NamedTuple):
    cost: Reals
    misses: Reals
    hits: Reals


def _unbeaten(ways: _Ways, max_kept: int) -> tuple[NDArray[np.int64], bool]:
    """Return the numbers of unbeaten ways, cheapest first, at most ``max_kept``; and True if these are all."""
    order = np.lexsort((ways.hits, ways.misses, ways.cost))
    misses, hits = ways.misses[order], ways.hits[order]
    unbeaten = np.ones(len(order), np.bool_)
    kept: list[int] = []
    while unbeaten.any():
        if len(kept) == max_kept:
            return order[kept], False
        first = int(unbeaten.argmax())
        kept.append(first)
        unbeaten &= ~((misses >= misses[first]) & (hits >= hits[first]))
    return order[kept], True
