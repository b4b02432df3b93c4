"""Batches of patches on groups of GPUs: requests of several sizes share the steps of a denoiser."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Patching, Work
from mezzotint.backends.patched import PatchTiming
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.plan import DENOISER, TEXT_ENCODER, VAE, WHOLE, Stage
from mezzotint.sim.core.request import Addons
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.feature_cache.steps import StepCaching
from mezzotint.sim.execution.patched import PatchedSteps
from mezzotint.sim.execution.same_size import SameSizeSteps
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import GroupPolicy
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.group_policies.pools import Pools
from mezzotint.sim.scheduling.group_policies.tetriserve import TetriServe
from tests.sim import lab
from tests.sim.execution.stages.test_addons import column
from tests.sim.laws.test_stage_batches import Together

SIDES = 512, 768, 1024
TIMING = PatchTiming(side=256, base_s=0.25, patch_s=0.0625, size_s=0.125, halo_s=0.0078125, source="made up")
SHARES = {1: 1.0, 2: 0.75, 4: 0.5}
"""GPUs -> seconds of a step of a whole image over those on one; 512x512 gains less."""


class Patches(lab.FixedTimes, Patching):
    """Steps of patches as of ``TIMING``, at 10 J a second on each GPU; text encoding 1 s and decoding 0.5 s."""

    by_row = False

    def __init__(self, apart_s: float = 1.0) -> None:
        super().__init__([])
        self.apart_s = apart_s

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(self.apart_s)

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(0.5 * self.apart_s)

    def group_sizes(self, model: str | None = None) -> list[int]:
        return [2, 4]

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost:
        return Cost((work.width / 512) ** 2 * (SHARES[gpus] + 0.125 * (gpus > 1 and work.width == 512)))

    def patched(self, works: Sequence[Work], side: int, count: int = 1) -> Cost:
        for work in works:
            work.done += count
        seconds = count * TIMING.step_s([(work.width, work.height) for work in works], side)
        return Cost(seconds, 10.0 * seconds)


def served(
    times: Sequence[float], sides: Sequence[int], executor: Any, gpus: int = 1, steps: Any = 6, **parts: Any
) -> Engine:
    shape = (np.array(sides, np.int32), np.array(sides, np.int32), np.broadcast_to(steps, len(sides)).astype(np.int32))
    run = lab.engine(
        np.array(times), np.ones(len(times)), gpus, executor=executor, use_model_shape=False, shapes=shape,
        **{"backend": Patches()} | parts,
    )  # fmt: skip
    run.run()
    return run


def groups(policy: GroupPolicy, max_batch: int = 8, batching: Any = None, **how: Any) -> Stages:
    stages: Any = [Stage(TEXT_ENCODER), Stage(DENOISER, max_batch=max_batch), Stage(VAE)]
    return Stages(policy, Scaled(), **{"stages": stages, "batching": batching or PatchedSteps()} | how)


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(st.tuples(st.integers(0, 12), st.sampled_from(SIDES), st.integers(1, 6)), min_size=1, max_size=9),
    max_batch=st.integers(2, 5),
    side=st.sampled_from(["trace", "active", 256]),
)
def test_patches_on_one_gpu_run_as_continuous_batching_of_patches(
    requests: list[tuple[int, int, int]], max_batch: int, side: Any
) -> None:
    """The same requests join and leave at the same boundaries, in quarters of a second and to 1e-9 s."""
    gaps, sides, steps = zip(*requests, strict=True)
    times = np.cumsum(gaps) / 4
    alone = groups(Pools({DENOISER: 1}), stages=[Stage(DENOISER, max_batch=max_batch)], batching=PatchedSteps(side))
    runs = [
        served(times.tolist(), sides, executor, steps=steps, backend=Patches(0.0))
        for executor in (alone, ContinuousBatching(max_batch, PatchedSteps(side)))
    ]
    for name in ("start_s", "finish_s", "denoise_s", "batch_mean", "energy_j"):
        assert column(runs[0], name) == pytest.approx(column(runs[1], name), abs=1e-9), name


def test_patches_of_several_sizes_on_a_group_gain_as_the_image_that_gains_least() -> None:
    """On four GPUs a large image takes half of its seconds, and a small one 5/8; all four GPUs draw their power."""
    executor = groups(Pools(degrees={DENOISER: 4}), stages=[Stage(DENOISER, max_batch=2)])
    run = served([0.0, 0.0], [512, 1024], executor, 4)
    seconds = 6 * 0.625 * TIMING.step_s([(512, 512), (1024, 1024)], 512)
    assert column(run, "finish_s") == pytest.approx([seconds] * 2)
    assert sum(column(run, "energy_j")) == pytest.approx(4 * 10.0 * seconds)
    assert any("patches on several GPUs" in each.source for each in run.record.assumptions)


class Whole(Patches):
    """Text encoding of an image to start from, and decoding, take as many seconds as it has half megapixels."""

    def begin(self, works: Sequence[Work]) -> Cost:
        return self.end(works)

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost((works[0].width / 512) ** 2)


class Pairs(Together):
    max_batch = 2


@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_whole_requests_of_several_sizes_are_encoded_and_decoded_each_at_its_own(factor: float) -> None:
    """1 s and 4 s before the first step, and after the last; an estimate is wrong by its factor in all."""
    executor = Stages(Pairs(2, 6), Scaled(factor), batching=PatchedSteps())
    run = served([0.0, 0.0], [512, 1024], executor, backend=Whole())
    seconds = 10.0 + 6 * TIMING.step_s([(512, 512), (1024, 1024)], 512)
    assert column(run, "finish_s") == pytest.approx([seconds] * 2)
    assert column(run, "decode_s") == pytest.approx([10.0] * 2)
    assert column(run, "estimate_s") == pytest.approx([factor * seconds] * 2)


@pytest.mark.parametrize("batching", [None, PatchedSteps()])
@pytest.mark.parametrize("stages", ["whole", "disaggregated"])
def test_tetriserve_batches_requests_of_several_sizes_as_patches_alone(
    batching: PatchedSteps | None, stages: Any
) -> None:
    """Every step runs once; requests of a batch run from one instant on the same GPUs."""
    rng = np.random.default_rng(3)
    sides, times = rng.choice(SIDES, 24).tolist(), np.cumsum(rng.integers(0, 3, 24)).tolist()
    executor = Stages(TetriServe(round_s=12.0, max_batch=4), Scaled(), stages=stages, batching=batching)
    log = served(times, sides, executor, 2, own_deadline_s=np.full(24, 60.0)).record.attempts
    assert log is not None
    batches: dict[tuple[float, tuple[int, ...]], list[int]] = {}
    steps = Counter[int]()
    for row, component, from_s, gpus, ran in zip(log.row, log.component, log.from_s, log.gpus, log.steps, strict=True):
        if component in (WHOLE, DENOISER):
            batches.setdefault((from_s, gpus), []).append(sides[row])
            steps[row] += ran
    assert set(steps.values()) == {6}
    assert len(steps) == 24
    assert max(map(len, batches.values())) <= 4
    assert (max(len(set(batch)) for batch in batches.values()) > 1) == (batching is not None)


def test_batch_of_patches_that_does_not_fit_into_memory_ends_the_run() -> None:
    class Large(Patches):
        def peak_bytes(self, works: Sequence[Work]) -> int | None:
            return sum(work.width for work in works) * 10**7

    gpu = Gpu("small", 300.0, 60.0, "made up", memory_bytes=15 * 10**9)
    with pytest.raises(SimulationError, match=r"a batch of 2 requests of large at 1024x1024, 768x768 takes 17.9 GB"):
        served([0.0, 0.0], [768, 1024], groups(Pools()), backend=Large(), gpu=gpu)


@pytest.mark.parametrize(
    ("executor", "said"),
    [
        (groups(Pools(), batching=SameSizeSteps()), r"batching: found .*SameSizeSteps"),
        (groups(TetriServe(), stages="disaggregated"), r"which forms no batches here"),
        (groups(FixedDegree(), stages="disaggregated"), r"FixedDegree, which forms no batches here"),
        (
            groups(TetriServe(max_batch=4), stages="disaggregated", feature_cache=StepCaching([0], 2, 0.1)),
            r"feature_cache: ",
        ),
        (Stages(batching=PatchedSteps()), r"batching: found PatchedSteps, which only a group policy launches"),
    ],
)
def test_what_does_not_go_with_patches_is_refused_by_name(executor: Stages, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        served([0.0], [512], executor)


def test_addons_beside_patches_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="addons: found beside batching=patched"):
        served([0.0], [512], groups(Pools()), addons=[Addons(("canny",))])
