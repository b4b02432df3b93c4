"""GPUs that fail under groups that change: what is lost, what waits, and what goes on."""

from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.addons.service_gpus import ServiceGpus
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import COMPLETED, FAILED, Addons
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.central_pull import CentralPull
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.group_policies.fixed_groups import FixedGroups
from mezzotint.sim.scheduling.group_policies.pools import Pools
from mezzotint.sim.scheduling.group_policies.preempt_class import PreemptClass
from mezzotint.sim.scheduling.group_policies.rounds import Rounds
from mezzotint.sim.scheduling.group_policies.super_p95 import SuperP95
from mezzotint.sim.scheduling.group_policies.tails import TailQuota
from mezzotint.sim.scheduling.group_policies.tetriserve import TetriServe
from mezzotint.sim.scheduling.group_policies.tridentserve import TridentServe
from tests.sim.execution.stages.test_addons import column, run_stages, spans
from tests.sim.execution.stages.test_life import STEPS, ByDegree, attempts
from tests.sim.lab import engine, simulated


class Encodes(ByDegree):
    """Text encoding takes 1 s."""

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(1.0)


Outages = dict[int, list[tuple[float, float]]]


def run_failing(
    times: Any, step_s: dict[int, list[float]], policy: GroupPolicy, count: int, failures: Failures, **how: Any
) -> Engine:
    """A finished run of requests of STEPS steps on GPUs that fail; a load takes 3 s."""
    limit_s, sides = how.pop("limit_s", None), how.pop("sides", [64] * len(step_s[1]))
    backend = how.pop("backend", ByDegree)(step_s, 3.0)
    run = engine(
        times, [each * STEPS for each in step_s[1]], count, backend=backend,
        executor=Stages(policy, Scaled(), **how), controllers=[failures], use_model_shape=False,
        shapes=tuple(np.array(column, np.int32) for column in (sides, sides, [STEPS] * len(sides))),
    )  # fmt: skip
    if limit_s is not None:
        run.workload.limit_s[:] = array("d", limit_s)
    run.run()
    return run


def check_gpus(run: Engine, outages: Outages | None = None) -> None:
    """No GPU is busy twice at one instant, in any group, nor while it is down."""
    log = run.record.usage_log
    by_gpu: dict[int, list[tuple[float, float]]] = {}
    for from_s, until_s, _, _, worker, *_ in log.spans().tolist():
        for gpu in run.cluster.gpus_of(worker):
            by_gpu.setdefault(gpu, []).append((from_s, until_s))
    for gpu, windows in (outages or {}).items():
        by_gpu.setdefault(gpu, []).extend(windows)
    for busy in by_gpu.values():
        ordered = sorted(each for each in busy if each[1] > each[0])
        for (_, until_s), (from_s, _) in pairwise(ordered):
            assert from_s >= until_s - 1e-9


@pytest.mark.parametrize(("lost", "ends"), [("again", [COMPLETED, COMPLETED]), ("failed", [FAILED, COMPLETED])])
def test_request_on_a_failed_gpu_starts_anew_and_others_run_on(lost: Any, ends: list[int]) -> None:
    """GPU 0 fails at 3 s in the second step of 2 s. The other GPU is idle from 6 s on and takes the request."""
    outages: Outages = {0: [(3.0, 20.0)]}
    run = run_failing([0.0, 0.0], {1: [2.0, 1.0]}, EarliestDeadline(), 2, Failures(outages, lost=lost))
    assert column(run, "outcome") == ends
    assert column(run, "finish_s") == ([18.0, 6.0] if lost == "again" else [3.0, 6.0])
    assert spans(run, "lost") == [(0.0, 3.0, 0)]
    if lost == "again":
        assert column(run, "start_s") == [6.0, 0.0]
        assert column(run, "denoise_s") == [12.0, 6.0]
    check_gpus(run, outages)


def test_gpu_that_fails_ends_its_group_and_frees_the_others() -> None:
    """A group of 0 and 1 loses GPU 1 at 2.5 s; the request starts anew at once on GPU 0 alone."""
    outages: Outages = {1: [(2.5, 100.0)]}
    run = run_failing([0.0], {1: [2.0], 2: [1.0]}, EarliestDeadline("greedy"), 2, Failures(outages))
    assert attempts(run) == [(0.0, 2.5, 0, (0, 1), 0), (2.5, 14.5, 0, (0,), 6)]
    assert [each[:2] for each in spans(run, "lost")] == [(0.0, 2.5)]
    assert run.record.attempts is not None
    assert list(run.record.attempts.component) == ["whole", "whole"]
    check_gpus(run, outages)


def test_policy_widens_again_once_the_repaired_gpu_has_loaded() -> None:
    """GPU 1 fails at a boundary and has loaded at 7 s: the request, in its third step of 2 s then, widens after it."""
    outages: Outages = {1: [(2.0, 4.0)]}
    run = run_failing([0.0], {1: [2.0], 2: [1.0]}, EarliestDeadline("greedy"), 2, Failures(outages))
    assert attempts(run) == [(0.0, 2.0, 0, (0, 1), 2), (2.0, 8.0, 0, (0,), 3), (8.0, 11.0, 0, (0, 1), 3)]
    assert [each[:2] for each in spans(run, "load")] == [(4.0, 7.0)]


class Always(GroupPolicy):
    """Launches every waiting request on the same GPUs, with all its steps."""

    def __init__(self, *gpus: int) -> None:
        self.gpus = gpus

    def bind(self, run: Run, view: StageView) -> None:
        self.view = view

    def decide(self, now_s: float) -> list[Launch]:
        return self.launches(*self.gpus)

    def launches(self, *gpus: int, steps: int | None = None) -> list[Launch]:
        return [Launch(each, gpus, steps or each.left) for each in self.view.waiting]


def test_launch_on_a_gpu_that_is_down_waits_until_it_is_back() -> None:
    """The request arrives at 2 s, the repair is at 10 s, and the load takes 3 s."""
    outages: Outages = {0: [(1.0, 10.0)]}
    run = run_failing([2.0], {1: [1.0]}, Always(0), 2, Failures(outages))
    assert column(run, "start_s") == [13.0]
    check_gpus(run, outages)


def test_gpu_that_is_down_or_loads_is_not_idle() -> None:
    seen: dict[float, list[int]] = {}

    class Looks(Always):
        def decide(self, now_s: float) -> list[Launch]:
            seen[now_s] = self.view.idle()
            return super().decide(now_s)

    run_failing([0.5, 2.0, 11.0, 14.0], {1: [0.1] * 4}, Looks(1), 2, Failures({0: [(1.0, 10.0)]}))
    assert [0 in seen[at] for at in (0.5, 2.0, 11.0, 14.0)] == [True, False, False, True]


def test_paused_request_loses_the_latent_on_a_failed_gpu() -> None:
    """Two steps run on GPU 0 from 0 to 2 s; it waits; GPU 0 fails at 3 s; all six steps run on GPU 1 from 5 s on."""

    class Pauses(Always):
        def decide(self, now_s: float) -> list[Launch]:
            if now_s == 0.0:
                return self.launches(0, steps=2)
            return self.launches(1) if now_s >= 5.0 else []

    run = run_failing([0.0, 5.0], {1: [1.0, 1.0]}, Pauses(), 2, Failures({0: [(3.0, 50.0)]}))
    mine = [each for each in attempts(run) if each[2] == 0]
    assert mine == [(0.0, 2.0, 0, (0,), 2), (5.0, 11.0, 0, (1,), 6)]
    assert column(run, "start_s")[0] == 5.0
    assert column(run, "denoise_s")[0] == 6.0


def test_load_that_a_failure_ends_is_busy_up_to_then() -> None:
    """Forming takes 4 s; GPU 1 fails after 1 s of it."""
    outages: Outages = {1: [(1.0, 100.0)]}
    run = run_failing([0.0], {1: [2.0], 2: [1.0]}, EarliestDeadline("greedy"), 2, Failures(outages), forming_s=4.0)
    assert [each[:2] for each in spans(run, "form")] == [(0.0, 1.0)]
    assert column(run, "finish_s") == [13.0]
    check_gpus(run, outages)


def test_move_that_a_failure_ends_loses_its_request() -> None:
    """A step on GPU 0, then a move of 2 s to GPU 1, which fails at 2 s; from 2 s on all runs on GPU 0."""

    class Moves(Always):
        def decide(self, now_s: float) -> list[Launch]:
            if now_s == 1.0:
                return self.launches(1)
            return self.launches(0, steps=1 if now_s == 0.0 else None)

    outages: Outages = {1: [(2.0, 100.0)]}
    run = run_failing([0.0], {1: [1.0]}, Moves(), 2, Failures(outages), migration_s=2.0)
    assert [each[:2] for each in spans(run, "lost")] == [(1.0, 2.0)]
    assert column(run, "finish_s") == [8.0]
    check_gpus(run, outages)


def quota() -> TailQuota:
    return TailQuota(every=4)


POLICIES: dict[str, Callable[[], GroupPolicy]] = {
    "edf-best": EarliestDeadline,
    "edf-greedy": lambda: EarliestDeadline("greedy"),
    "fixed-groups": lambda: FixedGroups("2x2"),
    "srtf": lambda: FixedGroups("x1", "least-backlog", "srtf"),
    "fixed-degree": lambda: FixedDegree(2),
    "demote": lambda: PreemptClass(["64x64"], ["128x128"], degrees=[1, 2]),
    "pause": lambda: PreemptClass(["64x64"], ["128x128"], "pause", [1, 2], late_share=0.9, max_aside_s=2.0),
    "rounds": lambda: Rounds(4.0),
    "tetriserve": lambda: TetriServe(round_s=6.0),
    "tetriserve-batches": lambda: TetriServe(round_s=6.0, max_batch=3),
    "super-p95": lambda: SuperP95(quota(), 2),
    "central-pull": lambda: CentralPull(quota(), 2),
    "pools": lambda: Pools({"text-encoder": 1, "denoiser": 2, "vae": 1}),
    "colocated": Pools,
    "tridentserve": lambda: TridentServe(period_s=20.0),
}


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    lost=st.sampled_from(["again", "failed"]),
    mean_up_s=st.floats(20.0, 100.0),
    migration_s=st.sampled_from([0.0, 1.0]),
    disaggregated=st.booleans(),
)
def test_every_policy_survives_gpu_failures_at_any_time(
    name: str, seed: int, lost: Any, mean_up_s: float, migration_s: float, disaggregated: bool
) -> None:
    """The engine raises if a request is lost, ends twice, or its attempts do not add up to it."""
    rng = np.random.default_rng(seed)
    rows = 20
    step_s = rng.choice([0.5, 1.0, 1.5], rows)
    costs = {1: step_s.tolist(), 2: (0.6 * step_s).tolist(), 4: (0.4 * step_s).tolist()}
    failures = Failures(mean_up_s=mean_up_s, mean_down_s=4.0, lost=lost)
    limit_s = rng.choice([10.0, 30.0, 100.0], rows).tolist()
    how: dict[str, Any] = {"stages": "disaggregated"} if disaggregated or name in ("tridentserve", "pools") else {}
    run = run_failing(
        np.cumsum(rng.exponential(1.0, rows)), costs, POLICIES[name](), 4, failures, migration_s=migration_s,
        forming_s=0.5, limit_s=limit_s, sides=rng.choice([64, 128], rows).tolist(), **how,
    )  # fmt: skip
    outcomes = set(column(run, "outcome"))
    assert outcomes <= ({COMPLETED} if lost == "again" else {COMPLETED, FAILED})
    check_gpus(run)


def test_request_between_two_stages_returns_to_the_pool_of_its_first() -> None:
    """GPU 0 encodes and GPU 1 denoises. The second request waits for GPU 1 when GPU 0 fails, and is encoded again."""
    outages: Outages = {0: [(3.0, 4.0)]}
    run = run_failing(
        [0.0, 0.0], {1: [1.0, 1.0]}, Pools({"text-encoder": 1, "denoiser": 1, "vae": "denoiser"}), 2, Failures(outages),
        stages="disaggregated", backend=Encodes,
    )  # fmt: skip
    log = run.record.attempts
    assert log is not None
    ran = zip(log.from_s, log.row, log.component, log.gpus, strict=True)
    assert sorted(each[0] for each in ran if each[1:] == (1, "text-encoder", (0,))) == [1.0, 7.0]
    assert column(run, "start_s") == [0.0, 7.0]


def test_tridentserve_dispatches_a_restarted_request_from_its_first_stage() -> None:
    """The late request waits between two stages, behind one in time, when the only GPU fails at 1.5 s."""
    run = run_failing(
        [0.0, 0.5], {1: [1.0, 1.0]}, TridentServe(), 1, Failures({0: [(1.5, 2.0)]}), limit_s=[0.5, 100.0],
        stages="disaggregated", backend=Encodes,
    )  # fmt: skip
    assert column(run, "outcome") == [COMPLETED] * 2
    assert column(run, "start_s")[0] > 5.0


def test_srtf_ranks_a_restarted_request_by_its_whole_plan() -> None:
    """At 5.5 s GPU 0 fails under the second request, which preempted the first with a step of 1 s left; the third takes
    3 s, and so comes before the first, which begins anew."""
    run = run_failing(
        [0.0, 4.5, 5.2], {1: [1.0, 0.15, 0.5]}, FixedGroups("1x1", order="srtf"), 1, Failures({0: [(5.5, 6.0)]})
    )
    assert column(run, "finish_s")[2] <= column(run, "start_s")[0]


def test_service_gpus_of_a_lost_launch_are_free_again() -> None:
    """GPU 0 fails at 3 s; the service GPU was held from 0 s to 3 s, and serves the same request anew on GPU 1."""
    outages: Outages = {0: [(3.0, 100.0)]}
    run = run_stages(
        [0.0], [Addons(("canny",))], 2, 1, EarliestDeadline("greedy", [1]), controllers=[Failures(outages)],
        controlnet_placement=ServiceGpus(),
    )  # fmt: skip
    served = [each for each in spans(run, "controlnet") if each[2] == 2]
    assert served == [(0.0, 3.0, 2), (3.0, column(run, "finish_s")[0], 2)]
    assert column(run, "load_s") == [0.0]  # it stays on the service GPU
    check_gpus(run, outages)


def test_same_seed_gives_the_same_failures_and_every_request_completes() -> None:
    words = ("system=edf-best-fit", "models=flux-dev-xdit", "cluster=h100", "cluster.count=4", "shapes=model",
             "slo=[2]", "arrivals.rate_rpm=20", "trace.requests=120", "failures=random", "failures.mean_up_s=200",
             "failures.mean_down_s=30")  # fmt: skip
    one, other = (simulated(*words) for _ in range(2))
    assert one.requests.equals(other.requests)
    assert one.attempts is not None
    assert one.attempts.equals(other.attempts)
    assert one.summary["requests"]["completed"] == 120
    assert one.summary["gpu"]["switches"] > 0


def test_outage_of_a_service_gpu_is_refused() -> None:
    with pytest.raises(ConfigError, match="found GPU 2, which serves ControlNets"):
        run_stages([0.0], [Addons(("canny",))], 2, 1, controllers=[Failures({2: [(1.0, 2.0)]})])
