"""GPU failures: running requests restart or fail, resident models load again, and no request is lost."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Asset, Cost, Work, WorkFailed
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.request import COMPLETED, FAILED, Request
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.same_size import SameSizeSteps
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.protocols import Executor, Run, Worker
from mezzotint.sim.scheduling.batching.dynamic import DynamicBatching
from mezzotint.sim.scheduling.batching.mlperf import MlperfBatching
from mezzotint.sim.scheduling.disciplines.shortest_remaining import ShortestRemaining
from mezzotint.sim.scheduling.fcfs import Fcfs
from mezzotint.sim.scheduling.latency_predictor import Known
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import RoundRobin
from tests.sim.cluster.test_cluster import Acts
from tests.sim.execution.test_continuous_batching import Patching, Stepped
from tests.sim.lab import FixedTimes, engine, simulated
from tests.sim.scheduling.disciplines.test_slack import UNIT, MixedTimes
from tests.sim.scheduling.test_disciplines import served as shortest

POWER_W = 300.0


def spans(run: Any, kind: str) -> list[tuple[float, float, float]]:
    """Return (from, until, joules) of every span of a kind."""
    usage_log = run.record.usage_log
    found = usage_log.spans()
    mine = found[found["kind"] == usage_log.kinds.get(kind, -1)]
    return [(each["from_s"], each["until_s"], each["joules"]) for each in mine]


@pytest.mark.parametrize(("lost", "finish_s"), [("again", [12.0, 22.0]), ("failed", [4.0, 19.0])])
def test_request_on_a_failed_gpu_restarts_or_fails(lost: Any, finish_s: list[float]) -> None:
    """A GPU with requests of 10 s fails at 4 s, is repaired at 6 s and loads for 3 s. The second request waits from 1 s
    on and so overtakes the first, which is queued again at the end."""
    run = engine(
        [0.0, 1.0],
        [10.0, 10.0],
        backend=FixedTimes([10.0, 10.0], 3.0),
        controllers=[Failures({0: [(4.0, 6.0)]}, lost=lost)],
    )
    run.run()
    columns = run.record.request_columns
    ends = [29.0, 19.0] if lost == "again" else finish_s
    assert columns["finish_s"].tolist() == ends
    assert columns["outcome"].tolist() == [COMPLETED if lost == "again" else FAILED, COMPLETED]
    assert spans(run, "lost") == [(0.0, 4.0, 4 * POWER_W)]
    assert spans(run, "load") == [(6.0, 9.0, 3 * POWER_W)]
    if lost == "failed":
        assert run.record.request_columns.reasons == {0: "GPU 0 failed"}


class Metered(FixedTimes):
    """Draws 100 J per second of denoising, and 50 J for a load of 5 s."""

    def load(self, asset: Asset) -> Cost:
        return Cost(self.swap_s, 10.0 * self.swap_s)

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(0.0, 0.0)

    end = begin

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        seconds = super().steps(works, count).seconds
        return Cost(seconds, 100.0 * seconds)


@pytest.mark.parametrize("role", ["large", "small"])
def test_lost_batch_draws_energy_in_proportion_to_the_time_it_ran(role: str) -> None:
    """A batch of two of 10 s is lost at 4 s. If it first loads the large model for 5 s, it is 15 s and 1050 J."""
    run = engine(
        [0.0, 0.0], [10.0, 10.0], roles=[role], backend=Metered([10.0, 10.0], 5.0), executor=StaticBatch(2),
        scheduler=DynamicBatching(2), controllers=[Failures({0: [(4.0, 6.0)]}, lost="failed")],
    )  # fmt: skip
    run.run()
    ((_, until_s, joules),) = spans(run, "lost")
    assert until_s == 4.0
    assert joules == pytest.approx(400.0 if role == "large" else 1050.0 * 4 / 15)


def test_load_on_a_failed_gpu_stops_and_restarts_after_repair() -> None:
    def order(run: Any, now_s: float) -> None:
        run.cluster.change_role(run.cluster.workers[0], "small", now_s)

    run = engine(
        [0.0, 50.0],
        [1.0, 1.0],
        2,
        backend=FixedTimes([1.0, 1.0], 20.0),
        controllers=[Acts((10.0, order)), Failures({0: [(15.0, 30.0)]})],
    )
    run.run()
    assert spans(run, "load") == [(10.0, 15.0, 5 * POWER_W), (30.0, 50.0, 20 * POWER_W)]
    assert run.cluster.workers[0].model == "small"


def test_order_to_a_failed_gpu_is_loaded_after_repair() -> None:
    def order(run: Any, now_s: float) -> None:
        run.cluster.change_role(run.cluster.workers[0], "small", now_s)

    run = engine(
        [0.0, 60.0], [1.0, 1.0], 2, backend=FixedTimes([1.0, 1.0], 20.0),
        controllers=[Failures({0: [(5.0, 30.0)]}), Acts((10.0, order))],
    )  # fmt: skip
    run.run()
    assert spans(run, "load") == [(30.0, 50.0, 20 * POWER_W)]
    assert run.cluster.workers[0].model == run.cluster.workers[0].role == "small"


class Counting(RoundRobin):
    """Counts the outstanding requests of each worker."""

    def bind(self, run: Run) -> None:
        super().bind(run)
        self.outstanding: Counter[int] = Counter()

    def sent(self, worker: Worker, request: Request, now_s: float) -> None:
        self.outstanding[worker.id] += 1

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        self.outstanding[worker.id] -= 1


EXECUTORS = {
    "whole": lambda: (Sequential(), Fcfs()),
    "batch": lambda: (StaticBatch(4), DynamicBatching(4, 3.0)),
    "steps": lambda: (ContinuousBatching(4), Fcfs()),
    "server": lambda: (StaticBatch(4), MlperfBatching(4, 3.0)),
    "routed": lambda: (Sequential(), PerWorkerQueues(Counting())),
}


@settings(max_examples=50)
@given(
    st.integers(0, 2**32),
    st.sampled_from(sorted(EXECUTORS)),
    st.integers(1, 4),
    st.sampled_from(["again", "failed"]),
    st.floats(30.0, 300.0),
)
def test_every_executor_survives_gpu_failures_at_any_time(
    seed: int, how: str, gpus: int, lost: Any, mean_up_s: float
) -> None:
    """The engine raises if a request is lost or a GPU is busy twice; the usage log holds every second."""
    rng = np.random.default_rng(seed)
    rows = 60
    seconds = rng.exponential(4.0, rows) + 0.1
    executor, scheduler = EXECUTORS[how]()
    run = engine(
        np.cumsum(rng.exponential(3.0, rows)),
        seconds,
        gpus,
        backend=FixedTimes(seconds.tolist(), 1.5),
        executor=executor,
        scheduler=scheduler,
        controllers=[Failures(mean_up_s=mean_up_s, mean_down_s=4.0, lost=lost)],
        seed=seed,
    )
    run.run()
    columns = run.record.request_columns
    failed = columns["outcome"] == FAILED
    assert len(scheduler) == 0
    if isinstance(scheduler, PerWorkerQueues):
        assert not +scheduler.router.outstanding  # type: ignore[attr-defined]
    assert not failed.any() or lost == "failed"
    done = ~failed
    assert (columns["finish_s"][done] >= columns["start_s"][done] + 0.99 * columns["denoise_s"][done]).all()
    for worker in range(gpus):
        found = run.record.usage_log.spans()
        mine = np.sort(found[found["worker"] == worker], order="from_s")
        assert (mine["from_s"][1:] >= mine["until_s"][:-1] - 1e-9).all()
    if how == "whole":
        served = sum(until - start for start, until, _ in spans(run, "serve"))
        assert served == pytest.approx(seconds[done].sum())


def test_preempted_request_on_a_failed_gpu_restarts() -> None:
    """The long request is preempted after 20 of 100 steps by one of 10, of which 5 are done when the GPU fails for 5
    units. The short one then makes all 10 steps, and the long one all 100."""
    run = shortest(
        lambda executor: ShortestRemaining(executor, Known()), MixedTimes(1, 0, 0), [0.0, 20 * UNIT], [64,
        64], [100, 10], 1,
        controllers=[Failures({0: [(25 * UNIT, 30 * UNIT)]})],
    )  # fmt: skip
    assert run.record.request_columns["finish_s"].tolist() == [140 * UNIT, 40 * UNIT]
    assert run.record.request_columns["denoise_s"].tolist() == [100 * UNIT, 10 * UNIT]
    assert spans(run, "lost") == [(20 * UNIT, 25 * UNIT, 5 * UNIT * POWER_W)]


def test_request_waiting_for_a_failed_gpu_preempts_nothing() -> None:
    """Both requests arrive while the only GPU is down; the shorter one is served first after the repair."""
    run = shortest(
        lambda executor: ShortestRemaining(executor, Known()), MixedTimes(256, 0, 0), [1.0, 2.0], [64, 64],
        [9, 3], 1,
        controllers=[Failures({0: [(0.5, 5.0)]})],
    )  # fmt: skip
    assert run.record.request_columns["finish_s"].tolist() == [17.0, 8.0]


class LossRecorder(SameSizeSteps):
    """Records the requests reported as lost."""

    def __init__(self) -> None:
        super().__init__()
        self.lost_rows: list[int] = []

    def request_lost(self, worker: Worker, request: Request) -> None:
        self.lost_rows.append(request.row)


def test_batching_is_notified_of_every_lost_request_including_unstarted() -> None:
    """Three requests of 8 s and a GPU with a batch of two, which fails at 2 s; the third still waits and is not
    running."""
    batching = LossRecorder()
    run = engine(
        [0.0, 1.5, 1.5], [8.0] * 3, executor=ContinuousBatching(2, batching), scheduler=Fcfs(),
        controllers=[Failures({0: [(2.0, 3.0)]})],
    )  # fmt: skip
    run.run()
    assert sorted(batching.lost_rows) == [0, 1]
    assert (run.record.request_columns["outcome"] == COMPLETED).all()


def test_gpu_that_fails_before_its_first_request_loses_nothing() -> None:
    run = engine([50.0], [8.0], executor=ContinuousBatching(2), controllers=[Failures({0: [(1.0, 2.0)]})])
    run.run()
    assert run.record.request_columns["finish_s"].tolist() == [pytest.approx(58.0)]
    assert spans(run, "lost") == []


@pytest.mark.parametrize("executor", [ContinuousBatching(2), StaticBatch(2), Sequential()])
def test_request_assigned_at_the_instant_of_failure_has_not_started(executor: Any) -> None:
    """The GPU is repaired at 2 s, has loaded at 4 s, takes the waiting request, and fails at that instant."""
    run = engine(
        [1.5], [8.0], backend=FixedTimes([8.0], 2.0), executor=executor,
        controllers=[Failures({0: [(1.0, 2.0), (4.0, 6.0)]})],
    )  # fmt: skip
    run.run()
    assert run.record.request_columns["start_s"].tolist() == [8.0]
    assert run.record.request_columns["finish_s"].tolist() == [pytest.approx(16.0)]
    assert sum(until - start for start, until, _ in spans(run, "lost")) == 0.0
    assert [each[:2] for each in spans(run, "load")] == [(2.0, 4.0), (6.0, 8.0)]


def test_addon_arriving_for_a_failed_gpu_changes_nothing() -> None:
    """The add-on arrives 3.4 s after each of two starts: first while the GPU is down, then three steps after it started
    again."""
    run = engine(
        [0.0], [1.0], backend=Stepped(1.0), executor=ContinuousBatching(4, Patching(3.4, 0.5)),
        controllers=[Failures({0: [(2.0, 10.0)]})],
    )  # fmt: skip
    run.run()
    assert run.record.request_columns["finish_s"].tolist() == [pytest.approx(61.0)]
    assert [each[:2] for each in spans(run, "boundary")] == [(10.0, 10.5), (pytest.approx(13.5), pytest.approx(14.0))]


class Choosy(FixedTimes):
    """Cannot run a batch that includes row 1."""

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        if any(work.row == 1 for work in works):
            raise WorkFailed("row 1 cannot be run")
        return super().steps(works, count)


@pytest.mark.parametrize(("lost", "failed"), [("again", "row 1 cannot be run"), ("failed", "GPU 0 failed")])
def test_batch_that_cannot_run_is_lost_if_its_gpu_fails_during_the_load(lost: Any, failed: str) -> None:
    """Two requests start at 0 s and load another model for 5 s, after which the batch would prove impossible. The GPU
    fails at 3 s. Queued again at 4 s, they load again and fail for their own reason."""
    run = engine(
        [0.0, 0.0, 30.0], [8.0] * 3, backend=Choosy([8.0] * 3, 5.0), executor=StaticBatch(2), roles=["small"],
        scheduler=DynamicBatching(2, 1.0), controllers=[Failures({0: [(3.0, 4.0)]}, lost=lost)],
    )  # fmt: skip
    run.run()
    columns = run.record.request_columns
    assert columns["outcome"].tolist() == [FAILED, FAILED, COMPLETED]
    assert columns.reasons == {0: failed, 1: failed}
    assert spans(run, "lost") == [(0.0, 3.0, 3 * POWER_W)]
    assert columns["finish_s"][:2].tolist() == ([14.0] * 2 if lost == "again" else [3.0] * 2)


def test_mean_uptime_below_the_service_time_ends_the_run_with_advice() -> None:
    """A run without running or ended requests for a thousand samples is ended."""
    failures = Failures(mean_up_s=1.0, mean_down_s=10_000.0)
    run = engine([0.0, 0.0], [100.0] * 2, controllers=[failures])
    with pytest.raises(SimulationError, match=r"0 ended; .* GPUs failed \d+ times; raise failures.mean_up"):
        run.run()


def test_same_seed_gives_the_same_failures() -> None:
    words = (
        "failures=random",
        "failures.mean_up_s=900",
        "trace.requests=150",
        "arrivals.rate_rpm=9",
        "cluster.count=4",
    )
    one, other = (simulated(*words) for _ in range(2))
    assert one.requests.equals(other.requests)
    assert one.summary["requests"]["completed"] == 150
    assert one.summary["gpu"]["switches"] > 0
    assert any(each["what"] == "GPUs that are down draw" for each in one.summary["assumptions"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"outages": {0: [(5.0, 2.0)]}}, r"failures\.outages\.0"),
        ({"outages": {0: []}}, r"failures\.outages\.0"),
        ({"outages": {0: [(0.0, 9.0), (4.0, 12.0)]}}, r"failures\.outages\.0"),
        ({"outages": {0: [(0.0, float("inf"))]}}, r"failures\.outages\.0"),
    ],
)
def test_malformed_outages_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Failures(**setting)


def test_outage_of_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(ConfigError, match="found GPU 3, expected 0 to 1"):
        engine([0.0], [1.0], 2, controllers=[Failures({3: [(1.0, 2.0)]})]).run()


def test_failing_a_failed_gpu_or_repairing_a_running_one_is_refused() -> None:
    def twice(run: Any, now_s: float) -> None:
        run.fail(run.cluster.workers[0])
        run.fail(run.cluster.workers[0])

    def repaired(run: Any, now_s: float) -> None:
        run.cluster.repair(run.cluster.workers[0], now_s)

    with pytest.raises(SimulationError, match=r"fails worker 0 \(large\), which failed and is not back"):
        engine([0.0], [5.0], controllers=[Acts((1.0, twice))]).run()
    with pytest.raises(SimulationError, match="which is not down"):
        engine([0.0], [5.0], controllers=[Acts((1.0, repaired))]).run()


def test_executor_without_abort_is_refused_when_a_gpu_fails() -> None:
    class Stubborn(Sequential):
        abort = Executor.abort

    with pytest.raises(SimulationError, match="has no method abort"):
        engine([0.0], [5.0], executor=Stubborn(), controllers=[Failures({0: [(1.0, 2.0)]})]).run()


def test_gpus_fail_independently_of_each_other_and_of_their_number() -> None:
    """Two GPUs fail at different times, and the first at those of a cluster of one. A repair ends with a load."""
    repairs: dict[tuple[int, int], list[float]] = {}
    for count in (1, 2):
        failures = Failures(mean_up_s=50.0, mean_down_s=5.0)
        times, full_s = np.arange(20.0) * 10.0, [5.0] * 20
        run = engine(times, full_s, count, backend=FixedTimes(full_s, 1.0), controllers=[failures])
        run.run()
        for each in run.record.usage_log.spans():
            if each["kind"] == run.record.usage_log.kinds["load"]:
                repairs.setdefault((count, int(each["worker"])), []).append(float(each["from_s"]))
    alone, first, second = repairs[1, 0], repairs[2, 0], repairs[2, 1]
    both = min(len(alone), len(first))
    assert both > 1
    assert alone[:both] == first[:both]
    assert not set(first) & set(second)
