"""Batches of patches: their cost and memory, and the latency that a scheduler expects."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.patched import PatchedSteps
from mezzotint.sim.execution.same_size import SameSizeSteps
from mezzotint.sim.protocols import Steps
from tests.sim.lab import FixedTimes, engine

STEPS = 4
STEP_S = {512: 1.0, 1024: 4.0}
"""Seconds of a step of an image of this side alone; patches of several images take their sum less a quarter."""


class Patches(FixedTimes):
    """Steps patches; energy is 10 J a second."""

    by_row = False

    def __init__(self, peak_bytes: int | None = None) -> None:
        super().__init__([])
        self.peak = peak_bytes
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

    def peak_bytes(self, works: Sequence[Work]) -> int | None:
        return None if self.peak is None else self.peak * len(works)


def run_batch(sides: Sequence[int], backend: Patches, batching: Steps, **parts: Any) -> Engine:
    """A finished run of requests that arrive together and share a batch."""
    shape = (np.array(sides, np.int32), np.array(sides, np.int32), np.full(len(sides), STEPS, np.int32))
    run = engine(
        [0.0] * len(sides), [1.0] * len(sides), backend=backend, executor=ContinuousBatching(4, batching),
        shapes=shape, use_model_shape=False, **parts,
    )  # fmt: skip
    run.run()
    return run


def test_batch_of_two_sizes_takes_the_patched_cost() -> None:
    run = run_batch([512, 1024], Patches(), PatchedSteps())
    step_s = 0.75 * (STEP_S[512] + STEP_S[1024])
    assert run.record.request_columns["finish_s"].tolist() == [STEPS * step_s] * 2
    assert run.record.usage_log.spans()["joules"].sum() == pytest.approx(10.0 * STEPS * step_s)


def test_one_size_alone_takes_as_long_with_and_without_patches() -> None:
    runs = [run_batch([1024], Patches(), batching()) for batching in (PatchedSteps, SameSizeSteps)]
    ends = [run.record.request_columns["finish_s"].tolist() for run in runs]
    assert ends == [[STEPS * STEP_S[1024]]] * 2


def test_batch_of_patches_must_fit_into_the_memory_of_its_gpu() -> None:
    gpu = Gpu("small", 300.0, 60.0, "made up", memory_bytes=150)
    run_batch([512], Patches(100), PatchedSteps(), gpu=gpu)
    with pytest.raises(SimulationError, match="runs 2 requests"):
        run_batch([512, 1024], Patches(100), PatchedSteps(), gpu=gpu)


def test_expected_step_is_that_of_the_batch() -> None:
    batching = PatchedSteps()
    run_batch([512, 1024], Patches(), batching)
    works = [Work("large", side, side, STEPS) for side in (512, 1024)]
    assert batching.price(works).seconds == 0.75 * (STEP_S[512] + STEP_S[1024])
