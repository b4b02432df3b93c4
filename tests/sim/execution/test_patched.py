"""Batches of patches on groups of GPUs: their speedup, memory, and the latency that a scheduler expects."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.control.one_group import OneGroup
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.patched import PatchedSteps
from mezzotint.sim.execution.same_size import SameSizeSteps
from mezzotint.sim.protocols import Steps
from mezzotint.sim.scheduling.fcfs import Fcfs
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import RoundRobin
from tests.sim.lab import FixedTimes, configured, engine, simulated

STEPS = 4
STEP_S = {512: 1.0, 1024: 4.0}
"""Seconds of a step of an image of this side alone; patches of several images take their sum less a quarter."""

SPEEDUPS = {512: 1.5, 1024: 2.0}


class Patches(FixedTimes):
    """Steps patches, twice as fast at 1024 px on two GPUs and 1.5 times at 512 px; energy is 10 J a second."""

    by_row = False

    def __init__(self, speedups: dict[int, float] | None = None, peak_bytes: int | None = None) -> None:
        super().__init__([])
        self.speedups, self.peak = speedups or {}, peak_bytes
        self.measures_memory = peak_bytes is not None

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(0.0, 0.0)

    end = begin

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        for work in works:
            work.done += count
        seconds = count * sum(STEP_S[work.width] for work in works)
        return Cost(seconds, 10.0 * seconds)

    def patched(self, works: Sequence[Work], side: int, count: int = 1) -> Cost:
        cost = self.steps(works, count)
        return cost if len(works) == 1 else cost.times(0.75)

    def speedup_of(self, model: str, width: int, height: int, gpus: int, frames: int = 1) -> float | None:
        return self.speedups.get(width)

    def peak_bytes(self, works: Sequence[Work]) -> int | None:
        return None if self.peak is None else self.peak * len(works)


def run_batch(sides: Sequence[int], gpus: int, backend: Patches, batching: Steps, **parts: Any) -> Engine:
    """A finished run of requests that arrive together and share a batch on one group of ``gpus``."""
    shape = (np.array(sides, np.int32), np.array(sides, np.int32), np.full(len(sides), STEPS, np.int32))
    run = engine(
        [0.0] * len(sides), [1.0] * len(sides), gpus, backend=backend, executor=ContinuousBatching(4, batching),
        scheduler=parts.pop("scheduler", None) or Fcfs(), controllers=[OneGroup()], shapes=shape,
        use_model_shape=False, **parts,
    )  # fmt: skip
    run.run()
    return run


@pytest.mark.parametrize(
    ("speedup", "batch_speedup"), [({}, 1.5), ({2: 1.25}, 1.25)], ids=["smallest of the profile", "the key"]
)
def test_batch_of_two_sizes_on_a_group_takes_the_patched_cost_over_the_speedup(
    speedup: dict[int, float], batch_speedup: float
) -> None:
    run = run_batch([512, 1024], 2, Patches(SPEEDUPS), PatchedSteps(speedup=speedup))
    step_s = 0.75 * (STEP_S[512] + STEP_S[1024]) / batch_speedup
    np.testing.assert_allclose(run.record.request_columns["finish_s"], [STEPS * step_s] * 2)
    used = run.record.usage_log.spans()
    assert used["joules"].sum() == pytest.approx(10.0 * STEPS * step_s * 2)  # both GPUs draw it


def test_batch_of_two_sizes_on_one_gpu_takes_the_patched_cost() -> None:
    alone, keyed = (run_batch([512, 1024], 1, Patches(SPEEDUPS), PatchedSteps(speedup=key)) for key in ({}, {2: 9.0}))
    expected = [STEPS * 0.75 * (STEP_S[512] + STEP_S[1024])] * 2
    assert alone.record.request_columns["finish_s"].tolist() == expected
    assert keyed.record.request_columns["finish_s"].tolist() == expected


def test_one_size_alone_is_sped_up_alike_with_and_without_patches() -> None:
    runs = [run_batch([1024], 2, Patches(SPEEDUPS), batching()) for batching in (PatchedSteps, SameSizeSteps)]
    ends = [run.record.request_columns["finish_s"].tolist() for run in runs]
    assert ends == [[STEPS * STEP_S[1024] / 2.0]] * 2


def test_group_size_without_a_speedup_is_refused_with_the_key() -> None:
    with pytest.raises(ConfigError, match=r"batching\.speedup: a request runs on 2 GPUs"):
        run_batch([512, 1024], 2, Patches(), PatchedSteps())


def test_batch_of_patches_on_a_group_must_fit_into_the_memory_of_each_gpu() -> None:
    gpu = Gpu("small", 300.0, 60.0, "made up", memory_bytes=150)
    run_batch([512], 2, Patches(SPEEDUPS, 100), PatchedSteps(), gpu=gpu)
    with pytest.raises(SimulationError, match="runs 2 requests"):
        run_batch([512, 1024], 2, Patches(SPEEDUPS, 100), PatchedSteps(), gpu=gpu)


def test_expected_step_is_that_of_the_groups() -> None:
    batching = PatchedSteps()
    run_batch([512, 1024], 2, Patches(SPEEDUPS), batching)
    works = [Work("large", side, side, STEPS) for side in (512, 1024)]
    assert batching.price(works).seconds == 0.75 * (STEP_S[512] + STEP_S[1024]) / 1.5


def test_router_sees_groups_formed_at_the_start_without_a_load() -> None:
    run = run_batch([512, 512], 2, Patches(SPEEDUPS), PatchedSteps(), scheduler=PerWorkerQueues(RoundRobin()))
    assert run.record.request_columns["worker"].tolist() == [2, 2]


ASKED = "cluster=h100", "models=sdxl", "trace=hybrid", "shapes=trace", "slo=[5]", "trace.requests=60"


def test_patchedserve_on_groups_of_two_is_faster_than_on_single_gpus() -> None:
    """8 GPUs in 4 groups of 2, whose steps are 1.62 times as fast."""
    groups = simulated("system=patchedserve-groups", "cluster.count=8", "arrivals.rate_rpm=20", *ASKED)
    single = simulated("system=patchedserve", "cluster.count=4", "arrivals.rate_rpm=20", *ASKED)
    assert set(groups.requests["worker"].to_pylist()) <= set(range(8, 12))
    assert groups.summary["requests"]["completed"] == single.summary["requests"]["completed"] == 60
    latency_s = [
        each.requests["finish_s"].to_numpy() - each.requests["arrival_s"].to_numpy() for each in (groups, single)
    ]
    assert np.median(latency_s[0]) < np.median(latency_s[1]) / 1.3
    assert configured("system=patchedserve-groups", *ASKED)["controller"]["degree"] == 2


def test_gpus_that_do_not_divide_into_groups_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"controller\.degree: found 2, and 3 GPUs do not divide"):
        simulated("system=patchedserve-groups", "cluster.count=3", *ASKED)
