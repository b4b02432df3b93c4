"""Queues: the order of service, against slow and simple models of them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.cluster.allocation import ControlNetServers, FewSmall, FixedSplit
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import DECLARED, MISSING, Plan
from mezzotint.sim.core.request import Request
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import Run
from mezzotint.sim.scheduling.disciplines.pixel_budget import fits
from mezzotint.sim.scheduling.hit_miss import HitMiss
from mezzotint.sim.scheduling.hit_miss_per_worker import HitMissPerWorker
from tests.sim.cluster.test_cluster import Acts, order
from tests.sim.lab import FixedTimes, engine


class Marked(Direct):
    """Rows in ``hits`` are hits on the small model, the others misses on the large one."""

    def __init__(self, hits: set[int]) -> None:
        super().__init__()
        self.hits = hits

    def bind(self, run: Run) -> None:
        self.run = run

    def admit(self, request: Request, now_s: float) -> float:
        hit = request.row in self.hits
        self.run.assign(
            request, Plan(self.run.model("small" if hit else "large").name, source=DECLARED if hit else MISSING)
        )
        return 0.0


def starts(times: list[float], took: list[float], hits: set[int], roles: list[str], both: bool) -> list[float]:
    """Return the start of every request by trying at every instant, in order, what each idle worker would take."""
    begun: dict[int, float] = {}
    free = [0.0] * len(roles)
    while len(begun) < len(times):
        open_ = [i for i in range(len(times)) if i not in begun]
        best: tuple[float, int, int, int] | None = None
        for worker, role in enumerate(roles):
            misses = [i for i in open_ if i not in hits]
            own = [i for i in open_ if i in hits]
            for rank, queue in enumerate([misses, own if both else []] if role == "large" else [own]):
                if queue:
                    at = max(free[worker], times[queue[0]])
                    option = (at, rank, queue[0], worker)
                    if best is None or option < best:
                        best = option
        assert best is not None
        at, _, row, worker = best
        begun[row] = at
        free[worker] = at + took[row]
    return [begun[i] for i in range(len(times))]


@settings(max_examples=150)
@given(
    gaps=st.lists(st.integers(1, 997), min_size=1, max_size=40),
    took=st.lists(st.integers(1, 4999), min_size=40, max_size=40),
    hits=st.sets(st.integers(0, 39)),
    small=st.integers(1, 3),
    large=st.integers(1, 3),
)
def test_throughput_mode_serves_each_queue_in_order_on_its_own_workers(
    gaps: list[int], took: list[int], hits: set[int], small: int, large: int
) -> None:
    """Throughput mode: misses on the large workers and hits on the small ones wait independently."""
    times = [float(sum(gaps[: i + 1])) for i in range(len(gaps))]
    seconds = [float(t) for t in took[: len(times)]]
    roles = ["large"] * large + ["small"] * small
    run = engine(times, seconds, roles=roles, frontend=Marked(hits), scheduler=HitMiss())
    run.run()
    assert list(run.record.request_columns["start_s"]) == starts(times, seconds, hits, roles, both=False)
    for row in range(len(times)):
        assert roles[run.record.request_columns["worker"][row]] == ("small" if row in hits else "large")


def test_quality_mode_lets_an_idle_large_worker_take_a_hit() -> None:
    """Two hits arrive together and one worker of each kind is idle: the large model refines the second hit."""
    for both, expected in ((True, [0.0, 0.0, 5.0]), (False, [0.0, 5.0, 0.0])):
        run = engine(
            [0.0, 0.0, 0.0], [5.0] * 3, roles=["large", "small"],
            frontend=Marked({0, 1}), scheduler=HitMiss(large_takes_hits=both),
        )  # fmt: skip
        run.run()
        assert list(run.record.request_columns["start_s"]) == expected
        large = run.record.request_columns.model_code["large"]
        assert bool(run.record.request_columns["model"][1] == large) is both


def test_large_worker_serves_waiting_misses_before_waiting_hits() -> None:
    scheduler = HitMiss(large_takes_hits=True)
    run = engine([0.0, 1.0, 2.0], [9.0] * 3, roles=["large"], frontend=Marked({1}), scheduler=scheduler)
    run.run()
    assert list(run.record.request_columns["start_s"]) == [0.0, 18.0, 9.0]


def test_longest_idle_worker_serves_next() -> None:
    run = engine([0.0, 0.5, 10.0, 20.0], [2.0, 1.0, 1.0, 1.0], 3)
    run.run()
    assert list(run.record.request_columns["worker"]) == [0, 1, 2, 1]


class Timed(FixedTimes):
    """MoDM's artifact on MI210: 91.5 s for the large model, 16.5 s (SDXL) or 6.5 s (SANA) for the small one."""

    def __init__(self, small_s: float) -> None:
        super().__init__([])
        self.seconds = {"large": 91.5, "small": small_s}

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        return Cost(sum(self.seconds[work.model] for work in works))


@pytest.mark.parametrize(
    ("count", "small_s", "hit_rate", "left", "large"),
    [
        (16, 16.5, 0.7, 0.8, 12),
        (16, 6.5, 0.7, 0.8, 14),
        (4, 16.5, 0.7, 0.8, 3),
        (16, 16.5, 1.0, 0.8, 1),
        (16, 16.5, 0.0, 1.0, 15),
    ],
)
def test_fixed_split_is_modm_equation_12(count: int, small_s: float, hit_rate: float, left: float, large: int) -> None:
    """N_l = round(N (1-h) / ((1-h) + h q P_l/P_s)), with at least one GPU for either."""
    models = {role: Model(role, 50, 64, 64) for role in ("large", "small")}
    roles = FixedSplit(None, hit_rate, left).roles(count, models, Timed(small_s))
    assert roles == ["large"] * large + ["small"] * (count - large)


@pytest.mark.parametrize(
    ("allocation", "gpus", "message"),
    [
        (FewSmall(0), 4, r"allocation\.small: found 0 of 4 GPUs; expected 1 to 3"),
        (FewSmall(4), 4, r"allocation\.small: found 4 of 4 GPUs; expected 1 to 3"),
        (FewSmall(1), 1, r"cluster\.count: found 1; a large and a small model need at least 2 GPUs"),
        (ControlNetServers(0), 4, r"allocation\.servers: found 0 of 4 GPUs; expected 1 to 3"),
        (ControlNetServers(4), 4, r"allocation\.servers: found 4 of 4 GPUs; expected 1 to 3"),
        (FixedSplit(4), 4, r"allocation\.large: found 4 of 4 GPUs; expected 1 to 3"),
    ],
)
def test_allocation_leaves_a_gpu_for_each_role(allocation: Any, gpus: int, message: str) -> None:
    models = {role: Model(role, 50, 64, 64) for role in ("large", "small")}
    with pytest.raises(ConfigError, match=message):
        allocation.roles(gpus, models, Timed(16.5))


def test_miss_waits_until_a_worker_becomes_large() -> None:
    """The only GPU refines for 10 s; a change ordered at 5 s loads for 7 s from 10 s on, and then the misses run."""
    run = engine(
        [0.0, 1.0, 2.0], [10.0] * 3, roles=["small"], backend=FixedTimes([10.0] * 3, 7.0), scheduler=HitMissPerWorker(),
        frontend=Marked({0}), controllers=[Acts((5.0, order(0, "large")))],
    )  # fmt: skip
    run.run()
    columns = run.record.request_columns
    assert columns["start_s"].tolist()[1:] == [columns["finish_s"][0] + 7.0, columns["finish_s"][0] + 17.0]


@pytest.mark.parametrize(
    ("peak", "memory_bytes", "can"),
    [(10**9, 10**9 + 1, True), (10**9, 10**9, True), (10**9, 10**9 - 1, False), (None, 1, True), (10**9, None, True)],
)
def test_batch_fits_if_its_peak_memory_is_within_the_device_or_unknown(
    peak: int | None, memory_bytes: int | None, can: bool
) -> None:
    """Of the two requests that are asked about together."""

    def peak_bytes(works: list[int]) -> int | None:
        assert works == [7, 8]
        return peak

    run: Any = SimpleNamespace(work=lambda request: request)
    worker: Any = SimpleNamespace(
        gpu=SimpleNamespace(memory_bytes=memory_bytes),
        backend=SimpleNamespace(peak_bytes=peak_bytes, measures_memory=True),
    )
    asked: Any = [7, 8]
    assert fits(run, worker, asked) is can
