"""LoRAs that are fetched while the first steps run, and merged at a step boundary on every GPU of the group."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from mezzotint.backends.base import Asset, Cost
from mezzotint.sim.addons.async_loading import AsyncLoading
from mezzotint.sim.addons.fetch import MeasuredFetch
from mezzotint.sim.addons.shared_link import SharedLink
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.clock import CONTROL
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import COMPLETED, FAILED, Addons
from mezzotint.sim.engine import Engine
from mezzotint.sim.metrics.recorder import LOADS
from mezzotint.sim.protocols import Controller, GroupPolicy, Launch, Run, StageView
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_groups import FixedGroups
from tests.sim.execution.stages import test_addons
from tests.sim.execution.stages.test_addons import BEGIN_S, END_S, NONE, STEP_S, STEPS, column, run_stages, spans
from tests.sim.execution.stages.test_life import StepByStep
from tests.sim.lab import simulated

MERGE_S, RESTORE_S = 0.25, 0.125
INK, OIL = Addons((), ("ink",)), Addons((), ("oil",))
ALL_S = BEGIN_S + STEPS * STEP_S + END_S


class LoraTimes(test_addons.AddonTimes):
    """A LoRA is merged in 0.25 s, and the weights are restored in 0.125 s."""

    def merge_loras(self, loras: Sequence[Asset]) -> Cost:
        return Cost(MERGE_S * len(loras))

    def read_lora(self, lora: Asset) -> Cost:
        return Cost(1.5)

    def restore_weights(self, loras: Sequence[Asset]) -> Cost:
        return Cost(RESTORE_S)


@pytest.fixture(autouse=True)
def lora_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_addons, "AddonTimes", LoraTimes)


def run_async(
    times: Any, asked: Sequence[Addons], gpus: int, policy: GroupPolicy, fetch_s: float = 1.5, **how: Any
) -> Engine:
    """A finished run whose files take ``fetch_s`` each."""
    settings = {name: how.pop(name) for name in ("max_steps_without", "keep_resident") if name in how}
    fetch = how.pop("fetch", None) or MeasuredFetch([fetch_s, fetch_s])
    return run_stages(times, asked, gpus, 0, policy, lora_loading=AsyncLoading(fetch, **settings), **how)


ADD_ONS = (
    "trace=add-ons", "models=sdxl", "cluster=h800", "cluster.count=4", "addons=serve", "arrivals=poisson", "slo=[3]",
    "trace.requests=80", "extrapolate=warn", "trace.loras=2", "system=diffusers", "lora_loading=async",
)  # fmt: skip


@pytest.mark.parametrize(
    "fetched",
    [
        ("lora_fetch=katz", "arrivals.rate_rpm=50", "trace.controlnets=1"),
        ("lora_fetch=katz-slow-storage", "arrivals.rate_rpm=50", "lora_loading.max_steps_without=5"),
        ("lora_fetch=shared-link", "arrivals.rate_rpm=60", "lora_fetch.bytes_per_s=4e8"),
        ("lora_fetch=node-disk", "arrivals.rate_rpm=60", "lora_fetch.remote.bytes_per_s=3e8"),
    ],
    ids=lambda fetched: fetched[0],
)
def test_pulled_requests_with_asynchronous_loras_run_as_continuous_batching(fetched: tuple[str, ...]) -> None:
    """On one GPU each, with a link that requests share, stalls at the bound, and weights that are restored after.

    The sums are made in another order, so they differ by rounding.
    """
    batches, stages = (
        simulated(*ADD_ONS, *fetched, *executor).requests.to_pandas()
        for executor in ((), ("executor=stages", "~executor.max_batch"))
    )
    names = ["start_s", "finish_s", "load_s", "denoise_s", "decode_s", "stall_s", "patch_step", "patch_s", "worker"]
    for name in names:
        assert stages[name].to_numpy() == pytest.approx(batches[name].to_numpy(), abs=1e-9, nan_ok=True), name
    assert stages.energy_j.to_numpy() == pytest.approx(batches.energy_j.to_numpy(), abs=1e-6)
    assert (stages.patch_step > 0).mean() > 0.5


@pytest.mark.parametrize(("degree", "step"), [(1, 2), (2, 3)])
def test_loras_are_merged_on_all_gpus_at_the_boundary_after_they_arrived(degree: int, step: int) -> None:
    """They arrive 1.25 s after the first step begins; the launch of all steps goes on without a pause."""
    run = run_async([0.0], [INK], degree, FixedGroups(f"1x{degree}"))
    step_s = STEP_S / degree
    assert column(run, "patch_step") == [step]
    assert column(run, "finish_s") == [BEGIN_S + STEPS * step_s + MERGE_S + END_S]
    assert column(run, "denoise_s") == [STEPS * step_s]
    assert column(run, "pauses") == [0]
    merged_s = BEGIN_S + step * step_s
    ((from_s, until_s, worker),) = spans(run, "boundary")
    assert (from_s, until_s) == (merged_s, merged_s + MERGE_S)
    assert run.cluster.gpu_counts()[worker] == degree
    log = run.record.attempts
    assert log is not None
    assert (list(log.steps), list(log.until_s)) == ([step, STEPS - step], [merged_s, column(run, "finish_s")[0]])


def test_loras_that_arrive_during_text_encoding_are_merged_before_the_first_step() -> None:
    run = run_async([0.0], [INK], 1, EarliestDeadline(), BEGIN_S / 2)
    assert column(run, "patch_step") == [0]
    assert column(run, "finish_s") == [ALL_S + MERGE_S]


@pytest.mark.parametrize(("bound", "stall_s"), [(1, 1.75), (2, 0.75), (3, 0.0), (20, 0.0)])
def test_group_waits_for_loras_at_the_bound(bound: int, stall_s: float) -> None:
    """They arrive at 3 s, and the steps end at 1.25, 2.25, 3.25 and 4.25 s."""
    run = run_async([0.0], [INK], 1, EarliestDeadline(), 3.0, max_steps_without=bound)
    assert column(run, "stall_s") == [stall_s]
    assert column(run, "patch_step") == [min(bound, 3)]
    assert column(run, "finish_s") == [ALL_S + stall_s + MERGE_S]


def test_weights_are_restored_after_the_image_and_before_the_next_request() -> None:
    for keep, restore_s in ((False, RESTORE_S), (True, 0.0)):
        run = run_async([0.0, 1.0], [INK, NONE], 1, EarliestDeadline(), keep_resident=keep)
        first_s = ALL_S + MERGE_S
        # If they stay, the next request takes them out before its first step.
        assert column(run, "load_s") == [0.0, RESTORE_S - restore_s]
        assert column(run, "start_s") == [0.0, first_s + restore_s]
        assert column(run, "finish_s") == [first_s, first_s + RESTORE_S + ALL_S]


class Moves(GroupPolicy):
    """Runs the first steps on some GPUs, and the others on other ones."""

    def __init__(self, first: tuple[int, ...], then: tuple[int, ...], steps: int) -> None:
        self.first, self.then, self.steps = first, then, steps

    def bind(self, run: Run, view: StageView) -> None:
        self.view = view

    def decide(self, now_s: float) -> Iterator[Launch]:
        for progress in list(self.view.waiting):
            if progress.done:
                yield Launch(progress, self.then, progress.left)
            else:
                yield Launch(progress, self.first, self.steps)


def test_moved_request_merges_without_another_fetch() -> None:
    """On the GPU that it left they stay in the weights, until another request takes them out."""
    run = run_async([0.0, 20.0], [INK, NONE], 2, Moves((0,), (1,), 3))
    assert column(run, "patch_step")[0] == 2
    assert column(run, "patch_s")[0] == 2 * MERGE_S
    assert column(run, "finish_s")[0] == ALL_S + 2 * MERGE_S
    assert len(run.record.logs[LOADS["lora"]].at_s) == 1
    assert column(run, "load_s") == [0.0, RESTORE_S]


def test_request_that_moves_before_its_loras_arrive_merges_them_where_it_is_then() -> None:
    """Half a step is left when they arrive; the GPU that it left has nothing to restore."""
    run = run_async([0.0, 20.0], [INK, NONE], 2, Moves((0,), (1,), 1))
    assert column(run, "patch_step")[0] == 2
    assert column(run, "patch_s")[0] == MERGE_S
    assert column(run, "finish_s")[0] == ALL_S + MERGE_S
    assert column(run, "load_s") == [0.0, 0.0]


def test_request_that_moves_to_gpus_with_its_loras_merges_nothing() -> None:
    """They stayed in the weights of GPU 1, where the first request ended."""
    run = run_async([0.0, 20.0], [INK, INK], 2, Moves((0,), (1,), 1), 2.5, keep_resident=True)
    assert column(run, "patch_s")[0] == MERGE_S
    assert np.isnan(column(run, "patch_s")[1])
    assert column(run, "finish_s")[1] == 20.0 + ALL_S


class Interrupts(Moves):
    """Runs all steps on some GPUs, interrupts them at an instant, and runs the others on other GPUs."""

    def __init__(self, at_s: float) -> None:
        super().__init__((0,), (1,), STEPS)
        self.at_s = at_s

    def arrived(self, progress: Progress, now_s: float) -> None:
        self.progress = progress
        self.view.decide_at(self.at_s)

    def decide(self, now_s: float) -> Iterator[Launch]:
        if now_s == self.at_s:
            self.left_s = self.view.remaining_s(self.progress, 1)
            self.view.interrupt(self.progress)
        yield from super().decide(now_s)


@pytest.mark.parametrize(
    ("at_s", "steps", "merged_on", "left_s"), [(2.0, 2, [1], 3 * STEP_S), (2.375, 3, [0, 1], 2 * STEP_S)]
)
def test_interruption_before_or_during_a_merge_ends_the_launch_at_its_next_boundary(
    at_s: float, steps: int, merged_on: list[int], left_s: float
) -> None:
    """The merge is due at 2.25 s. A launch that ends there leaves it to the next one; one that merges steps on."""
    policy = Interrupts(at_s)
    run = run_async([0.0], [INK], 2, policy)
    log = run.record.attempts
    assert log is not None
    assert (sum(log.steps[:-1]), log.gpus[-1]) == (steps, (1,))
    assert [worker for _, _, worker in spans(run, "boundary")] == merged_on
    assert column(run, "finish_s") == [ALL_S + len(merged_on) * MERGE_S]
    assert policy.left_s == left_s + END_S


class Follows(Moves):
    """Runs the first request on some GPUs, and the next on other ones."""

    follows_gpus = True

    def decide(self, now_s: float) -> Iterator[Launch]:
        for progress in list(self.view.waiting):
            yield Launch(progress, self.then if progress.request.row else self.first, progress.left)


class Orders(Controller):
    """Orders GPU 0 to the other role at an instant."""

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s

    def bind(self, run: Run) -> None:
        run.clock.at(self.at_s, CONTROL, lambda _: run.cluster.change_role(run.cluster.workers[0], "small", self.at_s))


@pytest.mark.parametrize(("at_s", "from_s"), [(3.0, 5.0), (5.0625, 5.125)])
def test_gpu_that_changes_its_model_is_restored_only_if_that_began(at_s: float, from_s: float) -> None:
    """The image is there at 5 s; the load of the other model takes the LoRAs out as well."""
    run = run_async([0.0, 20.0], [INK, NONE], 2, Follows((0,), (1,), STEPS), controllers=[Orders(at_s)])
    assert spans(run, "load")[0][0] == from_s
    assert len(spans(run, "after")) == (at_s > 5.0)


def test_of_a_group_only_the_gpus_that_stay_are_restored() -> None:
    run = run_async([0.0, 3.5], [INK, NONE], 3, Follows((0, 1), (2,), STEPS), controllers=[Orders(1.0)])
    image_s = BEGIN_S + STEPS * STEP_S / 2 + MERGE_S + END_S
    assert spans(run, "load")[0][0] == image_s
    assert spans(run, "after") == [(image_s, image_s + RESTORE_S, 1)]


@pytest.mark.parametrize(("loading", "outcome"), [(SyncLoading(), FAILED), (AsyncLoading(), COMPLETED)])
def test_loras_merged_in_place_need_no_memory(loading: Any, outcome: int) -> None:
    gpu = Gpu("small", 300.0, 60.0, "made up", memory_bytes=int(8.5 * test_addons.GIB))
    run = run_stages([0.0], [INK], 1, 0, gpu=gpu, lora_loading=loading)
    assert column(run, "outcome") == [outcome]


@pytest.mark.parametrize("fit", ["best", "greedy"])
@pytest.mark.parametrize("fetch", ["alone", "shared"])
@pytest.mark.parametrize("fails", [False, True])
def test_lookahead_with_asynchronous_loras_runs_as_a_decision_at_every_step(fit: Any, fetch: str, fails: bool) -> None:
    """Requests are preempted, move and change their degree while LoRAs are fetched, merged and restored."""
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.integers(0, 12, 60) / 8.0)
    asked = [(NONE, INK, OIL, Addons((), ("ink", "oil")))[some] for some in rng.integers(0, 4, 60)]
    names = ("start_s", "finish_s", "worker", "load_s", "patch_step", "patch_s", "stall_s", "energy_j")
    ours, theirs = (
        run_async(
            times, asked, 4, policy(fit), 1.5, fetch=SharedLink(0.25, 2**30) if fetch == "shared" else None,
            max_steps_without=3, keep_resident=not fails, migration_s=0.125 * (not fails),
            controllers=[Failures(mean_up_s=20.0, mean_down_s=5.0)] if fails else [],
        )
        for policy in (EarliestDeadline, StepByStep)
    )  # fmt: skip
    assert (np.array(column(ours, "outcome")) == COMPLETED).all()
    for name in names:
        assert column(ours, name) == pytest.approx(column(theirs, name), abs=1e-9, nan_ok=True), name
    assert fit == "greedy" or max(column(ours, "moves")) > 0


@pytest.mark.parametrize("at_s", [0.5, 2.375, 3.0, 5.0625])
def test_failed_gpu_ends_a_fetch_a_merge_and_a_restoration(at_s: float) -> None:
    """The files are fetched again; the memory of the GPU is empty after its repair, so there is nothing to restore."""
    failures = Failures({0: [(at_s, 10.0)]})
    run = run_async([0.0, 30.0], [INK, NONE], 1, EarliestDeadline(), controllers=[failures])
    is_done = at_s > 5.0
    again_s = 10.0 + test_addons.LOAD_S["model"]
    assert column(run, "finish_s")[0] == (0.0 if is_done else again_s) + ALL_S + MERGE_S
    assert column(run, "patch_step")[0] == 2
    assert column(run, "load_s") == [0.0, 0.0]
    assert sum(until_s - from_s for from_s, until_s, _ in spans(run, "after")) == (0.0 if is_done else RESTORE_S)
