"""Random orders of roles and rented GPUs, with moves, loads and failures: nothing is lost, no role is broken."""

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.clock import CONTROL
from mezzotint.sim.core.plan import Plan
from mezzotint.sim.core.request import COMPLETED, Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.execution.stages.lookahead import Lookahead
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import Controller, GroupPolicy, Run
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.by_pool import ByPool
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.group_policies.rounds import Rounds
from mezzotint.sim.scheduling.group_policies.tetriserve import TetriServe
from tests.identity.random_systems import HOW, SIDES, STEP_S, STEPS, Units
from tests.sim.execution.stages.test_life import attempts
from tests.sim.lab import engine

GPUS = 4
POLICIES: dict[str, Callable[[float], GroupPolicy]] = {
    "edf": lambda unit_s: EarliestDeadline(),
    "greedy": lambda unit_s: EarliestDeadline(fit="greedy"),
    "fixed-degree": lambda unit_s: FixedDegree(),
    "rounds": lambda unit_s: Rounds(round_s=10 * unit_s),
    "tetriserve": lambda unit_s: TetriServe(round_s=15 * unit_s),
}


class Orders(Controller):
    """Orders GPUs to roles, or rents them and gives them back, but never the last one."""

    def __init__(self, orders: list[tuple[float, int, str]], rents: bool) -> None:
        self.orders, self.rents = orders, rents

    def bind(self, run: Run) -> None:
        self.run = run
        if self.rents:
            run.cluster.rent(GPUS)
        for at_s, gpu, role in self.orders:
            run.clock.at(at_s, CONTROL, self.act, (gpu, role))

    def act(self, order: tuple[int, str]) -> None:
        (gpu, role), cluster, now_s = order, self.run.cluster, self.run.clock.now
        worker = cluster.group((gpu,))
        others = [other for other in cluster.workers if other is not worker]
        if not self.rents:
            if any(other.role == worker.role for other in others):
                cluster.change_role(worker, role, now_s)
        elif role == "large":
            cluster.start_instance(gpu, 2.0, now_s)
        elif others and worker in cluster.workers:
            cluster.stop_instance(gpu, now_s)


class InTurn(Direct):
    """The large and the small model in turn."""

    def bind(self, run: Run) -> None:
        super().bind(run)
        self.run = run

    def admit(self, request: Request, now_s: float) -> float:
        self.run.assign(request, Plan(("large", "small")[request.row % 2]))
        return 0.0


def run_random(name: str, seed: int) -> Engine:
    rng = np.random.default_rng(seed)
    rows, unit_s, what = int(rng.integers(3, 25)), [1.0, 0.1][int(rng.integers(2))], int(rng.integers(3))
    has_roles, rents = what == 0, what == 1
    kinds = rng.integers(0, 3, rows)
    step_s = {degree: [units[kind] * unit_s for kind in kinds] for degree, units in STEP_S[seed % 2].items()}
    delays: dict[str, Any] = {key: value * unit_s if isinstance(value, float) else value
              for key, value in HOW[int(rng.integers(len(HOW)))].items()}  # fmt: skip
    orders = [(float(rng.integers(0, 200)) * unit_s, int(rng.integers(GPUS)), ("large", "small")[int(rng.integers(2))])
              for _ in range(rng.integers(0, 15))]  # fmt: skip
    policy, side = POLICIES[name](unit_s), np.array(SIDES, np.int32)[kinds]
    controllers: list[Controller] = [Orders(orders, rents)] if has_roles or rents else []
    if has_roles and rng.random() < 0.3:
        controllers.insert(0, Failures(mean_up_s=float(rng.integers(40, 200)) * unit_s, mean_down_s=4.0 * unit_s))
    elif not has_roles and not rents:  # in units, too, so that a GPU fails at a boundary
        outages = {gpu: [[at_s, at_s + 3.0 * unit_s]] for at_s, gpu, _ in orders}
        controllers = [Failures(outages=outages)] if outages else []
    backend = Units(step_s, unit_s * (rng.random() < 0.3), 5.0 * unit_s * (rng.random() < 0.5))
    parts: dict[str, Any] = {"frontend": InTurn() if has_roles else Direct()}
    run = engine(
        np.cumsum(rng.integers(0, int(rng.integers(2, 20)), rows)) * unit_s, [each * STEPS for each in step_s[1]],
        backend=backend, executor=Stages(ByPool(policy) if has_roles else policy, Scaled(), **delays), seed=seed,
        roles=["large", "large", "small", "small"] if has_roles else ["large"] * GPUS, controllers=controllers,
        shapes=(side, side, np.full(rows, STEPS, np.int32)), use_model_shape=False, sample_s=60.0 * unit_s, **parts,
    )  # fmt: skip
    run.workload.limit_s[:] = array("d", (rng.integers(1, 200, rows) * unit_s).tolist())
    run.run()
    return run


@pytest.mark.parametrize("name", ["edf", "greedy"])
def test_lookahead_beside_gpus_that_go_runs_as_a_decision_at_every_step(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of steps on a GPU that leaves ends where it is decided anew."""
    runs = [run_random(name, seed) for seed in range(100)]
    monkeypatch.setattr(Lookahead, "start", lambda *_: None)
    for seed, run in enumerate(runs):
        assert attempts(run) == attempts(run_random(name, seed)), seed


@pytest.mark.parametrize("name", POLICIES)
def test_random_orders_lose_no_request_and_serve_no_other_role(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(*_: object) -> None:
        raise AssertionError("a launch runs on a GPU of another role")

    monkeypatch.setattr(Cluster, "install", loads)
    for seed in range(100):
        outcomes = run_random(name, seed).record.request_columns["outcome"]
        assert np.all(outcomes == COMPLETED), seed
