"""Lookahead: runs of many steps do as a decision at every step, and are cut only where a reason stays."""

from typing import Any

import pytest

from mezzotint.sim.core.progress import Progress
from mezzotint.sim.execution.stages.lookahead import Lookahead
from mezzotint.sim.protocols import NOBODY, Launch, Rank, StageView, Stand
from tests.identity.random_systems import POLICIES, digest, name_of
from tests.sim.execution.stages.test_life import STEPS, Scripted, attempts, run_stages

LOOKS = "edf", "demote", "pause"
"""Policies whose decisions may stand."""

TIES = 71, 377, 444, 518, 751, 927, 1882, 2388, 2718, 2753, 2821, 3039, 3130, 3238, 3371, 3949, 4425, 6633, 15449, 20709
"""Systems that do otherwise if a law of the order at one instant, or of what ends a run of steps, is broken."""


@pytest.mark.invariant(2)
def test_lookahead_runs_as_a_decision_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte, in random systems in whole and in tenths of a second: moves, loads, failures, wrong estimates."""
    seeds = [seed for seed in [*range(20 * len(POLICIES)), *TIES] if name_of(seed).startswith(LOOKS)]
    long = {seed: digest(seed) for seed in seeds}
    monkeypatch.setattr(Lookahead, "start", lambda self, launch: None)
    assert {seed: digest(seed) for seed in seeds} == long


def test_every_policy_with_decisions_that_stand_is_in_the_law() -> None:
    stating = {name for name, policy in POLICIES.items() if "stands" in vars(type(policy(1.0)))}
    assert stating == {name for name in POLICIES if name.startswith(LOOKS)}


class Stands(Scripted):
    """Scripted, with decisions that stand as it is told; the first request that waits has rank ``first``."""

    def __init__(self, stand: Stand, first: Rank = NOBODY, **acts: Any) -> None:
        super().__init__(**acts)
        self.stand, self.first, self.launches = stand, first, 0

    def stands(self, progress: Progress, gpus: tuple[int, ...], begin_s: float) -> Stand:
        return self.stand

    def first_waiting(self) -> Rank:
        return self.first if self.view.waiting else NOBODY

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        self.launches += progress.request.row == 0

    def decide(self, now_s: float) -> list[Launch]:
        return [launch._replace(steps=1) for launch in super().decide(now_s)]


@pytest.mark.parametrize(
    ("stand", "launches"),
    [
        (Stand(), STEPS),
        (Stand(STEPS), 1),
        (Stand(4), 2),
        (Stand(STEPS, until_s=3.5), 3),
        (Stand(STEPS, until_s=4.0), 3),
        (Stand(STEPS, idle=0), STEPS),
        (Stand(STEPS, idle=1), 1),
    ],
)
def test_decision_stands_for_its_steps_its_time_and_its_idle_gpus(stand: Stand, launches: int) -> None:
    """Steps of 1 s on one of two GPUs; after each boundary the decision stands for as many steps again."""
    policy = Stands(stand)
    run = run_stages([0.0], {1: [1.0]}, policy, 2)
    assert policy.launches == launches
    assert attempts(run) == [(0.0, float(STEPS), 0, (0,), STEPS)]


@pytest.mark.parametrize(("rank", "launches"), [(NOBODY, 5), ((3.0,), 5), ((1.0,), 1)])
def test_request_of_a_lower_rank_that_waits_ends_a_run_at_each_boundary(rank: Rank, launches: int) -> None:
    """On one GPU; a request of rank 2 comes in the second step, waits, and is never served before the other."""
    policy = Stands(Stand(STEPS, rank), (2.0,))
    run_stages([0.0, 1.5], {1: [1.0, 1.0]}, policy, 1)
    assert policy.launches == launches


def test_run_that_was_to_end_runs_on_if_the_reason_goes_before_its_boundary() -> None:
    """Requests 0 and 1 run on two GPUs; 2 waits from 1.5 s on, until the GPU of 1 is free at 1.75 s."""
    policy = Stands(Stand(STEPS, NOBODY), (2.0,))
    run = run_stages([0.0, 0.25, 1.5], {1: [1.0, 0.25, 1.0]}, policy, 2)
    assert policy.launches == 1
    assert attempts(run)[0] == (0.0, float(STEPS), 0, (0,), STEPS)


def test_run_of_steps_yields_a_gpu_that_another_launch_waits_for() -> None:
    """The second arrives in the first's third step of 2 s, and starts at its end."""

    def start(view: StageView) -> list[Launch]:
        return [Launch(progress, (0,)) for progress in view.waiting]

    run = run_stages([0.0, 5.0], {1: [2.0, 1.0]}, Stands(Stand(STEPS), at_0=start, at_1=start, at_2=start), 1)
    assert attempts(run)[0] == (0.0, 6.0, 0, (0,), 3)
    assert run.record.request_columns["start_s"].tolist() == [0.0, 6.0]
