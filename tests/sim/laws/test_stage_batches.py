"""Batches of several requests on groups that change: costs, shares, moves, failures, and what is no batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import BackendError, Cost, Work
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.plan import MISSING, Plan, whole_stage
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import COMPLETED, Addons, Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView
from mezzotint.sim.scheduling.estimates import EstimateTable, Learnt, Scaled
from mezzotint.sim.scheduling.group_policies.tetriserve import TetriServe
from tests.sim import lab
from tests.sim.execution.stages.test_addons import column, run_stages, spans

STEPS = 6


class Batches(lab.FixedTimes):
    """A step takes ``step_s[batch - 1]`` on one GPU and half of it on two, encoding 1 s and decoding 2 s."""

    by_row = False

    def __init__(self, step_s: Sequence[float]) -> None:
        super().__init__([])
        self.step_s = step_s

    def group_sizes(self, model: str | None = None) -> list[int]:
        return [2]

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(1.0 * len(works))

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost | None:
        return Cost(self.step_s[batch - 1] / gpus)

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(2.0 * len(works))


class Together(GroupPolicy):
    """Launches all waiting requests, if they are at least ``size``, as one batch of ``steps`` steps."""

    def __init__(self, size: int = 1, steps: int = 1) -> None:
        self.size, self.steps = size, steps

    def bind(self, run: Run, view: StageView) -> None:
        self.view = view

    def decide(self, now_s: float) -> list[Launch]:
        waiting = list(self.view.waiting)
        if len(waiting) < self.size or self.view.claimed[0]:
            return []
        steps = min([self.steps, *(each.left for each in waiting)])
        return [Launch(waiting[0], (0,), steps, batch=tuple(waiting[1:]))]


def run_batches(times: Sequence[float], step_s: Sequence[float], policy: GroupPolicy, **how: Any) -> Engine:
    count, parts = how.pop("count", 2), how.pop("parts", {})
    estimates, side, backend = how.pop("estimates", Scaled()), how.pop("side", 64), how.pop("backend", Batches)
    run = lab.engine(
        np.array(times), np.ones(len(times)), count, backend=backend(step_s),
        executor=Stages(policy, estimates, **how), use_model_shape=False,
        shapes=tuple(np.full(len(times), value, np.int32) for value in (side, side, STEPS)), **parts,
    )  # fmt: skip
    run.run()
    return run


def test_batch_shares_its_steps_and_encodes_and_decodes_one_after_another() -> None:
    """3 encodings of 1 s, 6 steps of 1.5 s and 3 decodings of 2 s make 18 s, of which each request has a third."""
    run = run_batches([0.0] * 3, [1.0, 1.25, 1.5], Together(3, STEPS))
    assert column(run, "finish_s") == [18.0] * 3
    assert column(run, "denoise_s") == [9.0] * 3
    assert column(run, "decode_s") == [9.0] * 3
    assert column(run, "gpu_s") == [6.0] * 3
    log = run.record.attempts
    assert log is not None
    assert log.batch == [3] * 3
    assert column(run, "batch_mean") == [3.0] * 3
    drawn_j = run.record.usage_log.spans()["joules"].sum()
    assert sum(column(run, "energy_j")) == pytest.approx(drawn_j)
    assert len(set(column(run, "energy_j"))) == 1


def test_request_joins_a_running_batch_at_its_next_boundary() -> None:
    """The second comes in the first's third step, which ends at 4 s, and encodes for 1 s. Both run 3 steps of 1.5 s."""
    run = run_batches([0.0, 3.5], [1.0, 1.5], Together())
    assert column(run, "start_s") == [0.0, 4.0]
    assert column(run, "finish_s") == [4.0 + 1.0 + 3 * 1.5 + 2.0, 4.0 + 1.0 + 3 * 1.5 + 2.0 + 3 * 1.0 + 2.0]
    assert column(run, "batch_mean") == pytest.approx([(3 * 1.0 + 2 * 4.5) / 7.5, (2 * 4.5 + 3 * 1.0) / 7.5])


class OldestFirst(Together):
    """Names the first to arrive as the first of the batch."""

    def decide(self, now_s: float) -> list[Launch]:
        waiting = [] if self.view.claimed[0] else sorted(self.view.waiting, key=lambda item: item.submission_index)
        return [Launch(waiting[0], (0,), batch=tuple(waiting[1:]))] if waiting else []


@pytest.mark.parametrize("policy", [Together, OldestFirst])
def test_fetch_of_a_request_that_joins_delays_the_batch(policy: type[Together]) -> None:
    """Half of the steps are skipped, and the artifact takes 2 s to fetch. The second comes in the first's first step,
    which ends at 4 s, and both run two steps from 7 s on."""
    parts = {"frontend": Direct(skip_fraction=0.5, fetch_s=2.0)}
    run = run_batches([0.0, 3.5], [1.0, 1.5], policy(), parts=parts)
    both_s = 4.0 + 2.0 + 1.0 + 2 * 1.5 + 2.0
    assert column(run, "finish_s") == [both_s, both_s + 1.0 + 2.0]
    assert spans(run, "fetch") == [(0.0, 2.0, 0), (4.0, 6.0, 0)]


@settings(max_examples=40, deadline=None)
@given(gaps=st.lists(st.integers(0, 9), min_size=1, max_size=7), steps=st.integers(1, STEPS))
def test_batch_as_slow_as_its_requests_in_turn_keeps_a_gpu_busy_as_long(gaps: list[int], steps: int) -> None:
    times = np.cumsum(gaps).astype(float).tolist()
    linear = [1.0 + extra for extra in range(len(gaps))]
    alone = run_batches(times, linear, Alone())
    batched = run_batches(times, linear, Together(steps=steps))
    assert max(column(batched, "finish_s")) == pytest.approx(max(column(alone, "finish_s")))
    assert sum(column(batched, "gpu_s")) == pytest.approx(sum(column(alone, "gpu_s")))


class Alone(Together):
    """Launches the first waiting request with all its steps."""

    def decide(self, now_s: float) -> list[Launch]:
        waiting = [] if self.view.claimed[0] else list(self.view.waiting)
        return [Launch(each, (0,), each.left) for each in waiting[:1]]


class Meet(Together):
    """Runs one step of each of two requests on a GPU of its own, and the others as a batch on both GPUs."""

    def decide(self, now_s: float) -> list[Launch]:
        waiting = list(self.view.waiting)
        if any(self.view.claimed) or len(waiting) < 2:
            return []
        if not waiting[0].done:
            return [Launch(each, (gpu,)) for gpu, each in enumerate(waiting)]
        return [Launch(waiting[0], (0, 1), waiting[0].left, batch=tuple(waiting[1:]))]


@pytest.mark.parametrize(
    ("handover", "begin_s"),
    [("blocking", 2.0 + 2 * 3.0), ("background", 2.0 + 3.0)],
)
def test_latents_of_a_batch_move_to_its_group(handover: Any, begin_s: float) -> None:
    """One latent after another if both groups are busy with it; else both at once."""
    run = run_batches([0.0, 0.0], [1.0, 1.5], Meet(), migration_s=3.0, handover=handover)
    assert column(run, "finish_s") == [begin_s + 5 * 0.75 + 2 * 2.0] * 2
    assert column(run, "moves") == [1, 1]
    assert column(run, "degree_changes") == [1, 1]
    log = run.record.attempts
    assert log is not None
    moves = [each for each in zip(log.component, log.from_s, log.until_s, log.row, strict=True) if each[0] == "move"]
    assert moves == ([("move", 2.0, 5.0, 0), ("move", 5.0, 8.0, 1)] if handover == "blocking" else [])


def test_failed_gpu_loses_all_requests_of_its_batch() -> None:
    """At 4 s both are in their second step; GPU 0 is back at 10 s, and both begin anew."""
    failures = Failures({0: [(4.0, 10.0)]})
    run = run_batches([0.0, 0.0], [1.0, 1.5], Together(2), parts={"controllers": [failures]})
    assert column(run, "outcome") == [COMPLETED] * 2
    assert column(run, "start_s") == [10.0, 10.0]
    assert column(run, "finish_s") == [10.0 + 2 * 1.0 + 6 * 1.5 + 2 * 2.0] * 2
    log = run.record.attempts
    assert log is not None
    assert (log.from_s[0], log.until_s[0]) == (0.0, 3.5)


class MovesBehind(Together):
    """Runs a step of the first two on GPUs of their own, then moves both to GPU 2, which the third takes meanwhile."""

    def decide(self, now_s: float) -> list[Launch]:
        launches = []
        waiting = list(self.view.waiting)
        pair = [each for each in waiting if each.request.row < 2]
        if len(pair) == 2 and not pair[0].done:
            launches += [Launch(each, (gpu,)) for gpu, each in enumerate(pair)]
        elif len(pair) == 2:
            launches.append(Launch(pair[0], (2,), pair[0].left, batch=(pair[1],)))
        return launches + [Launch(each, (2,), each.left) for each in waiting if each.request.row == 2]


def test_failed_gpu_loses_all_latents_that_moved_there() -> None:
    """Both moves end at 8 s. The third runs on GPU 2 from then on, which fails at 12 s."""
    failures = Failures({2: [(12.0, 13.0)]})
    run = run_batches(
        [0.0, 0.0, 3.0], [1.0, 1.5], MovesBehind(), count=3, migration_s=3.0, parts={"controllers": [failures]}
    )
    assert column(run, "outcome") == [COMPLETED] * 3
    log = run.record.attempts
    assert log is not None
    before = zip(log.row, log.stage, log.until_s, strict=True)
    assert [row for row, stage, until_s in before if until_s <= 12.0 and stage != MISSING] == []


class Told(Together):
    """Encodes the first on GPU 0 and the others on GPU 1, then decides a batch of the others while GPU 0 is busy.

    It checks that it was told the stage of each waiting request.
    """

    def bind(self, run: Run, view: StageView) -> None:
        super().bind(run, view)
        self.stage = dict[Progress, str]()

    def arrived(self, progress: Progress, now_s: float) -> None:
        self.stage[progress] = progress.stage.component

    at_boundary = restarted = arrived

    def decide(self, now_s: float) -> list[Launch]:
        waiting = list(self.view.waiting)
        assert all(self.stage[each] == each.stage.component for each in waiting)
        if now_s <= 2.0 and len(waiting) < 3:
            return []
        if now_s <= 2.0 and waiting[0].stage.component == "denoiser":
            first, *others = sorted(waiting, key=lambda each: each.request.row)
            return [Launch(first, (0,), first.left), Launch(others[0], (0,), 2, batch=(others[1],))]
        return [Launch(each, (min(each.request.row, 1),), each.left) for each in waiting]


def test_policy_is_told_the_stage_of_all_that_leave_a_batch() -> None:
    """The batch of the second and third waits for GPU 0 when GPU 1 fails, which has both latents."""
    failures = Failures({1: [(3.0, 3.5)]})
    run = run_batches([0.0] * 3, [1.0, 1.5, 2.0], Told(), stages="disaggregated", parts={"controllers": [failures]})
    assert column(run, "outcome") == [COMPLETED] * 3
    log = run.record.attempts
    assert log is not None
    encoded = [row for row, what in zip(log.row, log.component, strict=True) if what == "text-encoder"]
    assert sorted(encoded) == [0, 1, 1, 2, 2]


class Regroups(Together):
    """Encodes and denoises each request on a GPU of its own for a step, then decides a batch while GPU 0 is busy."""

    def decide(self, now_s: float) -> list[Launch]:
        waiting = list(self.view.waiting)
        if len(waiting) == 3 and not any(self.view.claimed):
            if waiting[0].stage.component != "denoiser":
                return [Launch(each, (gpu,), each.left) for gpu, each in enumerate(waiting)]
            blocker, *others = waiting
            return [Launch(blocker, (0,), blocker.left), Launch(others[0], (0,), 2, batch=(others[1],))]
        return [Launch(each, (gpu,), each.left) for gpu, each in zip(self.view.idle(), waiting, strict=False)]


@pytest.mark.parametrize("fails", [1, 2])
def test_request_that_begins_anew_leaves_the_batch_that_waits(fails: int) -> None:
    """The batch of the second and third waits for GPU 0 when the GPU with one of the latents fails."""
    failures = Failures({fails: [(3.0, 3.5)]})
    run = run_batches(
        [0.0] * 3, [1.0, 1.5, 2.0], Regroups(), count=3, stages="disaggregated", parts={"controllers": [failures]}
    )
    assert column(run, "outcome") == [COMPLETED] * 3
    log = run.record.attempts
    assert log is not None
    encoded = [row for row, what in zip(log.row, log.component, strict=True) if what == "text-encoder"]
    assert sorted(encoded) == sorted([0, 1, 2, fails])


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"side": [64, 128]}, "expected the same model, size and stage"),
        ({"stages": "disaggregated"}, "of a denoiser"),
    ],
)
def test_unlike_requests_are_no_batch(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(SimulationError, match=said):
        run_batches([0.0, 0.0], [1.0, 1.5], Together(2), **parts)


def test_requests_with_addons_are_no_batch() -> None:
    with pytest.raises(SimulationError, match="no ControlNets and LoRAs"):
        run_stages([0.0] * 2, [Addons(("canny",))] * 2, 2, 1, Together(2))


def test_batch_without_addons_replaces_the_loras_of_a_request_before() -> None:
    lora, plain = Addons((), ("ink",)), None
    asked: list[Any] = [lora, plain, plain]
    run = run_stages([0.0, 1.0, 1.0], asked, 1, 0, Together(steps=4), lora_loading=SyncLoading(keep_resident=True))
    assert column(run, "batch_mean") == [1.0, 2.0, 2.0]


class SomeImages(Direct):
    """Every second request starts from an image."""

    def admit(self, request: Request, now_s: float) -> float:
        run, plan = self._run, self._plan
        run.assign(request, plan._replace(skip_fraction=0.5, refine=bool(request.row % 2)))
        return 0.0


def test_request_from_an_image_is_in_no_batch_with_one_from_noise() -> None:
    """Its image is encoded in its first step, which takes longer."""
    with pytest.raises(SimulationError, match="both or none from an image"):
        run_batches([0.0, 0.0], [1.0, 1.5], Together(2), parts={"frontend": SomeImages()})
    run = run_batches([0.0] * 2, [1.0, 1.5], Denoises(), stages="disaggregated", parts={"frontend": SomeImages()})
    assert column(run, "outcome") == [COMPLETED] * 2


class Denoises(Together):
    """Launches both requests as a batch at the denoiser, and other stages alone."""

    def decide(self, now_s: float) -> list[Launch]:
        waiting = list(self.view.waiting)
        both = [each for each in waiting if each.stage.component == "denoiser"]
        others = [Launch(each, (0,), each.left) for each in waiting if each not in both]
        return others + ([Launch(both[0], (0,), both[0].left, batch=(both[1],))] if len(both) == 2 else [])


class Twice(Together):
    """Launches a request in its own batch."""

    def decide(self, now_s: float) -> list[Launch]:
        return [Launch(each, (0,), batch=(each,)) for each in list(self.view.waiting)[:1]]


class TooFar(Together):
    """Runs a step of the first request, then all steps of the second in one batch with it."""

    def decide(self, now_s: float) -> list[Launch]:
        waiting = [] if self.view.claimed[0] else sorted(self.view.waiting, key=lambda each: each.done)
        if len(waiting) == 2:
            return [Launch(waiting[0], (0,), STEPS, batch=(waiting[1],))]
        return [Launch(each, (0,)) for each in waiting]


def test_batch_that_cannot_be_ends_the_run_with_the_policys_name() -> None:
    with pytest.raises(SimulationError, match=r"Twice\) launches .* in a batch, which does not wait"):
        run_batches([0.0], [1.0], Twice())
    with pytest.raises(SimulationError, match=r"TooFar\) launches 6 steps .* in a batch; expected 1 to 4"):
        run_batches([0.0, 2.5], [1.0, 1.5], TooFar(2))


@pytest.mark.parametrize("batch", [None, 1, "both"])
def test_batch_is_a_tuple(batch: Any) -> None:
    class Odd(Together):
        def decide(self, now_s: float) -> list[Launch]:
            waiting = list(self.view.waiting)
            return [Launch(waiting[0], (0,), batch=waiting[1:] if batch == "both" else batch)] if waiting[1:] else []

    with pytest.raises(SimulationError, match=r"Odd\) launches .* with the batch .*; expected a tuple of requests"):
        run_batches([0.0, 0.0], [1.0, 1.5], Odd())


class ByRow(Batches):
    """Encoding and decoding take 10 s times the row and a typical request's."""

    by_row = True

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(1.0 + 10.0 * max(works[0].row, 0))

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(2.0 + 10.0 * max(works[0].row, 0))


def test_batch_takes_typical_seconds_whatever_its_rows() -> None:
    run = run_batches([0.0, 1.0, 1.0], [1.0, 1.5], Together(steps=STEPS), backend=ByRow)
    assert column(run, "finish_s")[1:] == [9.0 + 2 * 1.0 + STEPS * 1.5 + 2 * 2.0] * 2


class Metered(Batches):
    """A step draws 50 W for each request of its batch."""

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost | None:
        seconds = self.step_s[batch - 1] / gpus
        return Cost(seconds, 50.0 * batch * seconds)


def test_lost_work_of_a_batch_draws_the_power_of_the_batch() -> None:
    failures = Failures({0: [(4.0, 10.0)]})
    run = run_batches([0.0, 0.0], [1.0, 1.5], Together(2, STEPS), backend=Metered, parts={"controllers": [failures]})
    log = run.record.usage_log
    lost = log.spans()[log.spans()["kind"] == log.kinds["lost"]]
    assert lost["joules"].tolist() == [4.0 * 2 * 50.0]


class Pairs(Together):
    """Launches each two waiting requests as a batch on an idle GPU, with all their steps."""

    def decide(self, now_s: float) -> list[Launch]:
        waiting, idle = list(self.view.waiting), self.view.idle()
        return [Launch(waiting[0], (idle[0],), STEPS, batch=(waiting[1],))] if idle and len(waiting) == 2 else []


def test_estimate_of_a_batch_is_that_of_its_begin() -> None:
    """The first pair ends at 15 s, and what it took is learnt before the second pair ends at 16 s."""
    run = run_batches([0.0, 0.0, 1.0, 1.0], [1.0, 1.5], Pairs(), estimates=Learnt(prior_s=4.0))
    assert column(run, "estimate_s") == [STEPS * 4.0] * 4


class Sized(Batches):
    """A batch takes 10 GB for each of its requests."""

    def peak_bytes(self, works: Sequence[Work]) -> int | None:
        return len(works) * 10**10


@pytest.mark.parametrize("policy", [Together(3), TetriServe(round_s=12.0, max_batch=3)])
def test_batch_that_does_not_fit_into_memory_ends_the_run(policy: GroupPolicy) -> None:
    gpu = Gpu("test", 300.0, 60.0, "made up", memory_bytes=20 * 10**9)
    with pytest.raises(
        SimulationError, match=r"a batch of 3 .* takes 30.0 GB of the 20.0 GB of a test; lower the batch"
    ):
        run_batches([0.0] * 3, [1.0, 1.1, 1.2], policy, count=1, backend=Sized, parts={"gpu": gpu})


def test_learnt_estimates_learn_each_batch_apart() -> None:
    learnt = Learnt(prior_s=4.0)
    run = run_batches([0.0, 1.0, 2.0], [1.0, 1.5], Together(steps=STEPS), estimates=learnt)
    request, stage = run.request(0, 0.0), whole_stage(STEPS)[0]
    run.assign(request, Plan("large"))
    alone_s, together_s = (learnt.cost(request, stage, 1, others).step_s for others in ((), (request,)))
    assert alone_s == pytest.approx((4.0 + 1.0 + 6 * 1.0 + 2.0) / (1 + STEPS))
    assert together_s == pytest.approx((4.0 + 2 * 1.0 + 6 * 1.5 + 2 * 2.0) / (1 + STEPS))


def test_table_of_requests_alone_knows_no_batch() -> None:
    with pytest.raises(ConfigError, match=r"a batch of 2 was asked for"):
        run_batches([0.0, 0.0], [1.0, 1.5], Together(2), estimates=EstimateTable({"64x64": 3.0}))


def test_batch_on_a_group_is_as_much_faster_as_one_request() -> None:
    backend = Profiled("h100")
    work = Work("sdxl", 1024, 1024, 50)
    one, four = (backend.group_step(work, gpus, 4) for gpus in (1, 2))
    assert one is not None
    assert four is not None
    assert one.seconds / four.seconds == pytest.approx(0.091 / 0.0561728)
    assert any("2 GPUs of h100 in batches above 1" in each.what for each in backend.assumptions())
    with pytest.raises(BackendError, match="outside the measured grid"):
        backend.group_step(work, 1, 17)


def test_tetriserve_batches_requests_without_a_gpu_if_no_deadline_suffers() -> None:
    """Four requests of 6 steps of 1 s on one GPU; a step of four takes 1.5 s. Encoding and decoding take 3 s each."""
    step_s = [1.0, 1.1, 1.3, 1.5]
    finish = {}
    for max_batch, limit_s in ((1, 100.0), (4, 100.0), (4, 14.5)):
        run = run_batches(
            [0.0] * 4, step_s, TetriServe(round_s=12.0, max_batch=max_batch), count=1,
            parts={"own_deadline_s": np.full(4, limit_s)},
        )  # fmt: skip
        finish[max_batch, limit_s] = column(run, "finish_s")
    assert max(finish[4, 100.0]) < 0.8 * max(finish[1, 100.0])
    assert finish[4, 14.5][0] <= 14.5  # a batch of four would end later than that


@settings(max_examples=30, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 8), min_size=1, max_size=10),
    limit_s=st.sampled_from([12.0, 20.0, 60.0, 1000.0]),
    max_batch=st.integers(2, 4),
    how=st.sampled_from([{}, {"stages": "disaggregated"}, {"migration_s": 1.0}, {"launch_s": 0.5, "forming_s": 1.0}]),
)
def test_tetriserve_serves_every_request_once_in_batches(
    gaps: list[int], limit_s: float, max_batch: int, how: dict[str, Any]
) -> None:
    times = np.cumsum(gaps).astype(float).tolist()
    side = np.where(np.arange(len(gaps)) % 3 == 0, 128, 64)
    run = run_batches(
        times, [1.0, 1.2, 1.4, 1.6], TetriServe(round_s=8.0, max_batch=max_batch), side=side,
        parts={"own_deadline_s": np.full(len(gaps), limit_s)}, **how,
    )  # fmt: skip
    log = run.record.attempts
    assert log is not None
    assert max(log.batch) <= max_batch
    rows, steps = np.array(log.row), np.array(log.steps)
    denoised = np.isin(log.component, ("whole", "denoiser"))
    assert np.bincount(rows[denoised], steps[denoised]).tolist() == [STEPS] * len(gaps)
