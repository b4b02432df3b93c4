"""Controller with perfect knowledge: orders GPUs in time for arrivals that it knows beforehand, as a yardstick."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from mezzotint.settings.ranges import Count, Seconds, Share
from mezzotint.sim.control.instances import Instances, RentingController
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.run_folder import REQUESTS
from mezzotint.sim.metrics.run_files import read_columns
from mezzotint.sim.protocols import Run

MARGIN_S = 1e-3
"""Orders come this much earlier and releases later, so that no rounding error puts them on the wrong side."""

Reals = NDArray[np.float64]
Rental = tuple[float, float]
"""Seconds from the first use of a GPU to its release."""


@dataclass(slots=True)
class Foresight(RentingController):
    """Have each GPU ready when the first latency limit requires it, and give it back when it is not needed for long.

    It knows all arrivals and service times. A plan (``plan_rentals``) is made before the clock starts. If requests take
    equally long, all meet their limits with enough GPUs; otherwise nearly all do. No plan is proved cheapest.

    Args:
        folder: run directory of a finished run of the same trace, whose service times are planned for: a cache shortens
            them. None takes the standalone latency of every request.
        late_share: share of the requests that the plan lets be late; in the run fewer are, which share their wait.
        startup_s, min_gpus, max_gpus: of Instances.

    Raises ConfigError without a latency limit or arrival times, or with an executor that batches.
    """

    startup_s: Seconds
    folder: str | None = None
    late_share: Share = 0.0
    min_gpus: Count = 1
    max_gpus: Count | None = None
    _run: Run = field(init=False, repr=False)
    _instances: Instances = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run, self._instances = run, Instances(run, self.startup_s, self.min_gpus, self.max_gpus)
        workload, worker = run.workload, run.cluster.workers[0]
        served = slice(workload.preload, workload.preload + workload.rows)
        limit_s = np.asarray(workload.limit_s)[served]
        if np.isinf(limit_s).any():
            raise ConfigError("controller: perfect knowledge plans for the first latency limit; set slo=, such as [2x]")
        if len(workload.schedule.times) < workload.rows:
            raise ConfigError(
                "controller: perfect knowledge needs arrival times, and a closed loop has none beforehand; choose "
                "another arrivals="
            )
        if worker.max_batch > 1:
            raise ConfigError(
                f"controller: perfect knowledge plans one request at a time, and the executor runs {worker.max_batch} "
                "on a GPU; choose executor=sequential, or another controller="
            )
        service_s = workload.standalone.total_s[served] if self.folder is None else recorded_service_s(self.folder)
        if len(service_s) != workload.rows:
            raise ConfigError(
                f"controller.folder: {self.folder} has {len(service_s)} requests and this run {workload.rows}; name a "
                "run of the same trace"
            )
        lead_s, max_gpus = self.startup_s + run.cluster.start_s(worker), self._instances.limit
        rentals = plan_rentals(workload.schedule.times, service_s, limit_s, lead_s, max_gpus, self.late_share)
        start, changes = _timetable(rentals, lead_s)
        self._instances.begin(start)
        run.process(self._follow(start, changes))

    def _follow(self, start: int, changes: Iterable[tuple[float, int]]) -> Generator[simpy.Event, Any, None]:
        gpus = start
        for at_s, change in changes:
            yield self._run.clock.sleep_until(at_s)
            gpus += change
            self._instances.resize(gpus)


def plan_rentals(
    arrival_s: Reals, service_s: Reals, limit_s: Reals, lead_s: float, max_gpus: int, late_share: float = 0.0
) -> list[Rental]:
    """Return from when to when each GPU is needed, so that requests in order of arrival meet their limits if they can.

    A request goes to the first GPU that finishes it within its limit, after the requests that went there before. A
    later GPU is used only while the earlier ones are too busy. If none is in time, the one that is free first takes it.
    A GPU stays on over a gap that is no longer than ``lead_s``, which a new order would cost. No GPU is ordered for a
    request that may be late.

    Args:
        arrival_s, service_s, limit_s: of every request (n,), arrivals ascending.
        lead_s: seconds from the order of a GPU until it serves.
        late_share: share of the requests so far that may be late.
    """
    free_s: list[float] = []  # of each GPU used so far
    since_s: list[float] = []
    rentals: list[Rental] = []
    late = 0
    for number, row in enumerate(np.column_stack([arrival_s, service_s, limit_s])):
        now_s, service, limit = row.tolist()
        latest_s, on_since_s = max(now_s, now_s + limit * (1 + 1e-9) - service), now_s - lead_s - 2 * MARGIN_S
        gpu = next((gpu for gpu, at_s in enumerate(free_s) if at_s <= latest_s), len(free_s))
        is_off = gpu == len(free_s) or free_s[gpu] < on_since_s
        on = [at_s for at_s in free_s if at_s >= on_since_s] if is_off else []
        if on and (gpu >= max_gpus or late < late_share * number):
            gpu, is_off, late = free_s.index(min(on)), False, late + 1
        if gpu == len(free_s):
            free_s.append(now_s)
            since_s.append(now_s)
        elif is_off:
            rentals.append((since_s[gpu], free_s[gpu]))
            since_s[gpu] = now_s
        free_s[gpu] = max(free_s[gpu], now_s) + service
    return rentals + list(zip(since_s, free_s, strict=True))


def recorded_service_s(folder: str) -> Reals:
    """Return the seconds on a GPU, without loads, of each request of the run in ``folder``; 0 if it needed none.

    Raises ConfigError if there is no such run.
    """
    try:
        rows = read_columns(Path(folder) / REQUESTS, ("start_s", "finish_s", "load_s"))
    except ConfigError as error:
        raise ConfigError(f"controller.folder: {folder} holds no run of the same trace; {error}") from None
    start_s, finish_s, load_s = (rows[name].to_numpy() for name in ("start_s", "finish_s", "load_s"))
    service_s: Reals = np.nan_to_num(finish_s - start_s - np.nan_to_num(load_s))
    return service_s


def _timetable(rentals: Iterable[Rental], lead_s: float) -> tuple[int, list[tuple[float, int]]]:
    """Return the GPUs on at the start, and the times at which their number changes, by how many."""
    orders = [(from_s - lead_s - MARGIN_S, 1) for from_s, _ in rentals]
    events = sorted([*orders, *((until_s + MARGIN_S, -1) for _, until_s in rentals)])
    start = sum(at_s < 0 for at_s, _ in orders)
    later = ((at_s, change) for at_s, change in events if at_s >= 0)
    return start, [(at_s, sum(change for _, change in group)) for at_s, group in groupby(later, lambda each: each[0])]
