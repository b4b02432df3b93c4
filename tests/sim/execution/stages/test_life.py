"""Stages on groups of any GPUs: laws of the stage scheduler, its executor and the EDF policies."""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.plan import whole_stage
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import COMPLETED, DISCARDED, FAILED, Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import NEVER, CostOf, GroupPolicy, Launch, Run, StageView, Stand
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.group_policies.preempt_class import PreemptClass
from tests.sim.lab import FixedTimes, engine

STEPS = 6


class ByDegree(FixedTimes):
    """A step of row i takes ``step_s[degree][i]``; encoding and decoding take nothing."""

    by_row = True

    def __init__(self, step_s: dict[int, Sequence[float]], load_s: float = 0.0) -> None:
        super().__init__([each * STEPS for each in step_s[1]], load_s)
        self.step_s = step_s

    def group_sizes(self, model: str | None = None) -> list[int]:
        return [degree for degree in self.step_s if degree > 1]

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost | None:
        return Cost(float(self.step_s[gpus][work.row]))


class StepByStep(EarliestDeadline):
    """Decides at every boundary."""

    def stands(self, progress: Progress, gpus: tuple[int, ...], begin_s: float) -> Stand:
        return NEVER


class Unsure(Scaled):
    """Perfect estimates that are not known to be."""

    def bind(self, run: Run, cost: CostOf) -> None:
        super().bind(run, cost)
        self.are_exact = False


def run_stages(
    times: Any, step_s: dict[int, Sequence[float]], policy: GroupPolicy, count: int = 4, **how: Any
) -> Engine:
    """A finished run of requests of STEPS steps; deadlines and sides of images may be in ``how``, one for each."""
    limit_s, load_s = how.pop("limit_s", None), how.pop("load_s", 0.0)
    estimates, side = how.pop("estimates", Scaled()), how.pop("side", 64)
    run = engine(
        times, [each * STEPS for each in step_s[1]], count, backend=ByDegree(step_s, load_s),
        executor=Stages(policy, estimates, **how),
        shapes=tuple(np.full(len(step_s[1]), value, np.int32) for value in (side, side, STEPS)), use_model_shape=False,
    )  # fmt: skip
    if limit_s is not None:
        run.workload.limit_s[:] = array("d", limit_s)
    run.run()
    return run


def attempts(run: Engine) -> list[tuple[Any, ...]]:
    log = run.record.attempts
    assert log is not None
    return sorted(zip(log.from_s, log.until_s, log.row, log.gpus, log.steps, strict=True))


REQUESTS = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(["small", "middle", "large"]), st.integers(1, 60)),
    min_size=1,
    max_size=9,
)
STEP_S = {"small": (2, 3, 4), "middle": (6, 4, 2), "large": (12, 7, 4)}


@settings(max_examples=100, deadline=None)
@given(
    asked=REQUESTS,
    fit=st.sampled_from(["best", "greedy"]),
    count=st.integers(1, 5),
    delays=st.sampled_from([{}, {"migration_s": 1.0}, {"migration_s": 3.0}, {"launch_s": 1.0}]),
    steps=st.sampled_from([1, 1, 2, 4]),
)
@example([(0, "large", 5), (1, "small", 30), (0, "small", 9), (2, "middle", 1)], "greedy", 2, {"migration_s": 1.0}, 1)
def test_long_launches_run_as_a_decision_at_every_boundary(
    asked: list[tuple[int, str, int]], fit: Any, count: int, delays: dict[str, float], steps: int
) -> None:
    """Whole seconds, so that events of one instant are frequent."""
    times = np.cumsum([float(gap) for gap, _, _ in asked])
    step_s = {degree: [float(STEP_S[size][at]) for _, size, _ in asked] for at, degree in enumerate((1, 2, 4))}
    limit_s = [float(limit) for _, _, limit in asked]
    runs = [
        attempts(run_stages(times, step_s, policy(fit=fit, steps=steps), count, limit_s=limit_s, **delays))
        for policy in (EarliestDeadline, StepByStep)
    ]
    assert runs[0] == runs[1]


@settings(max_examples=100, deadline=None)
@given(
    asked=REQUESTS,
    give_way=st.sampled_from(["demote", "pause"]),
    count=st.integers(1, 5),
    starved_s=st.sampled_from([0.0, 3.0, 20.0]),
    max_aside_s=st.sampled_from([2.0, 30.0]),
    delays=st.sampled_from([{}, {"migration_s": 1.0}, {"forming_s": 3.0}, {"load_s": 5.0}]),
)
@example([(0, "small", 26), (12, "middle", 21)], "pause", 4, 20.0, 30.0, {"forming_s": 3.0})
@example(  # one of two requests with a candidate in common is launched in another's turn, and before it
    [*zip((0, 4, 0, 10, 0, 2, 10), ["large", *["small"] * 4, "large", "small"], [1] * 7, strict=True)],
    *("demote", 5, 20.0, 30.0, {}),
)
def test_settled_launches_run_as_a_decision_at_every_step(
    asked: list[tuple[int, str, int]],
    give_way: Any,
    count: int,
    starved_s: float,
    max_aside_s: float,
    delays: dict[str, float],
) -> None:
    """Without exact estimates the policy decides at every step."""
    times = np.cumsum([float(gap) for gap, _, _ in asked])
    step_s = {degree: [float(STEP_S[size][at]) for _, size, _ in asked] for at, degree in enumerate((1, 2, 4))}
    side = [{"small": 64, "middle": 128, "large": 256}[size] for _, size, _ in asked]
    runs = []
    for estimates in (Scaled(), Unsure()):
        policy = PreemptClass(["64x64"], ["256x256"], give_way, starved_s=starved_s, max_aside_s=max_aside_s)
        limit_s = [float(limit) for _, _, limit in asked]
        run = run_stages(times, step_s, policy, count, limit_s=limit_s, side=side, estimates=estimates, **delays)
        runs.append(attempts(run))
    assert runs[0] == runs[1]


def test_degree_n_without_cost_is_n_times_as_fast() -> None:
    ideal = {degree: [8.0 / degree] for degree in (1, 2, 4)}
    for degree in (1, 2, 4):
        run = run_stages([0.0], ideal, EarliestDeadline("greedy", degrees=[degree]))
        assert run.record.request_columns["finish_s"][0] == STEPS * 8.0 / degree
        assert run.record.request_columns["gpu_s"][0] == STEPS * 8.0


@settings(deadline=None)
@given(
    asked=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=20),
    unit_s=st.sampled_from([1.0, 0.1]),
    count=st.integers(1, 4),
)
@pytest.mark.parametrize("policy", [FixedDegree, EarliestDeadline])
def test_whole_requests_on_one_gpu_each_run_as_sequential(
    policy: type[GroupPolicy], asked: list[tuple[int, int]], unit_s: float, count: int
) -> None:
    """To the byte, and with first come, first served on the same GPUs."""
    times = np.cumsum([gap * unit_s for gap, _ in asked])
    step_s = [each * unit_s for _, each in asked]
    if policy is EarliestDeadline:
        count = 1
    stages = run_stages(times, {1: step_s}, policy(), count)
    whole = engine(times, [each * STEPS for each in step_s], count, use_model_shape=False,
                   shapes=tuple(np.full(len(asked), value, np.int32) for value in (64, 64, STEPS)))  # fmt: skip
    whole.run()
    for name in ("start_s", "finish_s", "denoise_s", "decode_s", "energy_j", "worker"):
        np.testing.assert_array_equal(stages.record.request_columns[name], whole.record.request_columns[name])


def test_wrong_estimates_change_decisions_and_not_costs() -> None:
    """Believed a hundred times as slow, every request seems late and takes the fastest group."""
    step_s = {1: [6.0, 6.0], 2: [4.0, 4.0], 4: [2.0, 2.0]}
    found = {}
    for factor in (1.0, 100.0):
        run = engine(
            [0.0, 0.0], [36.0, 36.0], 4, backend=ByDegree(step_s),
            executor=Stages(EarliestDeadline(), Scaled(factor)), use_model_shape=False,
            shapes=tuple(np.full(2, value, np.int32) for value in (64, 64, STEPS)), deadline=1.1,
        )  # fmt: skip
        run.run()
        log = run.record.attempts
        assert log is not None
        found[factor] = [len(gpus) for gpus in log.gpus]
        cost_s = np.subtract(log.until_s, log.from_s)
        np.testing.assert_allclose(np.asarray(log.estimate_s), factor * cost_s)
    assert found[1.0] != found[100.0]


def test_forming_moving_and_loading_take_time_once() -> None:
    """The second group of the same GPUs is formed already."""
    run = run_stages([0.0, 100.0], {1: [2.0] * 2, 4: [1.0] * 2}, EarliestDeadline("greedy"), forming_s=5.0)
    np.testing.assert_array_equal(run.record.request_columns["finish_s"], [5.0 + STEPS, 100.0 + STEPS])
    np.testing.assert_array_equal(run.record.request_columns["load_s"], [5.0, 0.0])


class Abandons(EarliestDeadline):
    """Never launches the second request."""

    def decide(self, now_s: float) -> list[Launch]:
        return [launch for launch in super().decide(now_s) if launch.progress.submission_index != 1]


def test_request_that_is_never_launched_again_fails_with_the_reason() -> None:
    run = run_stages([0.0, 1.0, 50.0], {1: [1.0] * 3}, Abandons(), 2)
    assert run.record.request_columns["outcome"].tolist() == [COMPLETED, FAILED, COMPLETED]
    assert "never launched it again" in run.record.request_columns.reasons[1]


class Lies(GroupPolicy):
    """Launches what it is told to."""

    def __init__(self, gpus: Any, steps: int = 1, twice: bool = False) -> None:
        self.gpus, self.steps, self.twice = gpus, steps, twice

    def bind(self, run: Run, view: StageView) -> None:
        self.view = view

    def decide(self, now_s: float) -> list[Launch]:
        return [Launch(each, self.gpus, self.steps) for each in self.view.waiting for _ in range(1 + self.twice)]


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (Lies(()), "on the GPUs ()"),
        (Lies((0, 0)), "on the GPUs (0, 0)"),
        (Lies((7,)), "expected a tuple of different numbers from 0 to 1"),
        (Lies([0]), "expected a tuple"),
        (Lies((0,), steps=STEPS + 1), "launches 7 steps"),
        (Lies((0,), steps=0), "launches 0 steps"),
        (Lies((0,), twice=True), "does not wait at a boundary"),
    ],
)
def test_impossible_launch_ends_the_run_with_the_policys_name(lie: Lies, said: str) -> None:
    with pytest.raises(SimulationError, match="Lies") as error:
        run_stages([0.0], {1: [1.0]}, lie, 2)
    assert said in str(error.value)


class Scripted(GroupPolicy):
    """Does what ``acts`` says at each decision, by its number; otherwise starts each request on one idle GPU."""

    def __init__(self, **acts: Any) -> None:
        self.acts, self.count = acts, 0

    def bind(self, run: Run, view: StageView) -> None:
        self.view = view

    def decide(self, now_s: float) -> list[Launch]:
        act = self.acts.get(f"at_{self.count}")
        self.count += 1
        if act is not None:
            return list(act(self.view))
        idle = self.view.idle()
        return [Launch(each, (gpu,), each.left) for each, gpu in zip(self.view.waiting, idle, strict=False)]


def test_discarded_request_ends_with_the_reason_and_others_run_on() -> None:
    def discard(view: StageView) -> list[Launch]:
        view.discard(next(iter(view.waiting)), "not today")
        return []

    run = run_stages([0.0, 1.0], {1: [1.0] * 2}, Scripted(at_0=discard), 1)
    assert run.record.request_columns["outcome"].tolist() == [DISCARDED, COMPLETED]
    assert run.record.request_columns.reasons == {0: "not today"}


@pytest.mark.parametrize("first", [(0, 1), (1, 0)])
def test_order_in_which_a_launch_names_its_gpus_is_of_no_account(first: tuple[int, ...]) -> None:
    """Two steps on both GPUs, a move of 1 s, and the other steps on GPU 0."""

    def start(view: StageView) -> list[Launch]:
        return [Launch(next(iter(view.waiting)), first, 2)]

    run = run_stages([0.0], {1: [1.0], 2: [0.5]}, Scripted(at_0=start), 2, migration_s=1.0)
    assert run.record.request_columns["finish_s"].tolist() == [2 * 0.5 + 1.0 + (STEPS - 2) * 1.0]


def test_request_that_runs_cannot_be_discarded() -> None:
    def late(view: StageView) -> list[Launch]:
        view.discard(Progress(Request(7, 0.0, 64, 64, 1), 7, whole_stage(1)), "no")
        return []

    with pytest.raises(SimulationError, match=r"Scripted.* discards .*, which does not wait"):
        run_stages([0.0], {1: [1.0]}, Scripted(at_0=late), 1)


def test_degree_without_a_cost_is_refused() -> None:
    both = Scripted(at_0=lambda view: [Launch(each, (0, 1), 1) for each in view.waiting])
    with pytest.raises(SimulationError, match=r"OnlyOne.* on 2 GPUs; expected 1 of them"):
        run_stages([0.0], {1: [1.0]}, OnlyOne(both), 2)


class OnlyOne(GroupPolicy):
    """Another policy, whose view is asked for no degree."""

    def __init__(self, inner: Scripted) -> None:
        self.inner = inner

    def bind(self, run: Run, view: StageView) -> None:
        run.backend.group_step = lambda work, gpus, batch=1: None if gpus > 1 else Cost(1.0)  # type: ignore[method-assign]
        self.inner.bind(run, view)

    def decide(self, now_s: float) -> list[Launch]:
        return self.inner.decide(now_s)


def test_gpu_loads_the_model_that_it_lacks() -> None:
    run = engine(
        [0.0, 0.0], [6.0, 6.0], 2, backend=ByDegree({1: [1.0, 1.0]}, load_s=7.0),
        executor=Stages(EarliestDeadline(), Scaled()),
        frontend=Direct("small"), use_model_shape=False,
        shapes=tuple(np.full(2, value, np.int32) for value in (64, 64, STEPS)),
    )  # fmt: skip
    run.run()
    np.testing.assert_array_equal(run.record.request_columns["load_s"], [7.0, 7.0])
    np.testing.assert_array_equal(run.record.request_columns["finish_s"], [13.0, 13.0])
    assert {name for _, name in run.cluster.models_held} == {"large", "small"}


@pytest.mark.parametrize(
    ("factor", "said"),
    [(2.0, "at the same time"), (0.5, "in its attempts, and recorded")],
)
def test_executor_that_logs_other_times_than_it_took_is_named(factor: float, said: str) -> None:
    class Misreports(Stages):
        def _close(self, progress: Progress) -> None:
            super()._close(progress)
            log = self._run.attempts()
            log.until_s[-1] = log.from_s[-1] + factor * (log.until_s[-1] - log.from_s[-1])

    run = engine(
        [0.0, 0.0], [6.0, 6.0], 1, backend=ByDegree({1: [1.0, 1.0]}), use_model_shape=False,
        executor=Misreports(EarliestDeadline(), Scaled()),
        shapes=tuple(np.full(2, value, np.int32) for value in (64, 64, STEPS)),
    )  # fmt: skip
    with pytest.raises(SimulationError, match=said):
        run.run()


@pytest.mark.parametrize(
    ("step_s", "times", "expected"),
    [(2.0, [0.0, 5.0, 11.0], [8.0, 2.0]), (0.1, [0.0, 3 * 0.1, 0.5], [0.3, 0.1])],
)
def test_remaining_seconds_fall_with_each_step_of_a_request_that_runs(
    step_s: float, times: list[float], expected: list[float]
) -> None:
    """Six steps of 2 s; the second request arrives in the third, the third in the last."""
    seen: list[float] = []

    class Looks(EarliestDeadline):
        def arrived(self, progress: Progress, now_s: float) -> None:
            super().arrived(progress, now_s)
            self.first = progress if progress.submission_index == 0 else self.first
            if progress.submission_index:
                seen.append(self._view.remaining_s(self.first, 1))

    Looks.__slots__ = ()
    run_stages(times, {1: [step_s] * 3}, Looks(), 1)
    assert seen == pytest.approx(expected)


def test_artifact_is_fetched_after_the_model_is_loaded_and_once() -> None:
    run = engine(
        [0.0], [6.0], 1, backend=ByDegree({1: [1.0]}, load_s=7.0), use_model_shape=False,
        executor=Stages(StepByStep(), Scaled()), frontend=Direct("small", 0.5, fetch_s=2.0),
        shapes=tuple(np.full(1, value, np.int32) for value in (64, 64, STEPS)),
    )  # fmt: skip
    run.run()
    log = run.record.usage_log
    spans = {name: log.spans()[log.spans()["kind"] == number] for name, number in log.kinds.items()}
    found = [[(each["from_s"], each["until_s"]) for each in spans[name]] for name in ("load", "fetch")]
    assert found == [[(0.0, 7.0)], [(7.0, 9.0)]]
    assert run.record.request_columns["finish_s"].tolist() == [9.0 + STEPS / 2]
