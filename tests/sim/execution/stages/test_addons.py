"""ControlNets and LoRAs of stages: inline, on service GPUs beside the groups, and the waits for these."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import AddonBackend, Asset, Cost, RemoteControlNetCosts, Work
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.addons.service_gpus import ServiceGpus
from mezzotint.sim.addons.shared_servers import SharedServers
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.request import COMPLETED, FAILED, Addons
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.execution.stages.lookahead import Lookahead
from mezzotint.sim.protocols import ControlNetPlacement, GroupPolicy, Launch, Run, StageView
from mezzotint.sim.protocols.cluster import SERVER
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_groups import FixedGroups
from tests.sim.execution.stages.test_life import StepByStep
from tests.sim.lab import FixedTimes, engine, simulated

STEPS = 4
BEGIN_S, STEP_S, END_S = 0.25, 1.0, 0.5
NET_S = 0.75
"""Seconds that a ControlNet adds to a step inline."""

APART = {1: RemoteControlNetCosts(0.5, 0.625, 0.0625), 2: RemoteControlNetCosts(0.25, 0.3125, 0.0625)}
LOAD_S = {"model": 8.0, "controlnet": 2.0, "lora": 1.0}
GIB = 2**30


class AddonTimes(FixedTimes, AddonBackend):
    """Steps of 1 s, of half that on 2 GPUs; a ControlNet adds 0.75 s inline."""

    by_row = False

    def __init__(self) -> None:
        super().__init__([])

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(BEGIN_S)

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(END_S)

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        for work in works:
            work.done += count
        return Cost(count * (STEP_S + NET_S * len(works[0].controlnets)))

    def group_sizes(self, model: str | None = None) -> list[int]:
        return [2]

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost | None:
        return Cost((STEP_S + NET_S * len(work.controlnets) * (gpus == 1)) / gpus)

    def remote_controlnet_costs(self, work: Work, batch: int, gpus: int) -> RemoteControlNetCosts:
        return APART[gpus]

    def load(self, asset: Asset) -> Cost:
        return Cost(LOAD_S[asset.kind])

    def bytes(self, asset: Asset) -> int | None:
        return {"model": 8, "controlnet": 2, "lora": 1}[asset.kind] * GIB


def run_stages(
    times: Any, asked: Sequence[Addons], gpus: int, servers: int, policy: GroupPolicy | None = None, **how: Any
) -> Engine:
    """A finished run on ``gpus`` that run stages and ``servers`` that serve ControlNets."""
    parts = {name: how.pop(name) for name in ("gpu", "controllers") if name in how}
    how = {"controlnet_placement": ServiceGpus() if servers else InlineControlNets(), "estimates": Scaled()} | how
    run = engine(
        times, np.ones(len(asked)), backend=AddonTimes(), roles=["large"] * gpus + [SERVER] * servers,
        executor=Stages(policy or EarliestDeadline(), **how),
        addons=asked.__getitem__, use_model_shape=False,
        shapes=tuple(np.full(len(asked), value, np.int32) for value in (64, 64, STEPS)), **parts,
    )  # fmt: skip
    run.run()
    return run


def column(run: Engine, name: str) -> list[Any]:
    found: list[Any] = run.record.request_columns[name].tolist()
    return found


def spans(run: Engine, kind: str) -> list[tuple[float, float, int]]:
    """Return (from, until, worker) of every busy span of ``kind``."""
    log = run.record.usage_log
    found = log.spans()
    mine = found[found["kind"] == log.kinds.get(kind, -1)]
    return sorted((each["from_s"], each["until_s"], each["worker"]) for each in mine)


NONE, ONE, TWO = Addons(), Addons(("canny",)), Addons(("canny", "depth"))
ONE_GPU = [1]


def test_service_step_is_the_longer_of_encoder_and_controlnet_then_the_residuals() -> None:
    """On one GPU 0.625 s - 0.5 s + 2 x 0.0625 s more than a plain step; the first request also loads for 2 s."""
    run = run_stages([0.0, 50.0], [TWO, TWO], 1, 2)
    step_s = STEP_S + 0.125 + 2 * 0.0625
    assert column(run, "denoise_s") == [STEPS * step_s] * 2
    assert column(run, "load_s") == [2.0, 0.0]
    assert column(run, "finish_s") == [2.0 + BEGIN_S + STEPS * step_s + END_S, 50.0 + BEGIN_S + STEPS * step_s + END_S]


@pytest.mark.parametrize("degree", [1, 2])
def test_service_is_faster_than_inline_and_slower_than_no_controlnets(degree: int) -> None:
    latency_s = {}
    for name, asked, servers in (("none", NONE, 0), ("service", TWO, 2 * degree), ("inline", TWO, 0)):
        run = run_stages([0.0, 50.0], [asked] * 2, degree, servers, EarliestDeadline("greedy", [degree]))
        latency_s[name] = column(run, "finish_s")[1] - 50.0
    assert latency_s["none"] < latency_s["service"] < latency_s["inline"]
    assert latency_s["none"] == BEGIN_S + STEPS * STEP_S / degree + END_S
    assert latency_s["inline"] == BEGIN_S + STEPS * (STEP_S + 2 * NET_S) / degree + END_S


def test_launch_waits_for_service_gpus_that_another_request_holds() -> None:
    """Two GPUs run stages and one serves: the second request starts at the end of the first, the plain one at once."""
    run = run_stages([0.0, 1.0, 1.0], [ONE, ONE, NONE], 3, 1, EarliestDeadline("greedy", ONE_GPU))
    one_s = BEGIN_S + STEPS * (STEP_S + 0.125 + 0.0625) + END_S
    assert column(run, "start_s") == [0.0, 2.0 + one_s, 1.0]
    assert column(run, "server_wait_s") == [0.0, 1.0 + one_s, 0.0]
    assert column(run, "finish_s")[1] == 2.0 + 2 * one_s
    assert spans(run, "controlnet")[1:] == [(0.0, 2.0 + one_s, 3), (2.0 + one_s, 2.0 + 2 * one_s, 3)]


def test_launch_that_needs_more_service_gpus_is_not_overtaken() -> None:
    """Two of three service GPUs are held; the request with two waits for one of them, and later ones behind it."""
    asked = [TWO, TWO, ONE, ONE]
    run = run_stages([0.0, 1.0, 2.0, 3.0], asked, 4, 3, EarliestDeadline("greedy", ONE_GPU))
    first_s, *later_s = column(run, "finish_s")
    assert column(run, "start_s") == [0.0, first_s, first_s, min(later_s)]


@settings(max_examples=50, deadline=None)
@given(
    asked=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=15),
    gpus=st.integers(1, 4), servers=st.integers(2, 5), fit=st.sampled_from(["best", "greedy"]),
)  # fmt: skip
def test_no_service_gpu_runs_a_stage_or_two_controlnets_at_once(
    asked: list[tuple[int, int, int]], gpus: int, servers: int, fit: Any
) -> None:
    """The engine checks that no GPU works twice at one instant, from the attempts of groups and service GPUs alike."""
    nets = [Addons(("canny", "depth")[:some], ("ink",) * lora) for _, some, lora in asked]
    run = run_stages(np.cumsum([float(gap) for gap, _, _ in asked]), nets, gpus, servers, EarliestDeadline(fit))
    log = run.record.attempts
    assert log is not None
    assert (np.array(column(run, "outcome")) == COMPLETED).all()
    for component, used in zip(log.component, log.gpus, strict=True):
        assert set(used) <= set(range(gpus, gpus + servers) if component == "controlnet" else range(gpus))
    held_s: dict[int, float] = {}
    for from_s, until_s, row, component in zip(log.from_s, log.until_s, log.row, log.component, strict=True):
        held_s[row] = held_s.get(row, 0.0) + (until_s - from_s) * (component == "controlnet")
    for row, addons in enumerate(nets):
        assert (held_s[row] > 0.0) == bool(addons.controlnets)
    busy_s = run.record.usage_log.inside(0.0, 1e6, run.cluster.gpu_counts()).busy_s
    assert busy_s == pytest.approx(sum(column(run, "gpu_s")) + loaded_s(run))


@pytest.mark.parametrize("servers", [0, 1, 2])
@pytest.mark.parametrize("fit", ["best", "greedy"])
def test_lookahead_with_add_ons_runs_as_a_decision_at_every_step(
    fit: Any, servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inline without service GPUs. With them, those of a launch are free at each boundary for others that wait."""
    rng = np.random.default_rng(servers)
    times = np.cumsum(rng.integers(0, 6, 30) / 8.0)
    nets = [Addons(("canny", "depth")[: int(some)], ("ink",) * int(some == 1)) for some in rng.integers(0, 3, 30)]
    if servers == 1:
        nets = [Addons(each.controlnets[:1], each.loras) for each in nets]
    found = []
    for start in (Lookahead.start, lambda self, launch: None):
        monkeypatch.setattr(Lookahead, "start", start)
        run = run_stages(times, nets, 4, servers, EarliestDeadline(fit))
        found.append([column(run, name) for name in ("start_s", "finish_s", "worker", "load_s", "energy_j")])
    assert found[0] == found[1]


def loaded_s(run: Engine) -> float:
    """Return the GPU-seconds of groups that load add-ons."""
    counts, loads = run.cluster.gpu_counts(), [*spans(run, "controlnet"), *spans(run, "lora")]
    servers = {server.id for server in run.cluster.servers}
    return sum((until_s - from_s) * counts[worker] for from_s, until_s, worker in loads if worker not in servers)


class OnGpu(GroupPolicy):
    """Launches every request on one GPU."""

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu

    def bind(self, run: Run, view: StageView) -> None:
        self.view = view

    def decide(self, now_s: float) -> list[Launch]:
        return [Launch(each, (self.gpu,), each.left) for each in self.view.waiting]


def test_policy_that_launches_on_a_service_gpu_ends_the_run_with_its_name() -> None:
    with pytest.raises(SimulationError, match=r"OnGpu.* on the GPUs \(1,\); expected .* from 0 to 0"):
        run_stages([0.0], [ONE], 1, 1, OnGpu(1))


def test_degrees_without_enough_service_gpus_are_not_offered() -> None:
    """Two ControlNets on two GPUs take four service GPUs; with three, requests run on one GPU each."""
    for servers, degree in ((3, 1), (4, 2)):
        run = run_stages([0.0], [TWO], 2, servers, EarliestDeadline("greedy"))
        log = run.record.attempts
        assert log is not None
        assert {len(gpus) for gpus, name in zip(log.gpus, log.component, strict=True) if name == "whole"} == {degree}


def test_group_too_wide_for_its_service_gpus_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"allocation\.servers: .* 2 ControlNets need 4 service GPUs, and found 3"):
        run_stages([0.0], [TWO], 2, 3, FixedGroups("1x2"))


def test_request_with_more_controlnets_than_service_gpus_fails_alone() -> None:
    run = run_stages([0.0, 1.0], [TWO, ONE], 1, 1)
    assert column(run, "outcome") == [FAILED, COMPLETED]
    assert "need as many service GPUs, found 1" in run.record.request_columns.reasons[0]


@pytest.mark.parametrize(("memory", "outcome"), [(12, FAILED), (13, COMPLETED)])
def test_inline_controlnets_and_loras_must_fit_beside_the_model(memory: int, outcome: int) -> None:
    gpu = Gpu("small", 300.0, 60.0, "made up", memory_bytes=memory * GIB)
    run = run_stages([0.0], [Addons(("canny", "depth"), ("ink",))], 1, 0, gpu=gpu)
    assert column(run, "outcome") == [outcome]


def test_service_gpu_evicts_the_least_recently_used_controlnet() -> None:
    """It holds two: the third evicts the first, which is then loaded again, while the second stays."""
    gpu = Gpu("small", 300.0, 60.0, "made up", memory_bytes=5 * GIB)
    nets = [Addons((name,)) for name in ("canny", "depth", "pose", "depth", "canny")]
    with pytest.raises(SimulationError, match=r"takes 8\.6 GB"):
        run_stages(np.arange(5) * 50.0, nets, 1, 1, gpu=gpu)  # the model does not fit into so little
    gpu = Gpu("small", 300.0, 60.0, "made up", memory_bytes=8 * GIB)
    nets = [Addons((name,)) for name in ("canny", "depth", "pose", "tile", "seg", "depth", "canny")]
    run = run_stages(np.arange(7) * 50.0, nets, 1, 1, gpu=gpu)
    assert column(run, "load_s") == [2.0] * 5 + [0.0, 2.0]


def test_controlnets_that_do_not_stay_are_loaded_by_every_request() -> None:
    for servers, placement in ((1, ServiceGpus(keep_resident=False)), (0, InlineControlNets(keep_resident=False))):
        run = run_stages([0.0, 50.0], [ONE, ONE], 1, servers, controlnet_placement=placement)
        assert column(run, "load_s") == [2.0, 2.0]


def test_loras_are_loaded_before_the_first_step_unless_they_are_in_the_weights() -> None:
    ink, oil = Addons((), ("ink",)), Addons((), ("oil", "ink"))
    run = run_stages([0.0, 50.0, 100.0, 150.0], [ink, ink, oil, NONE], 1, 0)
    assert column(run, "load_s") == [1.0, 0.0, 2.0, 0.0]
    again = run_stages([0.0, 50.0], [ink, ink], 1, 0, lora_loading=SyncLoading(keep_resident=False))
    assert column(again, "load_s") == [1.0, 1.0]


class Elsewhere(ControlNetPlacement):
    """A placement that stages do not know."""

    def bind(self, run: Run, faster: Any) -> None: ...

    def load_addons(self, worker: Any, request: Any, active: Any) -> Any: ...

    def step(self, worker: Any, active: Any, plain: Cost, now_s: float) -> Cost:
        return plain


@pytest.mark.parametrize(
    ("parts", "servers", "said"),
    [
        ({"controlnet_placement": SharedServers()}, 0, "add allocation=controlnet-servers"),
        ({"controlnet_placement": Elsewhere()}, 1, "controlnet_placement: found .*Elsewhere"),
        ({"controlnet_placement": ServiceGpus()}, 0, "add allocation=controlnet-servers"),
    ],
)
def test_placements_that_stages_lack_are_refused(parts: Any, servers: int, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run_stages([0.0], [ONE], 1, servers, **parts)


SERVED = (
    "system=edf-best-fit", "models=sdxl", "cluster=h800", "trace=add-ons", "arrivals=poisson", "arrivals.rate_rpm=10",
    "trace.controlnets=2", "slo=[3]", "trace.requests=60", "addons=serve",
)  # fmt: skip


def test_swiftdiffusions_service_saves_what_inline_controlnets_take() -> None:
    """SDXL on 8 H800: medians of requests with two ControlNets; with LoRAs, and the same bytes for the same seed."""
    service = ("controlnet_placement=service", "allocation=controlnet-servers", "allocation.servers=6")
    p50_s = {}
    for name, asked in (
        ("service", service),
        ("inline", ("controlnet_placement=inline",)),
        ("none", ("addons=ignore",)),
    ):
        table = simulated(*SERVED, "trace.loras=0", *asked).requests.to_pandas()
        p50_s[name] = (table.finish_s - table.arrival_s).median()
    assert p50_s["none"] < p50_s["service"] < 1.3 * p50_s["none"] < p50_s["inline"]
    one, other = (simulated(*SERVED, "trace.loras=1", *service, "lora_loading=sync") for _ in range(2))
    assert one.requests.equals(other.requests)
    assert one.attempts is not None
    assert one.attempts.equals(other.attempts)
    assert (one.requests.to_pandas().load_s > 2.0).mean() > 0.5  # 3.35 s a LoRA, created and fused each time


def test_controlnets_stay_on_their_service_gpu_between_the_launches_of_a_request() -> None:
    for policy in (EarliestDeadline(), StepByStep()):
        run = run_stages([0.0], [ONE], 1, 1, policy, controlnet_placement=ServiceGpus(keep_resident=False))
        assert column(run, "load_s") == [2.0]
