"""MoDM's monitor and its queues in a run: conserved requests, allocations within bounds, steps down and up the
models."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.control.monitor import GlobalMonitor, WindowCounts
from mezzotint.sim.control.roles import apply_split
from mezzotint.sim.control.split import Demand
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import DECLARED, HIT, MISS, Plan
from mezzotint.sim.core.request import COMPLETED, Request
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import Run
from mezzotint.sim.scheduling.hit_miss import HitMiss
from mezzotint.sim.scheduling.hit_miss_per_worker import HitMissPerWorker
from tests.sim.cluster.test_cluster import Acts
from tests.sim.lab import FixedTimes, engine, simulated

MODELS = {role: Model(role, 50, 64, 64) for role in ("large", "small", "smallest")}
FULL_S = {"large": 90.0, "small": 16.0, "smallest": 6.0}


class Timed(FixedTimes):
    """Steps take what their model's name says."""

    def steps(self, works: Any, count: int = 1) -> Any:
        super().steps(works, count)
        return Cost(FULL_S[works[0].model] * count / works[0].steps)


class Cached(Direct):
    """Rows in ``hits`` skip half of their steps."""

    def __init__(self, hits: set[int]) -> None:
        super().__init__()
        self.hits = hits

    def bind(self, run: Run) -> None:
        self.run = run

    def admit(self, request: Request, now_s: float) -> float:
        plan = Plan(self.run.model("large").name, lookup=MISS)
        if request.row in self.hits:
            plan = Plan(self.run.model("small").name, 25, 50, lookup=HIT, source=DECLARED)
        self.run.assign(request, plan)
        return 0.0


class Bounded:
    """Checks after every event that the roles add up and the large ones stay within their bounds."""

    def __init__(self, max_large: int) -> None:
        self.max_large = max_large
        self.seen: list[int] = []

    def bind(self, run: Run) -> None:
        self.run = run

    def arrived(self, request: Request, now_s: float) -> None:
        workers = self.run.cluster.workers
        large = sum(worker.role == "large" for worker in workers)
        assert 1 <= large <= self.max_large
        assert len(workers) == self.run.cluster.gpus
        assert all(worker.running <= worker.max_batch for worker in workers)
        self.seen.append(large)


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.integers(2, 6),
    st.sampled_from(["quality", "throughput"]),
    st.sampled_from([HitMiss, HitMissPerWorker]),
    st.floats(0, 1),
    st.sampled_from([0.0, 20.0, 400.0]),
    st.floats(20.0, 400.0),
    st.sampled_from([None, "again", "failed"]),
)
def test_neither_switches_nor_outages_drop_a_request(
    seed: int, gpus: int, mode: Any, queues: Any, hit_rate: float, load_s: float, period_s: float, lost: Any
) -> None:
    rng = np.random.default_rng(seed)
    rows = 120
    gaps = rng.exponential(1.0, rows) * np.repeat(rng.choice([0.2, 4.0, 60.0], 6), rows // 6)
    hits = set(np.flatnonzero(rng.random(rows) < hit_rate).tolist())
    shared = mode == "quality"
    scheduler = HitMissPerWorker() if queues is HitMissPerWorker else HitMiss(large_takes_hits=shared)
    watch = Bounded(gpus if mode == "quality" else gpus - 1)
    run = engine(
        np.cumsum(gaps),
        [90.0] * rows,
        frontend=Cached(hits),
        backend=Timed([90.0] * rows, load_s),
        roles=["large"] * (gpus - 1) + ["large" if mode == "quality" else "small"],
        models=MODELS,
        scheduler=scheduler,
        controllers=[
            *([] if lost is None else [Failures(mean_up_s=500.0, mean_down_s=90.0, lost=lost)]),
            GlobalMonitor(mode=mode, period_s=period_s),
            watch,
        ],
        seed=seed,
    )
    run.run()  # raises if a request is lost or ends twice, or a GPU is busy twice
    assert len(watch.seen) == rows
    assert len(scheduler) == 0
    completed = int((run.record.request_columns["outcome"] == COMPLETED).sum())
    assert completed == rows if lost != "failed" else completed <= rows
    assert not run.cluster.serving()


def windows(rates_rpm: list[float], hit_rate: float = 0.75, **settings: Any) -> list[dict[str, Any]]:
    """Return the splits of 16 GPUs over windows of five minutes with the given rates."""
    gaps = np.concatenate([np.full(max(1, round(5 * rate)), 60 / rate) for rate in rates_rpm])
    times = np.cumsum(gaps)
    rng = np.random.default_rng(1)
    hits = set(np.flatnonzero(rng.random(len(times)) < hit_rate).tolist())
    run = engine(
        times,
        [90.0] * len(times),
        frontend=Cached(hits),
        backend=Timed([90.0] * len(times), 20.0),
        roles=["large"] * 16,
        models=MODELS,
        scheduler=HitMiss(large_takes_hits=True),
        controllers=[GlobalMonitor(period_s=300.0, kp=1.0, ki=0.0, kd=0.0, **settings)],
    )
    run.run()
    return [details for _, what, details in run.record.decisions if what == "split"]


def test_monitor_steps_the_small_model_down_under_load_and_back_up() -> None:
    splits = windows([10.0] * 3 + [40.0] * 4 + [8.0] * 8)
    assert "smallest" not in splits[1]
    assert splits[5]["smallest"] > 0
    assert "smallest" not in splits[-1]


def test_monitor_waits_for_its_patience_before_stepping_up() -> None:
    back = {}
    for patience in (1, 5):
        splits = windows([40.0] * 4 + [8.0] * 9, patience=patience)
        back[patience] = max(i for i, split in enumerate(splits) if "smallest" in split)
    assert back[5] == back[1] + 4


def test_safety_factor_lowers_the_number_of_large_workers() -> None:
    bold, careful = (windows([22.0] * 6, safety=safety)[-1]["target"] for safety in (1.0, 0.7))
    assert careful < bold


def test_window_without_arrivals_changes_no_split() -> None:
    run = engine(
        [0.0, 5000.0],
        [90.0, 90.0],
        frontend=Cached(set()),
        backend=Timed([90.0] * 2),
        roles=["large", "small"],
        models=MODELS,
        scheduler=HitMiss(),
        controllers=[GlobalMonitor(mode="throughput", period_s=60.0)],
    )
    run.run()
    splits = [at_s for at_s, what, _ in run.record.decisions if what == "split"]
    assert splits == [60.0, 5040.0]  # at the ends of the two windows with arrivals


def test_monitor_with_one_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="two models"):
        engine([0.0], [1.0], models={"large": Model("large", 50, 64, 64)}, controllers=[GlobalMonitor()]).run()


def test_misses_rotate_over_large_workers_and_hits_over_small_ones() -> None:
    run = engine(
        [0.0] * 8,
        [10.0] * 8,
        frontend=Cached({1, 3, 5, 7}),
        roles=["large", "large", "small", "small"],
        scheduler=HitMissPerWorker(),
    )
    run.run()
    assert run.record.request_columns["worker"].tolist() == [0, 3, 1, 2, 0, 3, 1, 2]


def test_worker_finishes_its_misses_before_switching_and_hands_over_its_hits() -> None:
    """Two workers of each role; at 1 s a large one is ordered to become small, at 2 s a small one large."""

    def swap(worker: int, role: str) -> Any:
        return lambda run, now_s: run.cluster.change_role(run.cluster.workers[worker], role, now_s)

    run = engine(
        [0.0] * 8,
        [10.0] * 8,
        frontend=Cached({4, 5, 6, 7}),
        backend=FixedTimes([10.0] * 8, 5.0),
        roles=["large", "large", "small", "small"],
        scheduler=HitMissPerWorker(),
        controllers=[Acts((1.0, swap(1, "small")), (2.0, swap(3, "large")))],
    )
    run.run()
    columns = run.record.request_columns
    assert columns["worker"][:4].tolist() == [0, 1, 0, 1]  # both of worker 1's misses run on it
    assert columns["finish_s"][3] == 20.0
    loads = [details for _, what, details in run.record.decisions if what == "order"]
    assert [(each["worker"], each["to"]) for each in loads] == [(1, "small"), (3, "large")]
    assert columns["worker"][4] == 3  # was running
    assert columns["worker"][6] in (1, 2)  # waited there and was handed over


def test_misses_queued_for_a_revoked_order_move_to_a_loaded_worker() -> None:
    """The small worker refines until 20 s. Ordered to be large at 1 s it is given a miss, and at 3 s the order is
    revoked. The miss runs on the large worker, and no worker loads."""
    run = engine(
        [0.0, 0.5, 2.0, 2.5],
        [20.0] * 4,
        frontend=Cached({0}),
        backend=FixedTimes([20.0] * 4, 5.0),
        roles=["large", "small"],
        scheduler=HitMissPerWorker(),
        controllers=[
            Acts(
                (1.0, lambda run, now_s: run.cluster.change_role(run.cluster.workers[1], "large", now_s)),
                (3.0, lambda run, now_s: run.cluster.change_role(run.cluster.workers[1], "small", now_s)),
            )
        ],
    )
    run.run()
    columns = run.record.request_columns
    assert columns["worker"].tolist() == [1, 0, 0, 0]
    assert columns["load_s"].tolist() == [0.0] * 4
    assert "load" not in run.record.usage_log.kinds


def test_apply_split_moves_the_fewest_workers() -> None:
    moves = []

    def split(run: Any, now_s: float) -> None:
        apply_split(run.cluster, {"large": 1, "small": 2, "smallest": 1}, now_s)
        moves.append([worker.role for worker in run.cluster.workers])

    run = engine(
        [0.0, 50.0], [1.0, 1.0], roles=["large"] * 3 + ["small"], models=MODELS, controllers=[Acts((10.0, split))]
    )
    run.run()
    assert sorted(moves[0]) == ["large", "small", "small", "smallest"]
    assert sum(what == "order" for _, what, _ in run.record.decisions) == 2


@pytest.mark.parametrize(
    "watched",
    [
        ("system=modm-quality",),
        ("system=modm-throughput",),
    ],
)
def test_monitor_has_lower_p99_than_a_wrong_fixed_split(watched: tuple[str, ...]) -> None:
    """Two large models where the load needs about ten leave misses waiting; the monitor finds the right split."""
    common = ("arrivals.rate_rpm=20", "trace.requests=900", "preload=300", "cluster.count=16")
    adapted = simulated(*watched, *common).summary
    fixed = simulated("system=modm-fixed", "allocation.large=2", *common).summary
    assert adapted["latency_s"]["p99"] < fixed["latency_s"]["p99"]
    assert adapted["gpu"]["switches"] > 0


def test_window_without_requests_has_zero_demand() -> None:
    """Equations 7 and 8 divide by the requests and the hits of a window, either of which may be zero."""
    assert WindowCounts().demand(60.0) == Demand(0.0, 0.0)
    one_miss = WindowCounts.of([Request(0, 0.0, 64, 64, 50)])
    assert one_miss.demand(60.0) == Demand(1.0, 0.0)


@pytest.mark.parametrize("drain", [True, False])
def test_monitor_counts_waiting_requests_as_load_after_the_last_arrival(drain: bool) -> None:
    """Hits and misses wait in separate queues: without draining, the GPUs of the emptied queue idle to the end."""
    words = ["system=modm-throughput", "arrivals=saturation", "arrivals.gap_s=0.5", "trace.requests=900", "preload=300"]
    words += ["cluster.count=12", "controller.period_s=120", f"controller.drain={str(drain).lower()}"]
    summary = simulated(*words).summary
    assert summary["requests"]["completed"] == 600
    busy = summary["gpu"]["busy_fraction"]
    assert busy > 0.9 if drain else busy < 0.85
