"""Roles, rented GPUs and failures on groups that change: with one GPU a request, today's MoDM and autoscalers."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.core.clock import CONTROL
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import Controller, GroupPolicy, Launch, Run, StageView
from mezzotint.sim.scheduling.estimates import Scaled
from tests.sim.execution.stages.test_life import ByDegree
from tests.sim.lab import engine, simulated

ON_GROUPS = "scheduler=stages", "executor=stages", "estimates=perfect"
MODM = "system=modm-throughput", "trace.requests=1200", "preload=300", "arrivals.rate_rpm=14"
FAILURES = "failures=random", "failures.mean_up_s=5000", "failures.mean_down_s=300"


@pytest.mark.parametrize(
    "words",
    [
        MODM,
        (*MODM, *FAILURES),
        ("system=vanilla", "trace.requests=1200", "controller=autoscale-utilisation"),
        ("system=vanilla", "trace.requests=1000", *FAILURES),
    ],
)
def test_groups_of_one_gpu_equal_workers_to_the_byte(words: tuple[str, ...]) -> None:
    """Also which GPU runs what, and when a role changes."""
    workers, groups = (simulated(*words, *more) for more in ((), (*ON_GROUPS, "group_policy=fixed-degree")))
    assert groups.requests.select(workers.requests.column_names).equals(workers.requests)
    assert groups.cluster.select(workers.cluster.column_names).equals(workers.cluster)


@pytest.mark.parametrize("policy", ["edf-best-fit", "rounds", "tetriserve"])
def test_no_launch_loads_the_model_of_another_role(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(*_: object) -> None:
        raise AssertionError("a launch runs on a GPU of another role")

    monkeypatch.setattr(Cluster, "hold", loads)
    words = "trace.requests=400", "preload=100", "arrivals.rate_rpm=14", "slo=[5x]"
    outcome = simulated("system=modm-throughput", *words, *ON_GROUPS, f"group_policy={policy}")
    assert outcome.attempts is not None
    assert len(set(outcome.attempts["model"].to_pylist())) == 2
    assert len(set(outcome.cluster["gpus_large"].to_pylist())) > 1


def test_launch_that_waits_on_a_gpu_that_goes_is_decided_anew() -> None:
    """Request 1 waits for GPU 1, which is given back while request 0 runs there; it runs on GPU 0 instead."""
    policy = Queued()
    run = engine(
        [0.0, 0.0], [40.0, 10.0], 2, backend=ByDegree({1: [10.0, 2.5]}), executor=Stages(policy, Scaled()),
        controllers=[GivesBack()], use_model_shape=False,
        shapes=tuple(np.full(2, value, np.int32) for value in (64, 64, 4)),
    )  # fmt: skip
    run.run()
    assert list(run.record.request_columns["worker"]) == [1, 0]
    np.testing.assert_array_equal(run.record.request_columns["start_s"], [0.0, 12.0])


@dataclass(slots=True)
class Queued(GroupPolicy):
    """All steps at once on GPU 1; on GPU 0 what comes back."""

    follows_gpus: bool = True
    view: StageView = field(init=False)
    seen: set[int] = field(init=False, default_factory=set)

    def bind(self, run: Run, view: StageView) -> None:
        self.view = view

    def decide(self, now_s: float) -> list[Launch]:
        launches = []
        for progress in list(self.view.waiting):
            row = progress.request.row
            launches.append(Launch(progress, (0,) if row in self.seen else (1,), progress.left))
            self.seen.add(row)
        return launches


class GivesBack(Controller):
    """Give GPU 1 back at 12 s."""

    def bind(self, run: Run) -> None:
        run.cluster.rent(2)
        run.clock.at(12.0, CONTROL, lambda _: run.cluster.give_back(1, 12.0))


def test_policy_that_counts_on_its_gpus_is_refused_beside_a_controller() -> None:
    with pytest.raises(ConfigError, match=r"controller: found GlobalMonitor beside the group policy FixedGroups"):
        simulated(*MODM, *ON_GROUPS, "group_policy=fixed-groups")
