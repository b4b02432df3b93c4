"""Stages whose requests join and leave a batch at step boundaries, beside stages that run one request at a time."""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import BackendError, Cost, Work
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import DENOISER, MISSING, TEXT_ENCODER, VAE, Stage
from mezzotint.sim.core.request import COMPLETED
from mezzotint.sim.core.workload import standalone
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.feature_cache.steps import StepCaching
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import GroupPolicy, Launch
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.group_policies.pools import Pools
from mezzotint.sim.scheduling.group_policies.rounds import Rounds
from mezzotint.sim.scheduling.group_policies.tetriserve import TetriServe
from mezzotint.traces.arrivals.base import Schedule
from tests.sim import lab
from tests.sim.execution.stages.test_addons import column

LM = "language-model"
APART = {LM: 1, DENOISER: 1}
TOGETHER = {LM: 1, DENOISER: LM}


class Tokens(lab.FixedTimes):
    """A token of a batch of b takes ``token_s[b - 1]``, and the last of them in larger batches; a denoising step
    ``step_s[b - 1]``."""

    by_row = False

    def __init__(self, token_s: Sequence[float], step_s: Sequence[float]) -> None:
        super().__init__([])
        self.token_s, self.step_s = token_s, step_s

    def component_s(self, component: str, work: Work, gpus: int, batch: int = 1) -> float:
        return self.token_s[min(batch, len(self.token_s)) - 1] / gpus

    def group_sizes(self, model: str | None = None) -> list[int]:
        return [2]

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost | None:
        return Cost(self.step_s[min(batch, len(self.step_s)) - 1] / gpus)

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        for work in works:
            work.done += count
        return Cost(self.step_s[len(works) - 1] * count)


def served(
    times: Any,
    tokens: int = 4,
    token_s: Sequence[float] = (1.0,),
    step_s: Sequence[float] = (1.0,),
    steps: int = 2,
    max_batch: int = 100,
    policy: GroupPolicy | None = None,
    count: int = 2,
    **how: Any,
) -> Engine:
    """Return a finished run of ``tokens`` of a language model and ``steps`` of a denoiser, on GPUs of their own."""
    parts, requests = how.pop("parts", {}), how.pop("requests", None) or len(times)
    how = {"stages": [Stage(LM, tokens, max_batch=max_batch), Stage(DENOISER)]} | how
    run = lab.engine(
        times if isinstance(times, Schedule) else np.array(times), np.ones(requests), count,
        backend=Tokens(token_s, step_s), executor=Stages(policy or Pools(APART), Scaled(), **how),
        use_model_shape=False, shapes=tuple(np.full(requests, value, np.int32) for value in (64, 64, steps)), **parts,
    )  # fmt: skip
    run.run()
    return run


def rows_of(run: Engine, component: str) -> list[tuple[int, float, float, int]]:
    """Return row, begin, end and steps of each attempt of ``component``, by row and begin."""
    log = run.record.attempts
    assert log is not None
    columns = zip(log.component, log.row, log.from_s, log.until_s, log.steps, strict=True)
    return sorted((row, from_s, until_s, steps) for name, row, from_s, until_s, steps in columns if name == component)


def test_requests_that_come_together_share_all_steps() -> None:
    """Four tokens of 1.5 s for three requests, whose images of 2 s follow one another."""
    run = served([0.0] * 3, token_s=[1.0, 1.25, 1.5])
    assert column(run, "finish_s") == [8.0, 10.0, 12.0]
    assert column(run, "paused_s") == [0.0, 2.0, 4.0]
    assert rows_of(run, LM) == [(row, 0.0, 6.0, 4) for row in range(3)]


def test_attempt_has_the_mean_batch_of_its_run_and_its_share_of_the_gpu() -> None:
    """The second joins after two of four tokens and stays for two more once the first has left."""
    run = served([0.0, 1.5], token_s=[1.0, 1.5])
    assert rows_of(run, LM) == [(0, 0.0, 5.0, 4), (1, 2.0, 7.0, 4)]
    assert column(run, "finish_s") == [7.0, 9.0]
    log = run.record.attempts
    assert log is not None
    at = {row: place for place, row in enumerate(log.row) if log.component[place] == LM}
    assert {row: log.shares[at[row]] for row in at} == {0: (8 / 5, 2.0 + 1.5), 1: (8 / 5, 2.0 + 1.5)}
    assert [log.batch[at[row]] for row in (0, 1)] == [2, 2]
    use = log.by_component(np.array([0.0, 1.5]), 0, np.ones(len(log), bool))[LM]
    assert (use.gpu_s, use.request_s, use.wait_s) == (7.0, 10.0, 0.25)
    assert sum(column(run, "energy_j")) == pytest.approx(run.record.usage_log.spans()["joules"].sum())
    assert sum(column(run, "gpu_s")) == 7.0 + 4.0


@settings(max_examples=40, deadline=None)
@given(gaps=st.lists(st.integers(0, 12), min_size=1, max_size=12), tokens=st.integers(1, 5))
def test_requests_in_a_flat_batch_wait_for_the_next_boundary_alone(gaps: list[int], tokens: int) -> None:
    """Where a batch costs as much as a request, each takes its tokens, and the denoiser is a queue of its own."""
    times = (np.cumsum(gaps) / 4).tolist()
    begins_s = until_s = free_s = -1.0
    expected = []
    for at_s in times:
        if at_s >= until_s:  # the last one has left
            begins_s = at_s
        joins_s = begins_s + ceil(at_s - begins_s)
        until_s = joins_s + tokens
        free_s = max(until_s, free_s) + 2.0
        expected.append(free_s)
    run = served(times, tokens)
    assert column(run, "finish_s") == expected
    assert len(rows_of(run, LM)) == len(times)


@settings(max_examples=40, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 12), min_size=1, max_size=9),
    growth=st.lists(st.integers(0, 4), min_size=8, max_size=8),
    max_batch=st.integers(2, 9),
)
def test_stage_alone_equals_continuous_batching(gaps: list[int], growth: list[int], max_batch: int) -> None:
    """In quarters of a second, so that requests often come at a boundary."""
    times, step_s = (np.cumsum(gaps) / 4).tolist(), (np.cumsum([4, *growth]) / 4).tolist()
    stages = served(
        times, step_s=step_s, steps=6, policy=Pools({DENOISER: 1}), count=1,
        stages=[Stage(DENOISER, max_batch=max_batch)],
    )  # fmt: skip
    continuous = lab.engine(
        np.array(times), np.ones(len(times)), 1, backend=Tokens((1.0,), step_s), use_model_shape=False,
        executor=ContinuousBatching(max_batch=max_batch),
        shapes=tuple(np.full(len(times), value, np.int32) for value in (64, 64, 6)),
    )  # fmt: skip
    continuous.run()
    for name in ("start_s", "finish_s", "batch_mean", "denoise_s"):
        assert column(stages, name) == pytest.approx(column(continuous, name)), name


def test_requests_that_never_meet_run_as_if_each_were_alone() -> None:
    times = [0.0, 7.25, 20.0]
    alone, shared = (served(times, max_batch=max_batch) for max_batch in (1, 8))
    for name in ("start_s", "finish_s", "denoise_s", "energy_j", "gpu_s", "batch_mean", "pauses"):
        assert column(shared, name) == column(alone, name), name
    assert rows_of(shared, LM) == rows_of(alone, LM)


def test_batch_has_its_most_and_others_wait_first_come_first_served() -> None:
    """Two places: the third joins when the first two leave, four tokens of 1 s later."""
    run = served([0.0, 0.0, 0.5], max_batch=2)
    assert [row[1:3] for row in rows_of(run, LM)] == [(0.0, 4.0), (0.0, 4.0), (4.0, 8.0)]


def test_requests_spread_over_the_gpus_of_their_pool() -> None:
    """Each takes an idle GPU, then the smallest batch: the third that of the second, whose partner left."""
    run = served([0.0, 1.0, 2.5, 3.5], policy=Pools({LM: 2, DENOISER: 1}), count=3, token_s=[1.0, 2.0])
    log = run.record.attempts
    assert log is not None
    gpus = {row: log.gpus[place] for place, row in enumerate(log.row) if log.component[place] == LM}
    assert gpus == {0: (0,), 1: (1,), 2: (0,), 3: (1,)}


def test_batch_gives_way_to_the_denoiser_on_its_gpu() -> None:
    """The first has its tokens at 4 s and its image at 6 s; the second has two tokens by then, two more, its image."""
    run = served([0.0, 1.5], policy=Pools(TOGETHER), count=1)
    assert column(run, "finish_s") == [6.0, 10.0]
    assert rows_of(run, LM) == [(0, 0.0, 4.0, 4), (1, 2.0, 4.0, 2), (1, 6.0, 8.0, 2)]
    assert column(run, "pauses") == [0, 1]


def test_stage_that_waits_before_a_batch_on_its_gpu_interrupts_it() -> None:
    """The text of the second is encoded for 0 s at the next boundary after 1.5 s, where it joins."""
    stages = [Stage(TEXT_ENCODER), Stage(LM, 4, max_batch=9), Stage(DENOISER)]
    run = served([0.0, 1.5], policy=Pools(), count=1, stages=stages)
    assert [row[1] for row in rows_of(run, TEXT_ENCODER)] == [0.0, 2.0]
    assert column(run, "finish_s") == [6.0, 10.0]


def test_one_gpu_for_both_is_busy_as_long_as_its_work() -> None:
    """Whatever the order, a GPU that never idles with work ends it all at once: here each token costs all requests."""
    rng = np.random.default_rng(5)
    for _ in range(5):
        times = np.cumsum(rng.uniform(0, 4, 20)).tolist()
        run = served(times, token_s=[1.0 + extra for extra in range(20)], policy=Pools(TOGETHER), count=1)
        free_s = 0.0
        for at_s in times:
            free_s = max(free_s, at_s) + 4.0 + 2.0
        assert max(column(run, "finish_s")) == pytest.approx(free_s)


def test_text_encoder_and_vae_batch_by_their_own_curves() -> None:
    class Encodes(Tokens):
        def begin(self, works: Sequence[Work]) -> Cost:
            return Cost(1.0 + 0.5 * len(works))

        end = begin

    stages = [Stage(TEXT_ENCODER, max_batch=4), Stage(DENOISER, max_batch=4), Stage(VAE, max_batch=4)]
    shapes = tuple(np.full(3, value, np.int32) for value in (64, 64, 2))
    run = lab.engine(
        np.zeros(3), np.ones(3), 3, backend=Encodes((), (1.0,)), use_model_shape=False, shapes=shapes,
        executor=Stages(Pools({TEXT_ENCODER: 1, DENOISER: 1, VAE: 1}), Scaled(), stages=stages),
    )  # fmt: skip
    run.run()
    assert column(run, "finish_s") == [2.5 + 2.0 + 2.5] * 3


def test_gpu_that_fails_loses_its_batch() -> None:
    """At 3.5 s the first has three tokens and the second one. Both begin anew at 10 s."""
    run = served([0.0, 1.5], parts={"controllers": [Failures({0: [(3.5, 10.0)]})]})
    assert column(run, "outcome") == [COMPLETED] * 2
    assert column(run, "finish_s") == [16.0, 18.0]
    log = run.record.attempts
    assert log is not None
    ran = zip(log.row, log.stage, log.from_s, log.until_s, strict=True)
    assert [each for each in ran if each[2] < 10.0] == [(0, MISSING, 0.0, 2.0), (0, MISSING, 2.0, 3.5)]


def test_gpu_that_fails_loses_the_batch_that_gave_way_on_it() -> None:
    """At 5 s the first is at its image, for which the second waits. Both begin anew at 10 s."""
    run = served([0.0, 1.5], policy=Pools(TOGETHER), count=1, parts={"controllers": [Failures({0: [(5.0, 10.0)]})]})
    assert column(run, "finish_s") == [16.0, 18.0]


class TooMany(Pools):
    """Launches all waiting requests as one batch."""

    def decide(self, now_s: float) -> list[Launch]:
        first, *others = self._view.waiting
        return [Launch(first, (0,), first.left, batch=tuple(others))] if len(others) == 2 else []


def test_batch_above_the_most_of_its_stage_names_the_policy() -> None:
    with pytest.raises(SimulationError, match=r"TooMany.* launches 3 requests with .*; expected 2 at most"):
        served([0.0] * 3, max_batch=2, policy=TooMany(APART))


def test_request_that_joins_brings_its_move() -> None:
    """The batch waits for it, from the second's joining at 2 s on, and for the first's move to the denoiser at 6 s."""
    stages = [Stage(TEXT_ENCODER), Stage(LM, 4, max_batch=9), Stage(DENOISER)]
    run = served(
        [0.0, 1.5], policy=Pools({TEXT_ENCODER: 1, LM: 1, DENOISER: 1}), count=3, stages=stages, migration_s=1.0
    )
    assert column(run, "moves") == [2, 2]
    assert rows_of(run, LM) == [(0, 1.0, 2.0, 1), (0, 3.0, 6.0, 3), (1, 3.0, 6.0, 3), (1, 7.0, 8.0, 1)]


def test_poisson_arrivals_leave_a_flat_batch_as_such() -> None:
    """Departures of M/D/infinity are its arrivals, later: the denoiser is an M/D/1 queue (Lindley), within a token."""
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.exponential(2.0, 400))
    waits_s, wait_s = [], 0.0
    for gap_s in np.diff(times, prepend=-np.inf).tolist():
        wait_s = max(0.0, wait_s + 1.0 - gap_s)
        waits_s.append(wait_s)
    run = served(times.tolist(), tokens=2, token_s=[0.01], step_s=[0.5], max_batch=1_000)
    found_s = np.array(column(run, "finish_s")) - times - 0.02 - 1.0
    assert found_s == pytest.approx(np.array(waits_s), abs=0.0101)


def test_exponential_tandem_is_two_queues_of_their_own() -> None:
    """Burke's theorem: the second queue of a tandem of M/M/1 queues waits as one with Poisson arrivals."""
    rng = np.random.default_rng(4)
    times = np.cumsum(rng.exponential(2.0, 2_500)).tolist()
    took_s = rng.exponential(1.0, (2_500, 2))

    class ByRow(Tokens):
        by_row = True

        def component_s(self, component: str, work: Work, gpus: int, batch: int = 1) -> float:
            return float(took_s[work.row, 0])

        def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost | None:
            return Cost(float(took_s[work.row, 1]))

    run = lab.engine(
        np.array(times), np.ones(2_500), 2, backend=ByRow((), ()), use_model_shape=False,
        executor=Stages(Pools(APART), Scaled(), stages=[Stage(LM), Stage(DENOISER)]),
        shapes=tuple(np.full(2_500, value, np.int32) for value in (64, 64, 1)),
    )  # fmt: skip
    run.run()
    starts = {component: np.array(rows_of(run, component)) for component in (LM, DENOISER)}
    sojourn_s = starts[LM][:, 2] - times, starts[DENOISER][:, 2] - starts[LM][:, 2]
    assert [seconds[400:].mean() for seconds in sojourn_s] == pytest.approx([2.0, 2.0], rel=0.2)


@pytest.mark.parametrize("clients", [1, 2, 3, 5])
@pytest.mark.parametrize(("policy", "count"), [(Pools(APART), 2), (Pools(TOGETHER), 1)])
def test_closed_loop_of_clients(clients: int, policy: Pools, count: int) -> None:
    """On GPUs of their own, flat, a client takes 100 tokens, its image, and what the others' images keep it."""
    schedule = Schedule(np.zeros(clients), think_s=0.0)
    run = served(schedule, 100, [0.25], [1.0], 2, policy=Pools(policy.pools), count=count, requests=20 * clients)
    latency_s = np.array(column(run, "finish_s")) - np.array(column(run, "arrival_s"))
    each_s = 25.0 + 2.0 * (clients if count == 1 else 1)
    assert latency_s[5 * clients :].mean() == pytest.approx(each_s, abs=0.3)


TEMPLATE = """
schema: 1
model: m
gpu: g
source: made up
step: [{width: 64, height: 64, seconds: 1.0}]
component:
- {component: language-model, width: 64, height: 64, batch: 1, seconds: 0.1}
- {component: language-model, width: 64, height: 64, batch: 5, seconds: 0.2, source: "a guess"}
"""


def test_seconds_of_a_component_are_interpolated_by_batch(tmp_path: Any) -> None:
    (tmp_path / "m.yaml").write_text(TEMPLATE)
    backend, work = Profiled("g", folder=tmp_path), Work("m", 64, 64, 1)
    assert [backend.component_s(LM, work, 1, batch) for batch in (1, 2, 5)] == pytest.approx([0.1, 0.125, 0.2])
    with pytest.raises(BackendError, match=r"language-model at 64x64 .* batch 6 is outside the measured grid"):
        backend.component_s(LM, work, 1, 6)
    (found,) = [each for each in backend.assumptions() if LM in each.what]
    assert (found.value, found.source) == (0.2, "a guess")
    assert "64x64 in batches of 5" in found.what


def test_latency_alone_counts_all_stages(tmp_path: Any) -> None:
    """One step of 1 s, and four of 0.1 s; of a stage that was measured on two GPUs alone, on those."""
    (tmp_path / "m.yaml").write_text(TEMPLATE + "- {component: talker, gpus: 2, width: 64, height: 64, seconds: 0.3}")
    others = [Stage(LM, 4, max_batch=9), Stage("talker", 2)]
    shapes = tuple(np.full(3, value, np.int32) for value in (64, 64, 1))
    full = standalone(Profiled("g", folder=tmp_path), Model("m", 1, 64, 64), shapes, True, None, others)
    assert full.total_s.tolist() == pytest.approx([2.0] * 3)
    assert full.denoise_s.tolist() == [1.0] * 3


@pytest.mark.parametrize("policy", [Rounds(), TetriServe(), FixedDegree()])
def test_stage_is_shared_by_pools_alone(policy: GroupPolicy) -> None:
    said = rf"executor.stages: found max_batch=100 of {LM} beside .*{type(policy).__name__}.*group_policy=pools"
    with pytest.raises(ConfigError, match=said):
        served([0.0], policy=policy)
    with pytest.raises(ConfigError, match=r"executor.stages: found max_batch=4 .* beside no group policy"):
        lab.engine([0.0], [1.0], executor=Stages(stages=[Stage(LM, 4, max_batch=4), Stage(DENOISER)])).run()


def test_shared_denoiser_has_no_feature_cache() -> None:
    with pytest.raises(ConfigError, match=r"feature_cache: found a denoiser with max_batch=4"):
        served([0.0], stages=[Stage(DENOISER, max_batch=4)], feature_cache=StepCaching([0], 2, 0.1))


def test_wider_stage_than_the_batches_of_its_pool_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"group_policy.degrees.denoiser: found 2 in a pool in which batches hold 1"):
        served([0.0] * 3, policy=Pools({LM: 2, DENOISER: LM}, {DENOISER: 2}), max_batch=2)
