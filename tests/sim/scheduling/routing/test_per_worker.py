"""Routers against models of them that recompute everything for every request."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Asset, Cost, Work
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import DECLARED, Plan
from mezzotint.sim.core.request import Addons, Request
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import Router
from mezzotint.sim.scheduling.routing.addons import ByAddons
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastOutstanding, LeastWorkLeft, RandomWorker, RoundRobin
from tests.sim.lab import FixedTimes, engine, simulated

LEAST_LOADED: list[Callable[..., Router]] = [
    LeastOutstanding, partial(LeastOutstanding, "pixels"), partial(LeastOutstanding, "declared-cost"), LeastWorkLeft
]  # fmt: skip
ROUTERS: list[Callable[[], Router]] = [
    *(RandomWorker, RoundRobin, *LEAST_LOADED),
    *(partial(each, ties="random") for each in LEAST_LOADED),
]


class BySize(FixedTimes):
    """A request takes a second for each 64 pixels of its width and a hundredth for each step, in every row."""

    by_row = False

    def steps(self, works: list[Work], count: int = 1) -> Cost:  # type: ignore[override]
        for work in works:
            work.done += count
        return Cost(sum(seconds(work.width, work.steps) * count / work.steps for work in works))


def seconds(width: int, steps: int) -> float:
    return width / 64 + steps / 128


def brute(router: Router, times: list[float], shapes: list[tuple[int, int]], at: list[int]) -> list[list[float]]:
    """Return each worker's outstanding work at every arrival, by the router's own measure, from the earlier routes."""
    free = [0.0] * (max(at) + 1)
    spans: list[tuple[int, float, float]] = []  # worker, from, until, in the order of arrival
    for time, (width, steps), worker in zip(times, shapes, at, strict=True):
        begin = max(free[worker], time)
        free[worker] = begin + seconds(width, steps)
        spans.append((worker, begin, free[worker]))
    found = []
    for row, time in enumerate(times):
        held = [0.0] * 8
        for (worker, begin, until), (width, steps) in zip(spans[:row], shapes, strict=False):
            if until > time:
                held[worker] += {
                    "requests": 1.0,
                    "pixels": float(width * width),
                    "declared-cost": float(width * width * steps),
                    None: until - max(begin, time),
                }[getattr(router, "of", None)]
        found.append(held)
    return found


@settings(max_examples=150)
@given(
    make=st.sampled_from(ROUTERS),
    gaps=st.lists(st.integers(0, 500), min_size=1, max_size=40),
    sizes=st.lists(st.tuples(st.sampled_from([64, 128, 256]), st.sampled_from([16, 32, 64])), min_size=40, max_size=40),
    gpus=st.integers(1, 5),
)
def test_router_sends_each_request_as_its_model_and_workers_serve_in_order(
    make: Callable[[], Router], gaps: list[int], sizes: list[tuple[int, int]], gpus: int
) -> None:
    times = [(sum(gaps[: i + 1]) * 2 + 1) / 4096 * 8 for i in range(len(gaps))]
    shapes = sizes[: len(times)]
    columns = tuple(
        np.array(column, np.int32)
        for column in ([w for w, _ in shapes], [w for w, _ in shapes], [s for _, s in shapes])
    )
    router = make()
    run = engine(
        times, [seconds(*shape) for shape in shapes], gpus, backend=BySize([]), scheduler=PerWorkerQueues(router),
        shapes=columns, use_model_shape=False, models={"large": Model("large", 50, 64, 64)},
    )  # fmt: skip
    run.run()
    at = [int(worker) for worker in run.record.request_columns["worker"]]
    free = [0.0] * gpus
    for row, worker in enumerate(at):
        free[worker] = max(free[worker], times[row]) + seconds(*shapes[row])
        assert run.record.request_columns["finish_s"][row] == pytest.approx(free[worker], rel=1e-12)
    if make is RoundRobin:
        assert at == [row % gpus for row in range(len(at))]
    elif make is not RandomWorker:
        for held, worker in zip(brute(router, times, shapes, at), at, strict=True):
            assert held[worker] <= min(held[:gpus]) + 1e-6
            if make in LEAST_LOADED:  # ties go to the first
                assert all(other > held[worker] - 1e-6 for other in held[:worker])


def test_least_work_left_counts_only_the_unfinished_part_of_a_request() -> None:
    """At 5 s the first worker has 5 of its 10 s left and the second 7 of its 8: the larger request has less left."""
    width = np.array([640, 512, 64], np.int32)
    run = engine(
        [0.0, 4.0, 5.0], [10.0, 8.0, 1.0], 2, backend=BySize([]), scheduler=PerWorkerQueues(LeastWorkLeft()),
        shapes=(width, width, np.ones(3, np.int32)), use_model_shape=False, models={"large": Model("large", 50,
        64, 64)},
    )  # fmt: skip
    run.run()
    assert run.record.request_columns["worker"].tolist() == [0, 1, 0]


def test_missing_load_counts_only_the_loras_that_are_not_resident() -> None:
    """One worker holds a LoRA and a ControlNet: a request for that LoRA lacks nothing, one for another lacks 3 s."""
    run = engine([0.0], [1.0], backend=FixedTimes([1.0], 3.0))
    run.open()
    router = ByAddons()
    router.bind(run)
    (worker,) = run.cluster.workers
    worker.resident.update({Asset("lora", "papercut", "large"): 1, Asset("controlnet", "canny", "large"): 1})
    for addons, lacking_s in (
        (Addons(("canny",), ("papercut",)), 0.0),
        (Addons((), ("pixel-art",)), 3.0),
        (Addons(("depth",), ("papercut",)), 3.0),
    ):
        request = run.request(0, 0.0)
        request.model, request.addons = "large", addons
        assert router.missing_load_s(worker, request) == lacking_s
    request = run.request(0, 0.0)
    for model, lacking_s in (("large", 0.0), ("small", 3.0)):  # of its next try, which needs a ControlNet of its own
        request.model, request.addons = model, Addons(("canny",))
        assert router.missing_load_s(worker, request) == lacking_s


def test_least_outstanding_pixels_sums_pixels_over_requests() -> None:
    """Four images of 128 px equal one of 256, for any number of steps: the next goes to the first worker."""
    width = np.array([256, *[128] * 5], np.int32)
    run = engine(
        [0.0] * 6, [9.0] * 6, 2, backend=BySize([]), scheduler=PerWorkerQueues(LeastOutstanding("pixels")),
        shapes=(width, width, np.array([1, *[9] * 5], np.int32)), use_model_shape=False,
        models={"large": Model("large", 50, 64, 64)},
    )  # fmt: skip
    run.run()
    assert run.record.request_columns["worker"].tolist() == [0, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("router", [LeastOutstanding, LeastWorkLeft])
def test_ties_go_to_the_first_worker_or_to_a_random_one(router: Any) -> None:
    """Each arrives while all three are idle."""
    full_s = [1.0] * 60
    times = [10.0 * row for row in range(60)]
    at = {}
    for ties in ("first", "random"):
        run = engine(times, full_s, 3, backend=FixedTimes(full_s), scheduler=PerWorkerQueues(router(ties=ties)))
        run.run()
        at[ties] = run.record.request_columns["worker"].tolist()
    assert at["first"] == [0] * 60
    assert min(at["random"].count(worker) for worker in range(3)) >= 10


def test_least_declared_cost_breaks_ties_at_random() -> None:
    """Requests arrive far apart, so every choice is a tie of three idle workers."""
    words = ["scheduler=per-worker", "router=least-declared-cost", "cluster.count=3", "trace.requests=60", "seed=1"]
    table = simulated("system=vanilla", *words, "arrivals=closed", "arrivals.outstanding=1").requests
    assert min(np.bincount(table["worker"].to_numpy(), minlength=3)) >= 10


def test_random_router_is_uniform_and_reproducible_by_seed() -> None:
    def went(seed: int) -> list[int]:
        times, full_s = np.arange(3000.0), [0.5] * 3000
        run = engine(times, full_s, 3, scheduler=PerWorkerQueues(RandomWorker()), seed=seed)
        run.run()
        return [int(worker) for worker in run.record.request_columns["worker"]]

    first = went(1)
    assert first == went(1) != went(2)
    assert np.bincount(first) == pytest.approx(1000, abs=4 * (3000 * 2 / 9) ** 0.5)


@pytest.mark.parametrize(
    "router", ["random", "round-robin", "least-requests", "least-declared-cost", "least-work-left"]
)
@pytest.mark.parametrize(
    "system", [("system=nirvana",), ("system=modm-quality",), ("executor=continuous-batching", "extrapolate=warn")]
)
def test_every_system_can_use_every_router(system: tuple[str, ...], router: str) -> None:
    """MoDM's monitor changes roles during the run: waiting requests are routed again, and none is lost."""
    outcome = simulated(
        *system, "scheduler=per-worker", f"router={router}", "trace.requests=60", "trace.history=100", "preload=20",
        "arrivals.rate_rpm=40", "cluster.count=4",
    )  # fmt: skip
    assert outcome.summary["requests"]["completed"] == 40


def test_router_without_per_worker_scheduler_is_refused() -> None:
    with pytest.raises(ConfigError, match="router=random: applies only with scheduler=per-worker"):
        simulated("router=random", "trace.requests=10", "trace.history=0")


def test_least_work_left_refuses_a_live_backend() -> None:
    backend = FixedTimes([1.0])
    backend.live = True
    with pytest.raises(ConfigError, match="least-work-left asks a profile what a request will take"):
        engine([0.0], [1.0], backend=backend, scheduler=PerWorkerQueues(LeastWorkLeft())).run()


@pytest.mark.parametrize("router", LEAST_LOADED)
def test_request_answered_by_the_cache_is_outstanding_at_no_worker(router: Callable[..., Router]) -> None:
    """Every third request is answered at once: the others are routed as without it."""

    class Answering(Direct):
        def admit(self, request: Request, now_s: float) -> float:
            took_s = super().admit(request, now_s)
            if request.row % 3 == 2:
                self._run.assign(request, Plan(None, source=DECLARED))
            return took_s

    def sent(rows: Any, frontend: Direct) -> Any:
        width = np.resize([7, 1, 4, 2, 9], 30).astype(np.int32)[rows] * 64
        run = engine(
            np.arange(30.0)[rows], width / 64, 3, backend=BySize([]), frontend=frontend,
            scheduler=PerWorkerQueues(router()),
            shapes=(width, width, np.full(len(width), 64, np.int32)), use_model_shape=False,
        )  # fmt: skip
        run.run()
        return run.record.request_columns

    served = np.arange(30) % 3 < 2
    some, alone = sent(np.ones(30, bool), Answering()), sent(served, Direct())
    assert (some["finish_s"][~served] == np.arange(30.0)[~served]).all()
    for name in ("worker", "start_s"):
        assert some[name][served].tolist() == alone[name].tolist()


class LoadsBySize(FixedTimes):
    """A load takes a second for each byte that the trace states, as of profiled add-ons."""

    def load(self, asset: Asset) -> Cost:
        return Cost(float(asset.size or 1))


def test_missing_load_is_of_the_size_that_the_trace_states() -> None:
    """... as the executor's own load is: by a measured size, a small and a large LoRA would be worth the same."""
    run = engine([0.0], [1.0], backend=LoadsBySize([1.0]))
    run.workload.addon_bytes = {"papercut": 5, "depth": 7}
    run.open()
    router = ByAddons()
    router.bind(run)
    (worker,) = run.cluster.workers
    request = run.request(0, 0.0)
    request.model, request.addons = "large", Addons(("canny", "depth"), ("papercut",))
    assert router.missing_load_s(worker, request) == 1.0 + 7.0 + 5.0


def test_lora_of_the_last_request_sent_to_a_worker_is_not_missing_there() -> None:
    run = engine([0.0], [1.0], 2, backend=FixedTimes([1.0], 3.0))
    run.open()
    router = ByAddons()
    router.bind(run)
    first, other = run.cluster.workers
    sent = [run.request(0, 0.0) for _ in range(2)]
    for request, lora in zip(sent, ("papercut", "pixel-art"), strict=True):
        request.model, request.addons = "large", Addons((), (lora,))
        router.sent(first, request, 0.0)
    lacking_s = [[router.missing_load_s(worker, request) for request in sent] for worker in (first, other)]
    assert lacking_s == [[3.0, 0.0], [3.0, 3.0]]


def test_load_that_a_request_brings_counts_as_work_left() -> None:
    run = engine([0.0], [4.0], backend=FixedTimes([4.0]))
    run.open()
    router = LeastWorkLeft()
    router.bind(run)
    (worker,) = run.cluster.workers
    request = run.request(0, 0.0)
    run.assign(request, Plan("large"))
    router.sent(worker, request, 0.0, loading_s=3.0)
    assert [router.left_s(worker, now_s) for now_s in (0.0, 5.0, 9.0)] == [7.0, 2.0, 0.0]


def test_router_is_offered_the_workers_of_the_requests_model_alone() -> None:
    full_s = [4.0] * 4
    run = engine(
        [0.0, 1.0, 2.0, 3.0], full_s, backend=FixedTimes(full_s), scheduler=PerWorkerQueues(RoundRobin()),
        frontend=Direct("small"), roles=["large", "small", "large", "small"],
    )  # fmt: skip
    run.run()
    assert run.record.request_columns["worker"].tolist() == [1, 3, 1, 3]
