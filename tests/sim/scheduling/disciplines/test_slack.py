"""PatchedServe's scheduler against a plain reading of its Algorithm 1 that tests every boundary."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.request import COMPLETED, DISCARDED, Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.protocols import Run, Worker
from mezzotint.sim.scheduling.disciplines.slack import Refusal, Slack
from mezzotint.sim.scheduling.latency_predictor import Known
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastOutstanding
from tests.sim.lab import FixedTimes, engine, simulated

SIDES = (64, 128, 256)
UNIT = 1 / 256
"""Seconds whose multiples add without rounding, so that two orders of summation agree to the bit."""


class MixedTimes(FixedTimes):
    """A step takes ``base`` + ``more`` for each 64x64 patch + ``further`` for each further size; units of UNIT."""

    by_row = False

    def __init__(self, base: int, more: int, further: int, begin: int = 0, end: int = 0, bytes_: int = 0) -> None:
        super().__init__([])
        self.base, self.more, self.further, self.begin_, self.end_, self.bytes_ = (
            base,
            more,
            further,
            begin,
            end,
            bytes_,
        )

    def begin(self, works: Sequence[Work]) -> Cost:
        return Cost(self.begin_ * UNIT)

    def step_s(self, sides: Sequence[int]) -> float:
        patches = sum((side // 64) ** 2 for side in sides)
        return (self.base + self.more * patches + self.further * (len(set(sides)) - 1)) * UNIT

    def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
        for work in works:
            work.done += count
        return Cost(self.step_s([work.width for work in works]) * count)

    def end(self, works: Sequence[Work]) -> Cost:
        return Cost(self.end_ * sum((work.width // 64) for work in works) * UNIT)

    def peak_bytes(self, works: Sequence[Work]) -> int | None:
        return sum((work.width // 64) ** 2 for work in works) * self.bytes_ if self.bytes_ else None


class Reading:
    """Run Algorithm 1 line by line: every boundary tests all waiting and all active requests."""

    def __init__(self, executor: ContinuousBatching, backend: MixedTimes, slack: Slack) -> None:
        self.executor, self.backend, self.slack = executor, backend, slack
        self.before_s = backend.begin_ * UNIT
        self.waiting: list[tuple[Worker, Request]] = []

    def bind(self, run: Run) -> None:
        self.run = run

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        self.waiting.append((worker, request))

    def leave(self, worker: Worker) -> list[Request]:
        return []

    def __len__(self) -> int:
        return len(self.waiting)

    def look_again(self, worker: Worker, now_s: float) -> None:
        self.executor.at_boundary(worker, self.run.pull, lambda at_s, step_s: int(at_s == now_s))

    def step_s(self, requests: Sequence[Request]) -> float:
        return self.backend.step_s([each.width for each in requests])

    def after_s(self, request: Request) -> float:
        return self.backend.end_ * (request.width // 64) * UNIT

    def slack_of(self, request: Request, now_s: float, remaining_s: float) -> tuple[float, int]:
        standalone_s = self.run.workload.standalone.total_s[request.row]
        return (request.deadline_s - now_s - remaining_s) / standalone_s, request.row

    def joins_s(self, active: Sequence[Request], request: Request) -> float:
        return self.before_s + request.steps_left * self.step_s([*active, request]) + self.after_s(request)

    def goes_on_s(
        self, active: Sequence[Request], joining: int, place: int, t_s: float, candidate: Request | None = None
    ) -> float:
        request = active[place]
        own_s = request.steps_left * t_s + self.after_s(request)
        if not self.slack.interruptions:
            return own_s
        own_s += self.before_s * joining
        own_s += sum(
            self.after_s(each)
            for i, each in enumerate(active)
            if i != place and (each.steps_left, i) < (request.steps_left, place)
        )
        if candidate is not None:
            own_s += self.before_s + (self.after_s(candidate) if candidate.steps_left < request.steps_left else 0.0)
        return own_s

    def next(self, worker: Worker, now_s: float) -> Request | None:
        if not self.executor.is_at_boundary(worker):
            self.executor.at_boundary(worker, self.run.pull)
            return None
        while any(at is worker for at, _ in self.waiting):
            joining = list(self.executor.joining(worker))
            active = [*self.executor.active(worker), *joining]
            slacks = [
                (*self.slack_of(each, now_s, self.joins_s(active, each)), each)
                for at, each in self.waiting
                if at is worker
            ]
            cur_task = min(slacks, key=lambda each: each[:2])[2]
            if now_s + self.joins_s(active, cur_task) > cur_task.deadline_s:
                self.waiting.remove((worker, cur_task))
                self.run.end(cur_task, DISCARDED, "late")
                continue
            if active:
                cur_s, new_s = self.step_s(active), self.step_s([*active, cur_task])
                remaining_s = [self.goes_on_s(active, len(joining), i, cur_s) for i in range(len(active))]
                urgency = [self.slack_of(each, now_s, t_s) for each, t_s in zip(active, remaining_s, strict=True)]
                act = urgency.index(min(urgency))
                benefit = (cur_s + self.step_s([cur_task])) / new_s
                if self.slack.reading == "printed":
                    benefit = 1.0 / benefit
                ends_s = now_s + self.goes_on_s(active, len(joining), act, new_s, cur_task)
                if ends_s > active[act].deadline_s or not benefit > self.slack.threshold:
                    self.look_again(worker, now_s)
                    return None
            self.waiting.remove((worker, cur_task))
            return cur_task
        return None


def served(
    backend: MixedTimes, gaps: Sequence[int], sides: Sequence[int], steps: Sequence[int], *,
    max_batch: int, deadline: float, gpus: int = 1, plain: bool = False, memory: int | None = None, **slack: Any,
) -> Engine:  # fmt: skip
    count = len(gaps)
    side, left = np.array(sides[:count], np.int32), np.array(steps[:count], np.int32)
    executor = ContinuousBatching(max_batch)
    discipline: Any = Slack(executor, Known(), **slack)
    if plain:
        discipline = Reading(executor, backend, discipline)
    run = engine(
        np.cumsum(gaps) * UNIT, 2.0 ** (side // 128), gpus, backend=backend, executor=executor, deadline=deadline,
        scheduler=PerWorkerQueues(LeastOutstanding("pixels"), discipline), shapes=(side, side, left),
        use_model_shape=False,
        models={"large": Model("large", 50, 64, 64)}, gpu=Gpu("test", 300.0, 60.0, "made up", memory_bytes=memory),
    )  # fmt: skip
    run.run()
    return run


BACKENDS = st.builds(
    MixedTimes, st.integers(1, 40), st.integers(1, 8), st.integers(0, 20), st.integers(0, 12), st.integers(0, 12)
)
INSTANCES = st.fixed_dictionaries(
    {
        "backend": BACKENDS,
        "gaps": st.lists(st.integers(0, 300), min_size=1, max_size=24),
        "sides": st.lists(st.sampled_from(SIDES), min_size=24, max_size=24),
        "steps": st.lists(st.integers(1, 20), min_size=24, max_size=24),
        "max_batch": st.integers(1, 6),
        "deadline": st.sampled_from([0.5, 1.0, 2.0, 5.0]),
        "gpus": st.integers(1, 2),
        "interruptions": st.booleans(),
        "reading": st.sampled_from(["merged", "printed"]),
        "threshold": st.sampled_from([0.5, 0.75, 1.0, 1.25]),
    }
)


@settings(max_examples=150)
@given(instance=INSTANCES)
@example(
    {
        "backend": MixedTimes(6, 7, 0, 0, 9), "gaps": [0, 0, 19, 13], "sides": [64] * 4, "steps": [1, 1, 17, 1],
        "max_batch": 2, "deadline": 1.0, "gpus": 1, "interruptions": True, "reading": "merged", "threshold": 0.5,
    }
)  # fmt: skip
def test_slack_scheduler_matches_algorithm_1(instance: dict[str, Any]) -> None:
    """Joins and discards agree in time, to the bit, though the scheduler tests few boundaries."""
    found, expected = served(**instance), served(**instance, plain=True)
    for name in ("outcome", "start_s", "finish_s", "denoise_s", "worker"):
        np.testing.assert_array_equal(found.record.request_columns[name], expected.record.request_columns[name], name)


@settings(max_examples=60)
@given(instance=INSTANCES)
def test_slack_discards_only_unstarted_requests_that_would_be_late(instance: dict[str, Any]) -> None:
    backend: MixedTimes = instance["backend"]
    seen: list[tuple[Request, float, list[Request]]] = []
    worker_of: dict[Request, Worker] = {}
    end, sent = Engine.end, LeastOutstanding.sent

    def routed(router: LeastOutstanding, worker: Worker, request: Request, now_s: float) -> None:
        worker_of[request] = worker
        sent(router, worker, request, now_s)

    def spy(run: Engine, request: Request, outcome: int = COMPLETED, reason: str = "") -> None:
        if outcome == DISCARDED:
            executor: Any = run.executor
            at = worker_of[request]
            seen.append((request, run.clock.now, [*executor.active(at), *executor.joining(at)]))
        end(run, request, outcome, reason)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "end", spy)
        patch.setattr(LeastOutstanding, "sent", routed)
        run = served(**instance)
    outcome, start_s = run.record.request_columns["outcome"], run.record.request_columns["start_s"]
    assert set(outcome) <= {COMPLETED, DISCARDED}
    assert not np.isfinite(start_s[outcome == DISCARDED]).any() or (start_s[outcome == DISCARDED] == 0).all()
    for request, now_s, batch in seen:
        step_s = backend.step_s([each.width for each in [*batch, request]])
        own_s = (backend.begin_ + backend.end_ * (request.width // 64)) * UNIT
        assert now_s + own_s + request.steps_left * step_s > request.deadline_s
    spans = run.record.usage_log.spans()
    assert not len(spans) or spans["batch"].max() <= instance["max_batch"]


@pytest.mark.invariant(6)
@settings(max_examples=60)
@given(instance=INSTANCES, patches=st.integers(16, 40))
def test_slack_batch_never_exceeds_device_memory(instance: dict[str, Any], patches: int) -> None:
    """The cluster ends a run with such a backend."""
    instance = instance | {"backend": MixedTimes(8, 1, 1, bytes_=10)}
    run = served(**instance, memory=patches * 10)
    assert set(run.record.request_columns["outcome"]) <= {COMPLETED, DISCARDED}


def test_slack_skips_step_boundaries_where_nothing_changed() -> None:
    """One batch admits no request for hundreds of steps while others wait: it is asked a few times, not hundreds."""
    asked = 0
    through = Slack.next

    def counted(self: Slack, worker: Worker, now_s: float) -> Request | None:
        nonlocal asked
        asked += 1
        return through(self, worker, now_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Slack, "next", counted)
        backend = MixedTimes(1, 8, 0)  # a batch is no faster than its members in sequence
        run = served(backend, [0] * 24, [256] * 24, [400] * 24, max_batch=6, deadline=1e6, threshold=1.05)
    assert (run.record.request_columns["outcome"] == COMPLETED).all()
    assert asked < 24 * 8


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(30, 60), st.integers(0, 4000), st.integers(1, 40)), min_size=1, max_size=5),
    *(st.integers(1, 16) for _ in range(3)),
)
def test_refused_request_is_reconsidered_when_slack_order_or_lateness_changes(
    given_: list[tuple[int, int, int]], step: int, cur: int, new: int
) -> None:
    """Against single steps that test the slack of all; at sixteenths of a second, so that sums are exact."""
    step_s, cur_s, new_s = step / 16, cur / 16, new / 16
    actives = []
    for row, (left, deadline, alone) in enumerate(given_):
        request = Request(row, 0.0, 64, 64, left, deadline / 16)
        request.steps_left = left
        actives.append((request, 0.0, alone / 16))

    def slack(at: int, steps: int) -> float:
        request, besides_s, standalone_s = actives[at]
        return (request.deadline_s - steps * step_s - ((request.steps_left - steps) * cur_s + besides_s)) / standalone_s

    act = min(range(len(actives)), key=lambda at: slack(at, 0))
    refusal = Refusal(-1.0, ((1e12, 1.0),), actives, act, cur_s, new_s)  # the candidate is never late

    def nothing_new(steps: int) -> bool:
        request = actives[act][0]
        late = steps * step_s + (request.steps_left - steps) * new_s > request.deadline_s
        return late and all(slack(act, steps) <= slack(at, steps) + 1e-9 for at in range(len(actives)))

    found = refusal(0.0, step_s)
    first = next((steps for steps in range(500) if not nothing_new(steps)), None)
    if first is None:
        assert found >= 499
    else:
        assert max(first - 2, 0) <= found <= first


def test_scheduling_decision_without_overlap_holds_the_gpu() -> None:
    def last_s(**how: Any) -> float:
        run = served(MixedTimes(8, 1, 1), [0] * 4, [64] * 4, [10] * 4, max_batch=4, deadline=100.0, **how)
        return float(np.max(run.record.request_columns["finish_s"]))

    assert last_s(overlap=False, decide_s=0.5) > last_s() + 0.4


def test_slack_without_a_deadline_names_the_missing_slo() -> None:
    with pytest.raises(ConfigError, match=r"slo=\[5\]"):
        simulated("system=patchedserve", "cluster=h100", "trace=hybrid", "shapes=trace", "slo=[]")


@pytest.mark.parametrize("model", ["sdxl", "sd3-medium"])
def test_patchedserve_discards_late_requests_and_states_its_assumptions(model: str) -> None:
    outcome = simulated(
        "system=patchedserve", "cluster=h100", f"models={model}", "trace=hybrid", "shapes=trace", "slo=[5]",
        "trace.requests=300", "arrivals.rate_rpm=90",
    )  # fmt: skip
    requests = outcome.summary["requests"]
    assert requests["discarded"] > 0
    assert requests["completed"] + requests["discarded"] == 300
    json.dumps(outcome.summary, allow_nan=False)
    assumptions = {each["what"]: each["value"] for each in outcome.summary["assumptions"]}
    assert assumptions[f"mean squared error of the predicted step of {model} [ms^2]"] < 25
    assert assumptions["side of a patch [px]"] == 256
    late = outcome.summary["slo"]["5x"]["violation_rate"] * 300 - requests["discarded"]
    assert late <= 0.05 * 300  # a request that joins is in time, except for errors of the prediction
    assert set(filter(None, outcome.requests["reason"].to_pylist())) == {
        "cannot meet its deadline even if it joins now"
    }


def test_patchedserve_repeats_its_records_exactly() -> None:
    def rows() -> Any:
        return simulated(
            "system=patchedserve", "cluster=h100", "cluster.count=2", "trace=hybrid", "shapes=trace", "slo=[5]",
            "trace.requests=200", "arrivals.rate_rpm=180",
        ).requests  # fmt: skip

    assert rows().equals(rows())


@pytest.mark.parametrize(
    ("heads", "step_s", "steps"),
    [
        (((100.0, 10.0),), 2.0, 50),  # until it is late itself
        (((100.0, 10.0), (60.0, 5.0)), 2.0, 10),  # (100 - t) / 10 = (60 - t) / 5 at 20 s
        (((100.0, 10.0), (60.0, 5.0), (29.0, 2.0)), 2.0, 5),  # (100 - t) / 10 = (29 - t) / 2 at 11.25 s
        (((100.0, 10.0), (400.0, 20.0)), 2.0, 50),  # its slack falls more slowly and is never the least
        (((100.0, 10.0),), 0.0, 10**9),
    ],
)
def test_refused_queue_head_is_reconsidered_when_it_is_late_or_no_longer_first(
    heads: tuple[tuple[float, float], ...], step_s: float, steps: int
) -> None:
    assert Refusal(-1.0, heads)(0.0, step_s) == steps
