"""A backend of stage times by row, and runs of stages on it."""

from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.backends.base import ComponentWeights, Cost, Work
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.plan import DENOISER, TEXT_ENCODER, VAE
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import GroupPolicy
from mezzotint.sim.scheduling.estimates import Scaled
from tests.sim.lab import FixedTimes, engine

COMPONENTS = TEXT_ENCODER, DENOISER, VAE


class StageTimes(FixedTimes):
    """Row i takes ``times[i]`` seconds of text encoder, denoiser and VAE; n GPUs denoise n times as fast.

    Args:
        weights: component -> bytes and load seconds of its weights.
        degrees: parallel degrees above 1.
    """

    def __init__(
        self,
        times: Sequence[Sequence[float]],
        weights: Mapping[str, tuple[int, float]] | None = None,
        degrees: Collection[int] = (),
    ) -> None:
        super().__init__([row[1] for row in times])
        self.times, self.weights, self.degrees = times, weights or {}, degrees

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(self.times[works[0].row][0])

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(self.times[works[0].row][2])

    def group_sizes(self, model: str | None = None) -> Collection[int]:
        return self.degrees

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost:
        return Cost(self.times[work.row][1] / work.steps / gpus)

    def component_weights(self, component: str, model: str) -> ComponentWeights | None:
        return ComponentWeights(*self.weights[component]) if component in self.weights else None


def served(
    arrivals: Sequence[float],
    times: Sequence[Sequence[float]],
    policy: GroupPolicy,
    count: int,
    *,
    memory_bytes: int | None = None,
    weights: Mapping[str, tuple[int, float]] | None = None,
    degrees: Collection[int] = (),
    deadline_s: float = float("inf"),
    **executor: Any,
) -> Engine:
    """Return a finished run of disaggregated stages, of requests of 64 steps: a step's seconds are exact in binary."""
    shapes = tuple(np.full(len(times), value, np.int32) for value in (64, 64, 64))
    run = engine(
        arrivals, [sum(row) for row in times], count, backend=StageTimes(times, weights, degrees),
        executor=Stages(policy, Scaled(), stages="disaggregated", **executor), shapes=shapes, use_model_shape=False,
        gpu=Gpu("test", 300.0, 60.0, "made up", memory_bytes=memory_bytes),
    )  # fmt: skip
    run.workload.limit_s[:] = array("d", [deadline_s] * len(times))
    run.run()
    return run


def served_in_sequence(arrivals: Sequence[float], times: Sequence[Sequence[float]], count: int) -> Engine:
    """Return a finished run of the same requests, whole, one after another on each GPU."""
    shapes = tuple(np.full(len(times), value, np.int32) for value in (64, 64, 64))
    run = engine(
        arrivals, [sum(row) for row in times], count, backend=StageTimes(times), executor=Sequential(), shapes=shapes,
        use_model_shape=False,
    )  # fmt: skip
    run.run()
    return run


def finish_s(run: Engine) -> NDArray[np.float64]:
    """Return the finish time of each request."""
    return np.array(run.record.request_columns["finish_s"])


def drawn(seed: int, requests: int) -> tuple[list[float], list[list[float]]]:
    """Return random arrivals and stage times in quarters of a second, exact in binary."""
    rng = np.random.default_rng(seed)
    gaps = rng.integers(0, 40, requests) / 4
    return np.cumsum(gaps).tolist(), (rng.integers(1, 60, (requests, 3)) / 4).tolist()
