"""Roles, rented GPUs and failures on groups that change: with one GPU a request, today's MoDM and autoscalers."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.core.clock import CONTROL
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu, Kind
from mezzotint.sim.core.model import Model
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import Controller, GroupPolicy, Launch, Run, StageView
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.by_pool import ByPool
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
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

    monkeypatch.setattr(Cluster, "install", loads)
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
    """Give GPU 1 back."""

    def __init__(self, at_s: float = 12.0, gpus: int = 2) -> None:
        self.at_s, self.gpus = at_s, gpus

    def bind(self, run: Run) -> None:
        run.cluster.rent(self.gpus)
        run.clock.at(self.at_s, CONTROL, lambda _: run.cluster.stop_instance(1, self.at_s))


def test_latent_that_moved_to_a_gpu_that_left_moves_on_from_there() -> None:
    """Two steps on GPU 0 until 20 s, a move of 4 s to GPU 1, which leaves at 22 s, a move back and two more steps."""
    run = engine(
        [0.0], [40.0], 2, backend=ByDegree({1: [10.0]}), executor=Stages(Wanders(), Scaled(), migration_s=4.0),
        controllers=[GivesBack(22.0)], use_model_shape=False,
        shapes=tuple(np.full(1, value, np.int32) for value in (64, 64, 4)),
    )  # fmt: skip
    run.run()
    log = run.record.attempts
    assert log is not None
    assert list(zip(log.component, log.gpus, log.from_s, log.until_s, strict=True)) == [
        ("whole", (0,), 0.0, 20.0), ("move", (0, 1), 20.0, 24.0),
        ("move", (0,), 24.0, 28.0), ("whole", (0,), 28.0, 48.0),
    ]  # fmt: skip


class Wanders(Queued):
    """Two steps on GPU 0, the others on GPU 1; on GPU 0 what comes back from there."""

    def decide(self, now_s: float) -> list[Launch]:
        gpu = 1 if now_s == 20.0 else 0
        return [Launch(progress, (gpu,), 2) for progress in list(self.view.waiting)]


POOLS = "cluster=pools", "models=sdxl", "cluster.pools=[{gpu: h800, count: 2}, {gpu: mi210, count: 4}]"


@pytest.mark.parametrize("policy", [("fixed-degree",), ("edf-best-fit", "group_policy.degrees=[1]")])
def test_each_kind_runs_at_its_own_speed(policy: tuple[str, ...]) -> None:
    """A GPU's seconds and joules are those that it takes alone; the estimates are twice as many."""
    words = "system=vanilla", "trace.requests=300", "arrivals.rate_rpm=20", "slo=[5x]"
    name, *settings = policy
    groups = "scheduler=stages", "executor=stages", "estimates=wrong", "estimates.factor=2"
    outcome = simulated(*words, *POOLS, *groups, f"group_policy={name}", *settings)
    requests = outcome.requests.to_pandas()
    for gpu, workers in (("h800", (0, 1)), ("mi210", (2, 3, 4, 5))):
        alone = simulated("system=vanilla", "trace.requests=2", "models=sdxl", f"cluster={gpu}").requests.to_pandas()
        of_kind = requests[requests["worker"].isin(workers)]
        assert len(of_kind) > 20
        for name in ("denoise_s", "decode_s", "energy_j"):
            np.testing.assert_allclose(of_kind[name], alone[name][0], rtol=1e-9)
        np.testing.assert_allclose(of_kind["estimate_s"], 2.0 * of_kind["gpu_s"], rtol=1e-9)


def test_request_goes_to_the_kind_that_would_finish_it_first() -> None:
    """Four at once on one fast and one slow GPU, 3 and 5 s a request: 3, 6 (fast), 5 (slow), 9 (fast) s."""
    kinds = [Kind(Gpu(name, 300.0, 60.0, "made up"), ByDegree({1: [step_s] * 4})) for name, step_s in
             (("fast", 0.75), ("slow", 1.25))]  # fmt: skip
    models = {"large": Model("large", 4, 64, 64)}
    run = engine(
        np.array([0.0, 0.0, 0.0, 0.0]), [3.0] * 4, 2, executor=Stages(ByPool(FixedDegree()), Scaled()), models=models,
        cluster=Cluster(kinds, ["large", "large"], models), backend=kinds[0].backend, use_model_shape=False,
        shapes=tuple(np.full(4, value, np.int32) for value in (64, 64, 4)),
    )  # fmt: skip
    run.run()
    columns = run.record.request_columns
    assert list(columns["worker"]) == [0, 1, 0, 0]
    np.testing.assert_array_equal(columns["finish_s"], [3.0, 5.0, 6.0, 9.0])


def test_launch_on_gpus_of_several_kinds_is_refused() -> None:
    words = "system=vanilla", "trace.requests=20", *POOLS, *ON_GROUPS
    with pytest.raises(ConfigError, match=r"cluster.pools: found 2 kinds of GPUs beside the group policy FixedGroups"):
        simulated(*words, "group_policy=fixed-groups")
    kinds = [Kind(Gpu(name, 300.0, 60.0, "made up"), ByDegree({1: [1.0]})) for name in ("one", "two")]
    models = {"large": Model("large", 4, 64, 64)}
    run = engine([0.0], [4.0], 2, executor=Stages(Across(), Scaled()), models=models,
                 cluster=Cluster(kinds, ["large"] * 2, models), backend=kinds[0].backend)  # fmt: skip
    with pytest.raises(SimulationError, match=r"launches .* on the GPUs \(0, 1\), which are of several kinds"):
        run.run()


class Across(Queued):
    def decide(self, now_s: float) -> list[Launch]:
        return [Launch(progress, (0, 1), progress.left) for progress in list(self.view.waiting)]


def test_policy_that_counts_on_its_gpus_is_refused_beside_a_controller() -> None:
    with pytest.raises(ConfigError, match=r"controller: found GlobalMonitor beside the group policy FixedGroups"):
        simulated(*MODM, *ON_GROUPS, "group_policy=fixed-groups")
