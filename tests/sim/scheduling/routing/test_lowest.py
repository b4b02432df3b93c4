"""Routers that keep an index choose what a scan over all workers chooses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.cluster.free_workers import FreeWorkers, remove
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.streams import ROUTER
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.protocols import Router, Run
from mezzotint.sim.scheduling.routing.lowest import CountedLowest, Lowest
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastOutstanding, LeastWorkLeft
from mezzotint.sim.scheduling.typical_latency import TypicalLatency
from tests.sim.cluster.test_cluster import Acts
from tests.sim.lab import FixedTimes, engine
from tests.sim.scheduling.routing.test_per_worker import BySize, seconds


class Draws:
    """A generator that draws a given rank, as far as there are so many."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def integers(self, count: int) -> int:
        return self.rank % count


@settings(max_examples=40)
@given(
    size=st.sampled_from([1, 2, 16, 17, 40, 300]),
    changes=st.lists(st.tuples(st.integers(0, 299), st.integers(0, 3)), max_size=60),
    ranks=st.integers(0, 299),
)
def test_index_finds_the_lowest_values_that_a_scan_finds(size: int, changes: list[tuple[int, int]], ranks: int) -> None:
    values = [0] * size
    plain, counted = Lowest(values), CountedLowest(values)
    for at, value in changes:
        values[at % size] = value
        tied = [position for position, other in enumerate(values) if other == min(values)]
        for index in (plain, counted):
            index.set(at % size, value)
            assert index.low == min(values)
            assert index.first(index.low) == index.pick(None) == tied[0]
            within = [i for i, other in enumerate(values) if other <= min(values) + 1]
            assert index.up_to(index.low + 1) == within
        assert counted.pick(Draws(ranks)) == tied[ranks % len(tied)]  # type: ignore[arg-type]


class Scan(Router):
    """The definition of the routers: the lowest value of all workers, computed anew for every request."""

    def __init__(self, of: str, ties: str) -> None:
        self.of, self.ties = of, ties
        self.loads: dict[Request, int] = {}
        self.totals: dict[Worker, int] = {}
        self.until_s: dict[Worker, float] = {}

    def bind(self, run: Run) -> None:
        self.rng, self.typical = run.rng(ROUTER), TypicalLatency(run, "", "")

    def value(self, worker: Worker, now_s: float) -> float:
        total = self.totals.get(worker, 0)
        if self.of != "work":
            return total
        return min(max(self.until_s.get(worker, now_s) - now_s, 0.0), total / 1e9)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        values = [self.value(worker, now_s) for worker in workers]
        tied = [worker for worker, value in zip(workers, values, strict=True) if value == min(values)]
        return tied[0] if self.ties == "first" or len(tied) == 1 else tied[int(self.rng.integers(len(tied)))]

    def sent(self, worker: Worker, request: Request, now_s: float, loading_s: float = 0.0) -> None:
        load = 1 if self.of == "requests" else request.pixels
        if self.of == "work":
            load = self.typical.ns(worker, request) + round(loading_s * 1e9)
            self.until_s[worker] = now_s + self.value(worker, now_s) + load / 1e9
        self.loads[request] = load
        self.totals[worker] = self.totals.get(worker, 0) + load

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self.totals[worker] -= self.loads.pop(request)


ROUTERS = {"requests": LeastOutstanding, "pixels": lambda ties: LeastOutstanding("pixels", ties), "work": LeastWorkLeft}


@pytest.mark.parametrize("of", ROUTERS)
@pytest.mark.parametrize("ties", ["first", "random"])
@settings(max_examples=8)
@given(
    gaps=st.lists(st.sampled_from([0.0, 0.1, 0.3, 2.0]), min_size=30, max_size=60),
    widths=st.lists(st.sampled_from([64, 64, 128, 192]), min_size=60, max_size=60),
    gpus=st.sampled_from([2, 5, 20]),
    batch=st.sampled_from([1, 3]),
    fails=st.booleans(),
    changed=st.lists(st.tuples(st.integers(0, 19), st.sampled_from(["large", "small"])), max_size=3),
)
def test_router_chooses_what_a_scan_over_all_workers_chooses(
    of: str, ties: str, gaps: list[float], widths: list[int], gpus: int, batch: int, fails: bool, changed: Any
) -> None:
    """With ties, batches that end later than expected, GPUs that fail, and workers that change their model."""
    times, width = np.cumsum(gaps), np.array(widths[: len(gaps)], np.int32)
    orders = [
        (0.7 + turn, lambda run, now_s, at=at, role=role: run.cluster.change_role(run.cluster.worker(at), role, now_s))
        for turn, (at, role) in enumerate((at % gpus, role) for at, role in changed)
    ]
    found = []
    for router in (ROUTERS[of](ties=ties), Scan(of, ties)):
        failures = [Failures(mean_up_s=4.0, mean_down_s=1.0)] if fails else []
        run = engine(
            times, [seconds(int(each), 16) for each in width], backend=BySize([]), scheduler=PerWorkerQueues(router),
            roles=["large", "small"] * (gpus // 2) + ["large"] * (gpus % 2), seed=len(gaps),
            executor=Sequential() if batch == 1 else ContinuousBatching(batch), controllers=[*failures, Acts(*orders)],
            shapes=(width, width, np.full(len(width), 16, np.int32)), use_model_shape=False,
            models={role: Model(role, 16, 64, 64) for role in ("large", "small")},
        )  # fmt: skip
        run.run()
        found.append(run.record.request_columns["worker"].tolist())
    assert found[0] == found[1]


@settings(max_examples=40)
@given(moves=st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=200))
def test_longest_free_worker_is_first_whoever_was_taken_out_before(moves: list[tuple[int, bool]]) -> None:
    free, order = FreeWorkers(), list[Worker]()
    gpu = Gpu("test", 300.0, 60.0, "made up")
    workers = [Worker(number, "large", "large", gpu=gpu, backend=FixedTimes([])) for number in range(8)]
    for number, is_listed in moves:
        worker = workers[number]
        if worker in order:
            remove(worker)
            order.remove(worker)
        else:
            free.add(worker)
            order.append(worker)
        assert free.least_loaded() is (order[0] if order else None)
        if is_listed:
            assert list(free.idle()) == order
