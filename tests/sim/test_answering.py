"""From an image to the end of its request: tries that add up, on workers and on groups of GPUs, and the answer."""

from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.handling import Handling
from mezzotint.sim.core.plan import DECLARED, Plan
from mezzotint.sim.core.request import Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import GroupPolicy
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastOutstanding
from tests.sim.execution.stages.test_life import STEPS, ByDegree
from tests.sim.lab import FixedTimes, engine

THREE = Plan("small", then=Plan("large", skip_fraction=0.5, then=Plan("large")))
"""Full steps, half of them on another model, and full steps again."""


class Tries(Direct):
    """Plans each request by ``plan``; the images of the first ``poor`` tries of a request are too poor."""

    def __init__(self, plan: Plan, poor: int = 9) -> None:
        super().__init__()
        self.plan, self.poor, self.judged = plan, poor, dict[int, int]()

    def admit(self, request: Request, now_s: float) -> float:
        self._run.assign(request, self.plan)
        return 0.0

    def judge_s(self, request: Request) -> float:
        return 1.0

    def escalates(self, request: Request, now_s: float) -> bool:
        self.judged[request.row] = self.judged.get(request.row, 0) + 1
        return self.judged[request.row] <= self.poor


def columns(run: Engine, *names: str) -> list[list[Any]]:
    found = run.record.request_columns
    return [found[name].tolist() for name in names]


@pytest.mark.parametrize("poor", [0, 1, 2, 9])
@pytest.mark.parametrize("after_s", [0.0, 7.0])
def test_tries_of_a_request_add_up_and_its_answer_is_handled_once(poor: int, after_s: float) -> None:
    """A try takes 10 s, the second one 5 s of steps and a load of 3 s; the third one finds its model there."""
    run = engine(
        [2.0], [10.0], backend=FixedTimes([10.0], 3.0), roles=["small"], frontend=Tries(THREE, poor),
        handling=Handling(after_s=after_s),
    )  # fmt: skip
    run.run()
    tries = min(poor, 2)
    took_s, loads_s = [10.0, 15.0, 25.0][tries], [0.0, 3.0, 3.0][tries]
    judged_s = [1.0, 2.0, 2.0][tries]
    assert columns(run, "start_s", "denoise_s", "load_s", "skipped") == [
        [2.0],
        [took_s],
        [loads_s],
        [25 * (tries == 1)],
    ]
    assert columns(run, "finish_s") == [[2.0 + took_s + loads_s + judged_s + after_s]]
    log = run.record.attempts
    assert log is not None
    assert log.stage == [0, 1, 2][: tries + 1]
    assert log.steps == [50, 25, 50][: tries + 1]
    assert sum(log.energy_j) == pytest.approx(columns(run, "energy_j")[0][0])


def test_artifact_that_is_the_answer_may_be_judged_too_poor() -> None:
    plan = Plan(None, source=DECLARED, fetch_s=0.5, then=Plan("large"))
    run = engine([2.0], [10.0], frontend=Tries(plan))
    run.run()
    assert columns(run, "start_s", "finish_s", "denoise_s") == [[2.0], [13.5], [10.0]]
    assert run.record.attempts is not None
    assert run.record.attempts.model == ["large"]


def test_earlier_try_is_outstanding_at_no_worker() -> None:
    """Both workers are idle at each try: the first one has no more outstanding requests than the second."""
    run = engine(
        [0.0, 100.0], [10.0, 10.0], 2, frontend=Tries(Plan("large", then=Plan("large"))),
        scheduler=PerWorkerQueues(LeastOutstanding()),
    )  # fmt: skip
    run.run()
    assert run.record.attempts is not None
    assert run.record.attempts.gpus == [(0,)] * 4


def on_groups(*controllers: Any, policy: GroupPolicy | None = None, count: int = 4) -> Engine:
    """Run two requests of STEPS steps on groups of two of ``count`` GPUs, 1 s a step and 3 s a load."""
    run = engine(
        [0.0, 2.0], [2.0 * STEPS] * 2, backend=ByDegree({1: [2.0] * 2, 2: [1.0] * 2}, 3.0),
        executor=Stages(policy or FixedDegree(2), Scaled()), frontend=Tries(THREE), roles=["small"] * count,
        shapes=tuple(np.full(2, value, np.int32) for value in (64, 64, STEPS)), use_model_shape=False,
        controllers=controllers,
    )  # fmt: skip
    run.workload.limit_s[1] = 1.0
    run.run()
    return run


def test_every_try_runs_on_groups_of_gpus() -> None:
    run = on_groups()
    assert columns(run, "start_s", "denoise_s", "load_s") == [[0.0, 2.0], [2.5 * STEPS] * 2, [3.0] * 2]
    assert columns(run, "finish_s") == [[2.5 * STEPS + 5.0, 2.5 * STEPS + 7.0]]
    log = run.record.attempts
    assert log is not None
    first = [at for at, row in enumerate(log.row) if row == 0]
    assert [(log.model[at], log.gpus[at], log.steps[at]) for at in first] == [
        ("small", (0, 1), STEPS),
        ("large", (0, 1), STEPS // 2),
        ("large", (0, 1), STEPS),
    ]


def test_pauses_of_all_tries_count() -> None:
    """The second request is due first: each of its tries takes the GPU from the first try of the first request."""
    run = on_groups(policy=EarliestDeadline(), count=1)
    log = run.record.attempts
    assert log is not None
    assert columns(run, "pauses")[0] == [np.bincount(log.row)[0] - 3, 0]
    assert [model for row, model in zip(log.row, log.model, strict=True) if row == 0][:3] == ["small"] * 3


def test_gpu_that_fails_in_the_second_try_loses_that_try_alone() -> None:
    """GPU 0 fails at 12 s, 2 s into the second try and after its load, and is back at once."""
    run = on_groups(Failures({0: [(12.0, 12.5)]}))
    log = run.record.attempts
    assert log is not None
    stages = [(log.model[at], log.stage[at], log.steps[at]) for at in range(len(log)) if log.row[at] == 0]
    kept = [(model, steps) for model, stage, steps in stages if stage >= 0]
    assert kept == [("small", STEPS), ("large", STEPS // 2), ("large", STEPS)]
    assert any(stage < 0 for _, stage, _ in stages)
    assert columns(run, "start_s", "denoise_s") == [[0.0, 2.0], [2.5 * STEPS] * 2]
    assert columns(run, "gpu_s", "estimate_s") == [[5.0 * STEPS] * 2, [2.5 * STEPS] * 2]
