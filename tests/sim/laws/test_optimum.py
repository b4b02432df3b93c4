"""The offline optimum against exhaustive search, and as a bound on every scheduler."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mezzotint.sim.core.model import Model
from mezzotint.sim.core.request import COMPLETED
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.scheduling.disciplines.edf import Edf
from mezzotint.sim.scheduling.disciplines.fifo import FifoQueue
from mezzotint.sim.scheduling.disciplines.slack import Slack
from mezzotint.sim.scheduling.latency_predictor import Known
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastOutstanding
from tests.oracles.optimum import TimedRequest, max_in_time
from tests.sim.lab import engine
from tests.sim.scheduling.disciplines.test_slack import UNIT, MixedTimes

SIDES = (64, 128)


def exhaustive(asked: Sequence[TimedRequest], step_s: Any, before_s: float, after_s: Any, max_batch: int) -> int:
    """Try every subset that may join at every boundary, in every order of leaving by joining."""

    def after(now: float, active: list[tuple[int, int]], waiting: frozenset[int]) -> int:
        best, done = 0, [place for place, left in active if left == 0]
        if done:
            for first in done:
                end = now + after_s(asked[first].kind)
                rest = [each for each in active if each[0] != first]
                best = max(best, (end <= asked[first].deadline_s + 1e-9) + after(end, rest, waiting))
            return best
        if len(active) < max_batch:
            for place in waiting:
                if asked[place].arrival_s <= now + 1e-9:
                    best = max(best, after(now + before_s, [*active, (place, asked[place].steps)], waiting - {place}))
        if active:
            stepped = [(place, left - 1) for place, left in active]
            return max(best, after(now + step_s(tuple(sorted(asked[p].kind for p, _ in active))), stepped, waiting))
        later = [asked[place].arrival_s for place in waiting if asked[place].arrival_s > now + 1e-9]
        return max(best, after(min(later), active, waiting)) if later else best

    return after(0.0, [], frozenset(range(len(asked))))


def instance(
    backend: MixedTimes, gaps: list[int], kinds: list[int], steps: int, slack_factor: float
) -> list[TimedRequest]:
    times = np.cumsum(gaps) * UNIT
    return [
        TimedRequest(float(time), kind, steps, float(time) + slack_factor * alone(backend, kind, steps))
        for time, kind in zip(times, kinds, strict=False)
    ]


def alone(backend: MixedTimes, kind: int, steps: int) -> float:
    return (backend.begin_ + backend.end_ * (SIDES[kind] // 64)) * UNIT + steps * backend.step_s([SIDES[kind]])


def optimum(backend: MixedTimes, asked: list[TimedRequest], max_batch: int) -> int:
    return max_in_time(
        asked,
        lambda kinds: backend.step_s([SIDES[kind] for kind in kinds]),
        lambda kind: backend.begin_ * UNIT,
        lambda kind: backend.end_ * (SIDES[kind] // 64) * UNIT,
        max_batch,
    )


BACKENDS = st.builds(
    MixedTimes, st.integers(1, 30), st.integers(1, 6), st.integers(0, 8), st.integers(0, 8), st.integers(0, 8)
)


@settings(max_examples=40)
@given(
    backend=BACKENDS,
    gaps=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    kinds=st.lists(st.integers(0, 1), min_size=4, max_size=4),
    max_batch=st.integers(1, 3),
    slack_factor=st.sampled_from([1.0, 1.5, 2.5]),
)
@example(
    backend=MixedTimes(4, 1, 2, 1, 3), gaps=[0, 0, 1], kinds=[0, 1, 1, 0], max_batch=2, slack_factor=1.5
)  # the later of two equal ones
def test_pruned_optimum_equals_exhaustive_search(
    backend: MixedTimes, gaps: list[int], kinds: list[int], max_batch: int, slack_factor: float
) -> None:
    asked = instance(backend, gaps, kinds, 2, slack_factor)
    tried = exhaustive(
        asked,
        lambda kinds: backend.step_s([SIDES[kind] for kind in kinds]),
        backend.begin_ * UNIT,
        lambda kind: backend.end_ * (SIDES[kind] // 64) * UNIT,
        max_batch,
    )
    assert optimum(backend, asked, max_batch) == tried


@settings(max_examples=40)
@given(
    backend=BACKENDS,
    gaps=st.lists(st.integers(0, 120), min_size=1, max_size=6),
    kinds=st.lists(st.integers(0, 1), min_size=6, max_size=6),
    max_batch=st.integers(1, 6),
    slack_factor=st.sampled_from([1.5, 2.5, 5.0]),
)
def test_no_scheduler_meets_more_deadlines_than_the_optimum(
    backend: MixedTimes, gaps: list[int], kinds: list[int], max_batch: int, slack_factor: float
) -> None:
    asked = instance(backend, gaps, kinds, 5, slack_factor)
    best = optimum(backend, asked, max_batch)
    side = np.array([SIDES[each.kind] for each in asked], np.int32)
    executors = [ContinuousBatching(max_batch) for _ in range(3)]
    for executor, discipline in zip(executors, (FifoQueue(), Edf(), Slack(executors[2], Known())), strict=True):
        run = engine(
            [each.arrival_s for each in asked], [alone(backend, each.kind, 5) for each in asked], backend=backend,
            executor=executor, scheduler=PerWorkerQueues(LeastOutstanding("pixels"), discipline), deadline=slack_factor,
            shapes=(side, side, np.full(len(side), 5, np.int32)), use_model_shape=False,
            models={"large": Model("large", 5, 64, 64)},
        )  # fmt: skip
        run.run()
        late_s = np.array([each.deadline_s for each in asked]) + 1e-9
        columns = run.record.request_columns
        assert ((columns["outcome"] == COMPLETED) & (columns["finish_s"] <= late_s)).sum() <= best
