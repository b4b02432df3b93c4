"""Batching by single steps, against static batches and queueing theory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.addons.kernels import Kernels
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.plan import DECLARED, Plan
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.workload import StandaloneLatency, Workload, standalone
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.feature_cache.steps import StepCaching
from mezzotint.sim.execution.same_size import SameSizeSteps
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.frontend.direct import Direct
from mezzotint.sim.protocols import Steps, Worker
from mezzotint.sim.scheduling.batching.dynamic import DynamicBatching
from mezzotint.sim.scheduling.disciplines.shortest_remaining import ShortestRemaining
from mezzotint.sim.scheduling.latency_predictor import Known
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastOutstanding
from mezzotint.traces.arrivals.base import Schedule
from tests.sim.lab import FixedTimes, configured, engine, simulated

STEPS = 50


class Stepped(FixedTimes):
    """One step of n images takes ``one_s + more_s (n - 1)``; preparing and decoding a request take fixed seconds."""

    by_row = False

    def __init__(self, one_s: float, more_s: float = 0.0, begin_s: float = 0.0, end_s: float = 0.0) -> None:
        super().__init__([])
        self.one_s, self.more_s, self.begin_s, self.end_s = one_s, more_s, begin_s, end_s

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(self.begin_s * len(works))

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        for work in works:
            work.done += count
        return Cost((self.one_s + self.more_s * (len(works) - 1)) * count)

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(self.end_s * len(works))


def stepped(times: Any, backend: Stepped, max_batch: int, count: int = 1, **parts: Any) -> Engine:
    """Run to the end with at most ``max_batch`` requests per worker."""
    times = np.asarray(times, float)
    run = engine(times, np.ones(len(times)), count, backend=backend, executor=ContinuousBatching(max_batch), **parts)
    run.run()
    return run


def columns_of(run: Engine, *names: str) -> list[Any]:
    return [run.record.request_columns[name].copy() for name in names]


@settings(max_examples=60)
@given(
    gaps=st.lists(st.floats(0, 30), min_size=1, max_size=40),
    one_s=st.floats(1e-3, 0.5),
    begin_s=st.sampled_from([0.0, 0.03, 0.1]),
    end_s=st.sampled_from([0.0, 0.139]),
    count=st.integers(1, 3),
)
def test_continuous_batching_of_one_equals_sequential_execution_exactly(
    gaps: list[float], one_s: float, begin_s: float, end_s: float, count: int
) -> None:
    times = np.cumsum(gaps)
    backend = Stepped(one_s, 1.0, begin_s, end_s)
    names = ("start_s", "finish_s", "denoise_s", "decode_s", "energy_j", "worker")
    whole = engine(times, np.ones(len(times)), count, backend=backend)
    whole.run()
    for mine, theirs in zip(
        columns_of(stepped(times, backend, 1, count), *names), columns_of(whole, *names), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("system", ["vanilla", "nirvana", "modm-throughput", "pinecone"])
def test_systems_with_max_batch_1_write_the_same_requests_as_sequential(system: str) -> None:
    asked = (f"system={system}", "trace.requests=500", "arrivals.rate_rpm=12")
    stepwise = simulated(*asked, "executor=continuous-batching", "executor.max_batch=1")
    assert stepwise.requests.equals(simulated(*asked).requests)


def brute(times: Sequence[float], step_counts: Sequence[int], backend: Stepped, max_batch: int) -> list[float]:
    """Return the finish of every request on one worker by simulating each step on its own."""
    finish = [0.0] * len(times)
    waiting = list(range(len(times)))
    active: dict[int, int] = {}
    now = 0.0
    while waiting or active:
        while waiting and times[waiting[0]] <= now and len(active) < max_batch:
            row = waiting.pop(0)
            active[row] = step_counts[row]
        if not active:
            now = times[waiting[0]]
            continue
        now += backend.one_s + backend.more_s * (len(active) - 1)
        for row in list(active):
            active[row] -= 1
            if not active[row]:
                del active[row]
                finish[row] = now
    return finish


@settings(max_examples=80)
@given(
    gaps=st.lists(st.integers(0, 40), min_size=1, max_size=30),
    max_batch=st.integers(1, 5),
    more=st.sampled_from([0, 1, 3]),
)
def test_jumping_over_steps_ends_where_single_steps_do(gaps: list[int], max_batch: int, more: int) -> None:
    """Steps take whole seconds and no two arrivals are whole seconds apart, so that none coincides with a boundary."""
    times = [float(t) + 0.01 * i for i, t in enumerate(np.cumsum(gaps))]
    backend = Stepped(1.0, float(more))
    run = stepped(times, backend, max_batch)
    finish = brute(times, [STEPS] * len(times), backend, max_batch)
    np.testing.assert_allclose(run.record.request_columns["finish_s"], finish, rtol=1e-12)
    spans = run.record.usage_log.spans()
    assert (spans["from_s"][1:] >= spans["until_s"][:-1]).all()
    assert spans["batch"].max() <= max_batch
    np.testing.assert_allclose(
        run.record.request_columns["step_share_s"].sum(), (spans["until_s"] - spans["from_s"]).sum()
    )
    np.testing.assert_allclose(run.record.request_columns["energy_j"].sum(), spans["joules"].sum())
    mean = run.record.request_columns["batch_mean"]
    assert ((mean >= 1) & (mean <= max_batch)).all()


def test_span_count_follows_batch_changes_and_not_steps() -> None:
    """A hundred times as many steps of a hundredth of the length give as many spans and the same finish."""
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(20.0, 500))
    spans = []
    for factor in (1, 100):
        shapes = tuple(np.full(len(times), value, np.int32) for value in (64, 64, STEPS * factor))
        run = stepped(times, Stepped(1.0 / factor, 0.5 / factor), 8, shapes=shapes, use_model_shape=False)
        spans.append(len(run.record.usage_log.spans()))
    assert spans[1] < 1.3 * spans[0]


def test_flat_step_cost_gives_every_request_its_standalone_latency() -> None:
    """Without a batching penalty the latency is the service time plus the rest of the step under way, below one
    step."""
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(10.0, 2000))
    run = stepped(times, Stepped(1.0), len(times))
    latency_s = run.record.request_columns["finish_s"] - run.record.request_columns["arrival_s"]
    assert (latency_s >= STEPS - 1e-9).all()
    assert (latency_s < STEPS + 1.0).all()


def test_step_cost_proportional_to_batch_matches_md1_processor_sharing() -> None:
    """M/D/1 with processor sharing has a mean sojourn of E[S] / (1 - rho) for every distribution of the service. The
    rest of the step under way at the arrival comes on top; it grows with the number of active requests."""
    rng = np.random.default_rng(2)
    rho, steps_s = 0.6, 0.02
    times = np.cumsum(rng.exponential(STEPS * steps_s / rho, 20_000))
    run = stepped(times, Stepped(steps_s, steps_s), 10_000)
    latency_s = (run.record.request_columns["finish_s"] - run.record.request_columns["arrival_s"])[2000:]
    expected_s = STEPS * steps_s / (1 - rho)
    means = latency_s[: len(latency_s) // 25 * 25].reshape(25, -1).mean(axis=1)
    error_s = 3.7 * means.std(ddof=1) / 5
    slice_s = steps_s * (1 + rho / (1 - rho))
    assert expected_s - error_s < means.mean() < expected_s + slice_s + error_s


class Patching(SameSizeSteps):
    """An add-on is loaded ``after_s`` after its request; the next boundary patches it in, in ``patch_s``."""

    __slots__ = ("after_s", "due", "interrupt", "patch_s", "run", "waits")

    def __init__(self, after_s: float, patch_s: float) -> None:
        super().__init__()
        self.after_s, self.patch_s = after_s, patch_s
        self.due = 0

    def bind(self, run: Any, cut: Any) -> None:
        super().bind(run, cut)
        self.run, self.interrupt = run, cut

    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        self.run.clock.at(now_s + self.after_s, 0, self.came, worker)
        return super().prepare(worker, request, now_s)

    def came(self, worker: Worker) -> None:
        self.due += 1
        self.interrupt(worker)

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        due, self.due = self.due, 0
        return Cost(self.patch_s * due)


def test_addon_arriving_mid_run_is_patched_at_the_next_step_boundary() -> None:
    """With steps of 1 s, an add-on loaded after 3.4 s is patched at 4 s in 0.5 s, so that 50 steps end at 50.5 s."""
    run = engine([0.0], [1.0], backend=Stepped(1.0), executor=ContinuousBatching(4, Patching(3.4, 0.5)))
    run.run()
    assert run.record.request_columns["finish_s"][0] == pytest.approx(50.5)
    spans = run.record.usage_log.spans()
    kinds = list(run.record.usage_log.kinds)
    timeline = [(kinds[s["kind"]], float(s["from_s"]), float(s["until_s"])) for s in spans]
    assert timeline == [("steps", 0.0, 4.0), ("boundary", 4.0, 4.5), ("steps", 4.5, 50.5)]
    assert run.record.request_columns["energy_j"][0] == pytest.approx(300 * 50.5)


class Unpatching(SameSizeSteps):
    """The work after an image occupies the GPU for another ``after_s``."""

    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        return super().finish(worker, request, now_s)[0], Cost(2.0)


def test_work_after_an_image_holds_the_gpu_but_not_the_image() -> None:
    run = engine([0.0, 0.0], [1.0] * 2, backend=Stepped(1.0), executor=ContinuousBatching(1, Unpatching()))
    run.run()
    assert run.record.request_columns["finish_s"].tolist() == [50.0, 102.0]
    assert run.record.request_columns["start_s"].tolist() == [0.0, 52.0]
    assert run.record.request_columns["energy_j"].tolist() == pytest.approx([300 * 52.0, 300 * 52.0])


def test_static_batch_runs_as_one_and_admits_no_later_request() -> None:
    """Three requests start together at 5 s and end at 5 + 50 x 2 s; the fourth starts then."""
    run = engine(
        [0.0, 1.0, 2.0, 50.0], [1.0] * 4, backend=Stepped(1.0, 0.5), executor=StaticBatch(8),
        scheduler=DynamicBatching(8, 5.0),
    )  # fmt: skip
    run.run()
    assert run.record.request_columns["start_s"].tolist() == [5.0, 5.0, 5.0, 105.0]
    assert run.record.request_columns["finish_s"].tolist() == [105.0, 105.0, 105.0, 155.0]
    assert run.record.request_columns["batch_mean"].tolist() == [3.0, 3.0, 3.0, 1.0]
    assert run.record.request_columns["energy_j"].tolist() == pytest.approx([300 * 100 / 3] * 3 + [300 * 50])


@settings(max_examples=60)
@given(
    gaps=st.lists(st.floats(0, 60), min_size=1, max_size=60),
    max_batch=st.integers(1, 6),
    max_wait_s=st.floats(0, 40),
    count=st.integers(1, 3),
)
def test_dynamic_batch_respects_max_batch_and_max_wait(
    gaps: list[float], max_batch: int, max_wait_s: float, count: int
) -> None:
    times = np.cumsum(gaps)
    run = engine(
        times, np.ones(len(times)), count, backend=Stepped(0.2, 0.1), executor=StaticBatch(6),
        scheduler=DynamicBatching(max_batch, max_wait_s),
    )  # fmt: skip
    run.run()
    spans = run.record.usage_log.spans()
    assert spans["batch"].sum() == len(times)
    assert spans["batch"].max() <= max_batch
    start_s, arrival_s = columns_of(run, "start_s", "arrival_s")
    assert (np.diff(start_s) >= 0).all()  # first in, first out
    for row in range(len(times)):
        if start_s[row] > arrival_s[row] + max_wait_s + 1e-9:  # past the maximum wait every worker was busy
            busy = (spans["from_s"] <= start_s[row] - 1e-9) & (spans["until_s"] > arrival_s[row] + max_wait_s + 1e-9)
            assert len(set(spans["worker"][busy])) == count


def test_max_batch_above_the_executor_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"scheduler\.max_batch: found 9; the executor takes 8"):
        simulated("system=static-batches", "scheduler.max_batch=9", "executor.max_batch=8", "trace.requests=20")


def test_request_that_skips_steps_leaves_its_static_batch_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hit skips 30 steps and shares 20 with a full request, which finishes alone."""
    backend = Stepped(1.0, 0.5)
    run = engine([0.0, 0.0], [1.0] * 2, backend=backend, executor=StaticBatch(2), scheduler=DynamicBatching(2, 1.0))
    assign = Engine.assign

    def skipping(run: Engine, request: Request, plan: Plan) -> None:
        assign(run, request, plan._replace(k=30, of_steps=50, source=DECLARED) if request.row else plan)

    monkeypatch.setattr(Engine, "assign", skipping)
    run.run()
    assert run.record.request_columns["finish_s"].tolist() == [60.0, 60.0]  # 20 steps of 1.5 s and 30 of 1 s
    assert run.record.request_columns["denoise_s"].tolist() == [60.0, 30.0]
    assert run.record.request_columns["step_share_s"].tolist() == [45.0, 15.0]


def test_mixed_sizes_share_a_step_on_a_profile_with_batches() -> None:
    """A profiled batch of three sizes is served, and is slower than an equal batch of one size."""
    common = ("cluster=h800", "trace.requests=300", "executor=continuous-batching", "extrapolate=warn", "shapes=trace")
    mixed = simulated(*common, "arrivals.rate_rpm=400").summary
    assert mixed["requests"]["completed"] == 300
    assert mixed["gpu"]["batch_mean"] > 1
    assert 0 < mixed["gpu"]["busy_fraction"] <= 1


def test_standalone_latency_follows_the_model_shape_or_the_trace_shapes() -> None:
    """Deadlines and savings rest on the standalone time, by the model's shape or by each row's own."""
    shapes = tuple(np.array(column, np.int32) for column in ([64, 128], [64, 64], [50, 25]))
    model = engine([0.0], [1.0]).models["large"]
    backend = Stepped(0.1, 0.0, 1.0, 2.0)
    native = standalone(backend, model, shapes, True)
    assert native.total_s.tolist() == [8.0, 8.0]
    own = standalone(backend, model, shapes, False)
    assert own.denoise_s.tolist() == [5.0, 2.5]
    work = Workload(Schedule(np.zeros(2)), shapes, own, deadline=2.0)
    assert list(work.limit_s) == [16.0, 11.0]
    assert isinstance(own, StandaloneLatency)
    assert configured()["slo"][0] == 2


# -- refusals, and calls of the backend ------------------------------------------------------------------------------


def live() -> Stepped:
    backend = Stepped(1.0)
    backend.live = True
    return backend


def test_live_backend_refuses_a_feature_cache() -> None:
    cache = StepCaching([0], STEPS, 0.1)
    with pytest.raises(ConfigError, match="a live backend computes every block; add feature_cache=none"):
        engine([0.0], [1.0], backend=live(), executor=ContinuousBatching(1, feature_cache=cache)).run()


class Unpriced(SameSizeSteps):
    """Its steps have costs that it does not predict."""

    price = Steps.price


@pytest.mark.parametrize("kernels", [None, Kernels()])
def test_batching_that_cannot_estimate_step_cost_is_refused_by_schedulers_that_need_it(kernels: Kernels | None) -> None:
    run = engine([0.0], [1.0], backend=Stepped(1.0), executor=ContinuousBatching(1, Unpriced(), kernels=kernels))
    run.run()
    assert run.record.request_columns["finish_s"].tolist() == [50.0]
    executor = ContinuousBatching(1, Unpriced(), kernels=kernels)
    scheduler = PerWorkerQueues(LeastOutstanding(), ShortestRemaining(executor, Known()))
    with pytest.raises(ConfigError, match="Unpriced cannot estimate the cost of a step, which the scheduler asks for"):
        engine([0.0], [1.0], backend=Stepped(1.0), executor=executor, scheduler=scheduler).run()


@pytest.mark.parametrize("runs", [True, False])
def test_price_probe_begins_its_works_on_a_live_backend_only(runs: bool) -> None:
    class Strict(Stepped):
        begun: Sequence[Work] = ()

        def begin(self, works: Sequence[Work]) -> Cost:
            self.begun = works
            return super().begin(works)

        def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
            assert (self.begun is works) == runs
            return super().steps(works, count)

    backend, executor = Strict(2.0, 1.0), ContinuousBatching(2)
    backend.live = runs
    run = engine([0.0], [1.0], backend=backend, executor=executor)
    run.open()
    assert executor.price([Work("large", 64, 64, 50) for _ in range(3)]).seconds == 4.0


def test_batch_draws_device_power_during_fetch_and_measured_power_during_steps() -> None:
    """Two requests batch 40 steps of 1.5 s at 100 W; the 3 s before them draw the GPU's 300 W."""

    class Measured(Stepped):
        def begin(self, works: Sequence[Work]) -> Cost:
            return Cost(0.0, 0.0)

        def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
            seconds = super().steps(works, count).seconds
            return Cost(seconds, 100.0 * seconds)

        end = begin

    run = engine(
        [0.0, 0.0], [1.0] * 2, backend=Measured(1.0, 0.5), executor=StaticBatch(2), scheduler=DynamicBatching(2, 1.0),
        frontend=Direct(skip_fraction=0.2, fetch_s=3.0),
    )  # fmt: skip
    run.run()
    columns = run.record.request_columns
    assert columns["finish_s"].tolist() == [63.0, 63.0]
    assert columns["energy_j"].tolist() == [(3 * 300 + 60 * 100) / 2] * 2


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_overhead_that_is_no_time_is_refused(seconds: float) -> None:
    run = stepped([0.0], Stepped(1.0), 1)
    (worker,) = run.cluster.workers
    with pytest.raises(SimulationError, match="expected 0 or more seconds"):
        run.executor.charge_overhead(worker, seconds)
