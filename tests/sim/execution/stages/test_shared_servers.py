"""ControlNets of stages on servers that all launches share, which queue there at every step."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from mezzotint.backends.base import Cost, RemoteControlNetCosts, Work
from mezzotint.sim.addons.async_loading import AsyncLoading
from mezzotint.sim.addons.fetch import MeasuredFetch
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.addons.service_gpus import ServiceGpus
from mezzotint.sim.addons.shared_servers import SharedServers
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import COMPLETED, FAILED, Addons
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import Launch
from mezzotint.sim.protocols.cluster import SERVER
from mezzotint.sim.scheduling.estimates import EstimateTable
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_groups import FixedGroups
from tests.sim.execution.stages import test_addons
from tests.sim.execution.stages.test_addons import (
    APART,
    BEGIN_S,
    END_S,
    GIB,
    NONE,
    ONE,
    ONE_GPU,
    STEP_S,
    STEPS,
    TWO,
    column,
    run_stages,
    spans,
)
from tests.sim.execution.stages.test_asynchronous_loras import LoraTimes
from tests.sim.execution.stages.test_life import StepByStep
from tests.sim.lab import engine, simulated

UNQUEUED_S = STEP_S + APART[1].controlnet_s - APART[1].encoder_s + APART[1].receive_s
"""A step with one ControlNet that no other request calls."""

ADD_ONS = (
    "trace=add-ons", "models=sdxl", "cluster=h800", "cluster.count=6", "addons=serve", "arrivals=poisson", "slo=[3]",
    "trace.requests=80", "extrapolate=warn", "trace.controlnets=2", "arrivals.rate_rpm=60", "system=diffusers",
    "controlnet_placement=shared", "allocation=controlnet-servers", "allocation.servers=2",
)  # fmt: skip


@pytest.mark.parametrize(
    "loras", [("trace.loras=0",), ("trace.loras=1", "lora_loading=async", "lora_fetch=katz")], ids=["none", "async"]
)
def test_pulled_requests_with_shared_servers_run_as_continuous_batching(loras: tuple[str, ...]) -> None:
    """On one GPU each, and all queue at two servers. The sums are made in another order, and differ by rounding."""
    batches, stages = (
        simulated(*ADD_ONS, *loras, *executor).requests.to_pandas()
        for executor in ((), ("executor=stages", "~executor.max_batch"))
    )
    for name in ("start_s", "finish_s", "load_s", "denoise_s", "decode_s", "server_wait_s", "worker"):
        assert stages[name].to_numpy() == pytest.approx(batches[name].to_numpy(), abs=1e-9), name
    assert stages.energy_j.to_numpy() == pytest.approx(batches.energy_j.to_numpy(), abs=1e-6)
    assert (stages.server_wait_s > 0.1).mean() > 0.5


def ends_of_steps(begins_s: list[float]) -> list[float]:
    """Return when the steps of requests end that call one server, which answers the first call first."""
    parts, free_s, at_s, left = APART[1], 0.0, list(begins_s), [STEPS] * len(begins_s)
    while any(left):
        row = min((at, row) for row, at in enumerate(at_s) if left[row])[1]
        free_s = max(free_s, at_s[row]) + parts.controlnet_s
        at_s[row] += STEP_S + max(free_s - at_s[row] - parts.encoder_s, 0.0) + parts.receive_s
        left[row] -= 1
    return at_s


@pytest.mark.parametrize("times", [[0.0], [0.0, 0.125], [0.0, 0.5, 0.75, 2.0]])
def test_steps_of_all_launches_queue_at_the_server_that_has_their_controlnet(times: list[float]) -> None:
    run = run_stages(
        times, [ONE] * len(times), len(times), 1, EarliestDeadline("greedy", ONE_GPU),
        controlnet_placement=SharedServers([["canny"]]),
    )  # fmt: skip
    ends_s = ends_of_steps([time + BEGIN_S for time in times])
    assert column(run, "finish_s") == pytest.approx([end_s + END_S for end_s in ends_s])
    assert column(run, "denoise_s") == pytest.approx(
        [end_s - time - BEGIN_S for time, end_s in zip(times, ends_s, strict=True)]
    )
    assert column(run, "denoise_s") == pytest.approx(
        [STEPS * UNQUEUED_S + wait for wait in column(run, "server_wait_s")]
    )
    assert (sum(column(run, "server_wait_s")) > 0.0) == (len(times) > 1)
    assert len(spans(run, "controlnet")) == STEPS * len(times)


@pytest.mark.parametrize(("servers", "wait_s"), [(1, APART[2].controlnet_s), (2, 0.0)])
def test_each_gpu_of_a_group_calls_a_server(servers: int, wait_s: float) -> None:
    """Of two calls at one server the second waits for the first."""
    parts = APART[2]
    run = run_stages(
        [0.0], [ONE], 2, servers, FixedGroups("1x2"), controlnet_placement=SharedServers([["canny"]] * servers)
    )
    step_s = STEP_S / 2 + parts.controlnet_s - parts.encoder_s + parts.receive_s + wait_s
    assert column(run, "finish_s") == [BEGIN_S + STEPS * step_s + END_S]


def test_absent_controlnet_is_loaded_onto_a_server_once() -> None:
    run = run_stages([0.0, 50.0], [ONE, ONE], 1, 1, controlnet_placement=SharedServers())
    assert column(run, "load_s") == [2.0, 0.0]


def test_launch_waits_while_its_controlnets_fit_beside_none_in_use() -> None:
    """The server holds six. The third request waits for the end of the others, the fourth behind it; a plain one goes.

    Later all six make room for others.
    """
    gpu = Gpu("small", 300.0, 60.0, "made up", memory_bytes=13 * GIB)
    five, more = Addons(("a", "b", "c", "d", "e")), Addons(("g", "h", "i", "j", "k", "l"))
    run = run_stages(
        [0.0, 1.0, 2.0, 3.0, 4.0, 90.0], [TWO, ONE, five, Addons(("f",)), NONE, more], 5, 1,
        EarliestDeadline("greedy", ONE_GPU), gpu=gpu, controlnet_placement=SharedServers(),
    )  # fmt: skip
    first_s = max(column(run, "finish_s")[:2])
    assert column(run, "start_s") == [0.0, 1.0, first_s, first_s, 4.0, 90.0]


def test_lost_launch_that_waited_keeps_no_other_waiting() -> None:
    """Two workers and one service GPU, which the first request holds; the worker of the second fails meanwhile."""
    asked = [ONE, ONE, ONE]
    run = engine(
        [0.0, 1.0, 2.0], np.ones(3), backend=test_addons.AddonTimes(), roles=["large", "large", SERVER],
        executor=Stages(controlnet_placement=ServiceGpus()), addons=asked.__getitem__, use_model_shape=False,
        shapes=tuple(np.full(3, value, np.int32) for value in (64, 64, STEPS)),
        controllers=[Failures({1: [(3.0, 4.0)]})],
    )  # fmt: skip
    run.run()
    assert column(run, "outcome") == [COMPLETED] * 3
    begin_s, *later_s = sorted(column(run, "start_s"))
    assert begin_s == 0.0
    assert later_s == sorted(column(run, "finish_s"))[:2]


class Looks(FixedGroups):
    """Asks at an instant for the seconds that are left of the second request."""

    def arrived(self, progress: Progress, now_s: float) -> None:
        super().arrived(progress, now_s)
        if not now_s:
            self.last = progress
            self._view.decide_at(1.5)

    def decide(self, now_s: float) -> Iterator[Launch]:
        if now_s == 1.5:
            self.left_s = self._view.remaining_s(self.last, 1)
        yield from super().decide(now_s)


Looks.__slots__ = ()


def test_waiting_step_is_not_behind() -> None:
    """The first step of the second request begins at 0.25 s and ends at 2.06 s, since the server answers it second."""
    policy = Looks("2x1")
    run_stages([0.0, 0.0], [ONE, ONE], 2, 1, policy, controlnet_placement=SharedServers([["canny"]]))
    assert policy.left_s == pytest.approx(BEGIN_S + STEPS * UNQUEUED_S + END_S)


@pytest.mark.parametrize(("servers", "outcome"), [(1, FAILED), (2, COMPLETED)])
def test_request_whose_controlnets_never_fit_together_fails(servers: int, outcome: int) -> None:
    """A server has room for four of 2 GiB."""
    gpu = Gpu("small", 300.0, 60.0, "made up", memory_bytes=9 * GIB)
    asked = [ONE, Addons(("a", "b", "c", "d", "e"))]
    run = run_stages([0.0, 1.0], asked, 2, servers, gpu=gpu, controlnet_placement=SharedServers())
    assert column(run, "outcome") == [COMPLETED, outcome]
    if outcome == FAILED:
        assert "5 ControlNets do not fit together on 1 servers" in run.record.request_columns.reasons[1]


@pytest.mark.parametrize("fit", ["best", "greedy"])
@pytest.mark.parametrize("fails", [False, True])
def test_lookahead_with_shared_servers_runs_as_a_decision_at_every_step(
    fit: Any, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are preempted and move while they queue at servers and LoRAs are fetched."""
    monkeypatch.setattr(test_addons, "AddonTimes", LoraTimes)
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.integers(0, 12, 40) / 8.0)
    asked = [(NONE, ONE, TWO, Addons(("canny",), ("ink",)))[some] for some in rng.integers(0, 4, 40)]
    ours, theirs = (
        run_stages(
            times, asked, 4, 2, policy(fit), migration_s=0.125, controlnet_placement=SharedServers(),
            lora_loading=AsyncLoading(MeasuredFetch([0.7, 0.7])),
            controllers=[Failures(mean_up_s=20.0, mean_down_s=5.0)] if fails else [],
        )
        for policy in (EarliestDeadline, StepByStep)
    )  # fmt: skip
    assert (np.array(column(ours, "outcome")) == COMPLETED).all()
    for name in ("start_s", "finish_s", "worker", "load_s", "denoise_s", "patch_step", "server_wait_s", "energy_j"):
        assert column(ours, name) == pytest.approx(column(theirs, name), abs=1e-9, nan_ok=True), name
    assert fit == "greedy" or max(column(ours, "moves")) > 0
    assert max(column(ours, "server_wait_s")) > 0.0


class LiveTimes(LoraTimes):
    """The same seconds, of which nothing is known before it runs."""

    live = by_row = True
    group_step = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[int] = set()

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        self.asked.add(works[0].row)
        return super().steps(works, count)

    def remote_controlnet_costs(self, work: Work, batch: int, gpus: int) -> RemoteControlNetCosts:
        assert work.row in self.asked, "the parts of a step are known once it ran"
        return super().remote_controlnet_costs(work, batch, gpus)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("placement", [InlineControlNets, ServiceGpus, SharedServers])
def test_live_add_ons_run_as_those_whose_times_are_known_before(
    placement: Any, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    times = np.cumsum(rng.integers(0, 16, 40) / 8.0)
    asked = [(NONE, ONE, TWO, Addons(("canny",), ("ink",)))[some] for some in rng.integers(0, 4, 40)]
    runs = []
    for backend in (LiveTimes, LoraTimes):
        monkeypatch.setattr(test_addons, "AddonTimes", backend)
        run = run_stages(
            times, asked, 4, 2 * (placement is not InlineControlNets), EarliestDeadline("best", ONE_GPU),
            estimates=EstimateTable({"64x64": 5.0}), controlnet_placement=placement(),
            lora_loading=AsyncLoading(MeasuredFetch([1.7, 1.7])),
            controllers=[Failures(mean_up_s=20.0, mean_down_s=5.0)] if fails else [],
        )  # fmt: skip
        runs.append(run)
    for name in ("start_s", "finish_s", "worker", "load_s", "denoise_s", "decode_s", "patch_step", "stall_s"):
        live, known = (column(run, name) for run in runs)
        assert live == pytest.approx(known, abs=1e-9, nan_ok=True), name
    assert max(column(runs[0], "patch_step")) > 0
