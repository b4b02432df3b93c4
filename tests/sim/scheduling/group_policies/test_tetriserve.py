"""TetriServe: its allocation and its packing against brute force, and the laws of its rounds."""

from collections.abc import Sequence
from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.request import COMPLETED, DISCARDED
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import GroupPolicy
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.group_policies.tetriserve import TetriServe, frontier, least_gpu_seconds, pack
from tests.sim import lab

DEGREES = (1, 2, 4, 8)

STEP_S = {
    64: {1: 0.25, 2: 0.25, 4: 0.25, 8: 0.25},
    128: {1: 0.5, 2: 0.375, 4: 0.25, 8: 0.1875},
    256: {1: 2.0, 2: 1.125, 4: 0.625, 8: 0.375},
}
"""Seconds of a step by side in pixels and parallel degree."""


class Scaling(lab.FixedTimes):
    """A step takes STEP_S, and nothing else takes time."""

    def __init__(self) -> None:
        super().__init__([])

    def group_sizes(self, model: str | None = None) -> Sequence[int]:
        return DEGREES

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost | None:
        return Cost(STEP_S[work.width][gpus])


def served(
    policy: GroupPolicy,
    times: Sequence[float],
    sides: Sequence[int],
    limits_s: Sequence[float],
    steps: int = 10,
    **parts: Any,
) -> Engine:
    """Serve requests of these sides in pixels and deadlines on 8 GPUs, and return the engine that ran."""
    side = np.array(sides, np.int32)
    engine = lab.engine(
        np.array(times), np.ones(len(times)), 8,
        backend=Scaling(),
        shapes=(side, side, np.full(len(side), steps, np.int32)),
        use_model_shape=False,
        own_deadline_s=np.array(limits_s, float),
        executor=Stages(policy, Scaled()), **parts,
    )  # fmt: skip
    engine.run()
    return engine


def in_time(engine: Engine, limits_s: Sequence[float]) -> int:
    columns = engine.record.request_columns
    latency_s = columns["finish_s"] - columns["arrival_s"]
    return int(((columns["outcome"] == COMPLETED) & (latency_s <= np.array(limits_s) + 1e-9)).sum())


def attempts(engine: Engine) -> list[dict[str, Any]]:
    log = engine.record.attempts
    assert log is not None
    return [
        {"row": row, "gpus": gpus, "from_s": from_s, "until_s": until_s, "steps": steps}
        for row, gpus, from_s, until_s, steps in zip(log.row, log.gpus, log.from_s, log.until_s, log.steps, strict=True)
    ]


step_times = st.lists(st.integers(1, 40), min_size=4, max_size=4).map(
    lambda seconds: list(zip(DEGREES, map(float, seconds), strict=True))
)


def by_rounds(step_s: list[tuple[int, float]], round_s: float) -> list[tuple[int, float, int]]:
    return [(degree, seconds, int(round_s // seconds)) for degree, seconds in step_s if seconds <= round_s]


@given(
    steps=st.integers(1, 12),
    budget_s=st.integers(0, 300).map(float),
    round_s=st.integers(1, 50).map(float),
    step_s=step_times,
)
@example(steps=4, budget_s=11.0, round_s=4.0, step_s=[(1, 3.0), (2, 2.0), (4, 2.0), (8, 1.0)])  # the wider first
def test_allocation_has_the_least_gpu_seconds_of_all_pairs_of_whole_rounds(
    steps: int, budget_s: float, round_s: float, step_s: list[tuple[int, float]]
) -> None:
    costs = []
    for (degree, seconds, count), (other, other_s, other_count) in product(by_rounds(step_s, round_s), repeat=2):
        for rounds in range((steps - 1) // other_count + 1):
            left = steps - rounds * other_count
            *full, last = [count] * ((left - 1) // count) + [left - (left - 1) // count * count]
            if (rounds + len(full)) * round_s + last * seconds <= budget_s:
                costs.append(rounds * other_count * other * other_s + left * degree * seconds)
    found = least_gpu_seconds(steps, budget_s, round_s, by_rounds(frontier(step_s), round_s))
    assert bool(found) == bool(costs)
    if found:
        by_degree = dict(step_s)
        assert sum(count for count, _ in found) == steps
        assert sum(count * degree * by_degree[degree] for count, degree in found) == min(costs)


@given(side=st.sampled_from(sorted(STEP_S)), round_s=st.integers(5, 24), limit=st.integers(4, 80))
@settings(max_examples=40)
def test_a_request_alone_is_in_time_wherever_a_degree_can_be(side: int, round_s: int, limit: int) -> None:
    """Rounds hold whole steps: a plan that just meets the deadline without them would be late."""
    length_s, limit_s = round_s / 8, limit / 4
    fastest_s = min(STEP_S[side].values())
    count = int(length_s // fastest_s)
    rounds = (10 - 1) // count
    can_be = rounds * length_s + (10 - rounds * count) * fastest_s <= limit_s
    engine = served(TetriServe(round_s=length_s, scale_up=False, late="drop"), [0.0], [side], [limit_s])
    assert in_time(engine, [limit_s]) == can_be


options = st.lists(
    st.tuples(
        st.integers(0, 1), st.lists(st.tuples(st.sampled_from(DEGREES), st.integers(0, 1)), min_size=0, max_size=2)
    ).map(lambda each: [(0, each[0]), *each[1]]),
    max_size=6,
)


@given(options=options, gpus=st.integers(0, 8))
def test_packing_has_as_many_survivors_as_exhaustive_search(options: list[list[tuple[int, int]]], gpus: int) -> None:
    chosen = pack(options, gpus)
    taken = [each[number] for each, number in zip(options, chosen, strict=True)]
    assert sum(width for width, _ in taken) <= gpus
    plans = [plan for plan in product(*options) if sum(width for width, _ in plan) <= gpus]
    assert sum(value for _, value in taken) == max(sum(value for _, value in plan) for plan in plans)


requests = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(sorted(STEP_S)), st.integers(2, 60)), min_size=1, max_size=12
)


@given(requests=requests, scale_up=st.booleans(), placement=st.booleans())
@settings(max_examples=40)
def test_a_request_keeps_its_group_within_a_round(
    requests: list[tuple[int, int, int]], scale_up: bool, placement: bool
) -> None:
    """Rounds are counted from the first arrival; a launch begins with a round and ends in it."""
    times = sorted(each[0] / 4 for each in requests)
    sides, limits = [each[1] for each in requests], [each[2] / 4 for each in requests]
    policy = TetriServe(round_s=2.25, scale_up=scale_up, placement=placement)
    engine = served(policy, times, sides, limits)
    rounds: dict[tuple[int, int], tuple[int, ...]] = {}
    for attempt in attempts(engine):
        began = (attempt["from_s"] - times[0]) / 2.25
        assert began == pytest.approx(round(began), abs=1e-9)
        for number in range(round(began), int(np.ceil((attempt["until_s"] - times[0]) / 2.25 - 1e-9))):
            assert rounds.setdefault((attempt["row"], number), attempt["gpus"]) == attempt["gpus"]


@given(requests=requests)
@settings(max_examples=30)
def test_without_deadlines_nothing_is_late_and_every_step_runs_once(requests: list[tuple[int, int, int]]) -> None:
    times = sorted(each[0] / 4 for each in requests)
    limits = [inf] * len(times)
    engine = served(TetriServe(late="drop"), times, [each[1] for each in requests], limits)
    assert in_time(engine, limits) == len(times)
    steps = np.bincount([each["row"] for each in attempts(engine)], [each["steps"] for each in attempts(engine)])
    assert steps.tolist() == [10] * len(times)


@given(sides=st.lists(st.sampled_from(sorted(STEP_S)), min_size=1, max_size=6), limit=st.integers(8, 60))
@settings(max_examples=30)
def test_scale_up_of_a_request_alone_never_makes_it_late(sides: list[int], limit: int) -> None:
    """With others beside it, it may: a request ahead of its plan is deferred by the knapsack, and needs more later."""
    times = [100.0 * number for number in range(len(sides))]
    limits = [limit / 4] * len(sides)
    plain, scaled = (in_time(served(TetriServe(scale_up=each), times, sides, limits), limits) for each in (False, True))
    assert scaled >= plain


def test_scale_up_uses_idle_gpus_for_the_request_that_gains_most() -> None:
    engine = served(TetriServe(round_s=4.0), [0.0, 0.0], [64, 256], [50.0, 50.0])
    first = {each["row"]: len(each["gpus"]) for each in attempts(engine) if each["from_s"] == 0.0}
    assert first == {0: 1, 1: 4}  # a small image gains nothing; 8 GPUs do not fit beside it


def test_a_tight_deadline_takes_more_gpus_than_a_loose_one() -> None:
    policy = {"scale_up": False, "round_s": 4.0}
    widths = [len(attempts(served(TetriServe(**policy), [0.0], [128], [limit]))[0]["gpus"]) for limit in (5.0, 2.5)]  # type: ignore[arg-type]
    assert widths == [1, 4]


def test_the_most_requests_survive_not_the_most_urgent() -> None:
    """One request needs all GPUs to be in time, or else two others do, with four each."""
    limits = [3.75, 6.25, 6.25]
    engine = served(TetriServe(round_s=6.25, scale_up=False), [0.0] * 3, [256] * 3, limits)
    assert in_time(engine, limits) == 2


def test_late_requests_run_last_on_one_gpu_or_are_dropped() -> None:
    limits = [1.0, 40.0]
    run = served(TetriServe(scale_up=False, round_s=4.0), [0.0, 0.0], [256, 64], limits)
    dropped = served(TetriServe(scale_up=False, round_s=4.0, late="drop"), [0.0, 0.0], [256, 64], limits)
    assert {len(each["gpus"]) for each in attempts(run) if each["row"] == 0} == {1}
    assert run.record.request_columns["outcome"].tolist() == [COMPLETED, COMPLETED]
    assert dropped.record.request_columns["outcome"].tolist() == [DISCARDED, COMPLETED]
    assert {each["row"] for each in attempts(dropped)} == {1}


def test_late_request_takes_the_gpu_that_is_left_while_the_others_are_away() -> None:
    """A step fits into a round on two GPUs, and from 1 s on there is one."""
    away = Failures({gpu: [(1.0, 1e4)] for gpu in range(1, 8)})
    run = served(TetriServe(round_s=1.5), [2.0], [256], [1.0], controllers=[away])
    assert run.record.request_columns["finish_s"][0] < 2.0 + 10 * 3.0 + 1.5


def test_placement_keeps_the_gpus_of_the_last_round() -> None:
    """The first request ends and leaves GPU 0 idle, which is the lowest number."""
    times, sides, limits = [0.0, 0.0], [64, 128], [40.0, 50.0]
    kept, moved = (
        served(TetriServe(scale_up=False, round_s=1.25, placement=each), times, sides, limits) for each in (True, False)
    )
    assert kept.record.request_columns["moves"].tolist() == [0, 0]
    assert moved.record.request_columns["moves"].tolist() == [0, 1]


def test_a_round_is_five_steps_of_the_slowest_size_on_its_fastest_degree() -> None:
    engine = served(TetriServe(), [0.0, 0.0], [64, 256], [40.0, 40.0])
    (length_s,) = (each.value for each in engine.record.assumptions if each.what == "seconds of a round")
    assert length_s == 5 * 0.375


@given(requests=requests)
@settings(max_examples=30)
def test_a_fixed_degree_serves_in_the_order_of_arrival(requests: list[tuple[int, int, int]]) -> None:
    times, sides = sorted(each[0] / 4 for each in requests), [each[1] for each in requests]
    engine = served(FixedDegree(degree_by_size={"256x256": 8, "128x128": 2}), times, sides, [inf] * len(sides))
    columns = engine.record.request_columns
    assert (np.diff(columns["start_s"]) >= 0).all()
    assert [len(each["gpus"]) for each in sorted(attempts(engine), key=lambda each: each["row"])] == [
        {256: 8, 128: 2, 64: 1}[side] for side in sides
    ]


@pytest.mark.parametrize("system", ["tetriserve-nirvana", "rssp-nirvana"])
def test_a_hit_leaves_fewer_steps_to_pack(system: str) -> None:
    outcome = lab.simulated(
        f"system={system}", "hits=declared", "hits.hit_rate=1.0", "hits.mean_k=20", "trace=mix", "models=flux-dev-xdit",
        "trace.requests=30", "arrivals=poisson", "cluster=h100", "cluster.count=8", "shapes=model", "slo=[10s]",
    )  # fmt: skip
    requests, attempted = outcome.requests.to_pandas(), outcome.attempts.to_pandas()
    assert (requests["skipped"] > 0).all()
    ran = attempted.groupby("request_id", observed=True)["steps"].sum()
    left = requests["steps"] - requests["skipped"]
    assert ran.reindex(requests["request_id"]).tolist() == left.tolist()
    assert (requests["fetch_s"] > 0).all()
