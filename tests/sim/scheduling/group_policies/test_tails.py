"""Laws of super_p95, central pull and the tail gate: tails give way, and are no more than their quota."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.handling import NO_HANDLING, Handling
from mezzotint.sim.core.model import Model
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.protocols import GroupPolicy
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.central_pull import CentralPull, QueueBand
from mezzotint.sim.scheduling.group_policies.super_p95 import SuperP95
from mezzotint.sim.scheduling.group_policies.tails import TailQuota
from tests.sim.lab import FixedTimes, engine

STEPS = 5


class EqualSteps(FixedTimes):
    """Request i takes ``full_s[i]`` seconds in equal steps, and n GPUs are n times as fast."""

    def group_sizes(self, model: str | None = None) -> tuple[int, ...]:
        return (2, 4)

    def group_step(self, work: Work, gpus: int, batch: int = 1) -> Cost:
        return Cost(self.full_s[work.row] / work.steps / gpus)


def served(
    policy: GroupPolicy,
    times: Sequence[float],
    full_s: Sequence[float],
    gpus: int = 1,
    handling: Handling = NO_HANDLING,
) -> Engine:
    """Run requests of ``full_s`` seconds that arrive at ``times``."""
    run = engine(
        times,
        full_s,
        gpus,
        backend=EqualSteps(full_s),
        models={role: Model(role, STEPS, 64, 64) for role in ("large", "small")},
        executor=Stages(policy, Scaled()),
        handling=handling,
    )
    run.run()
    return run


def column(run: Engine, name: str) -> list[float]:
    return np.asarray(run.record.request_columns[name]).tolist()


def longest_first() -> TailQuota:
    """Every request near the longest so far is a tail."""
    return TailQuota(every=1, min_of_longest=0.8, min_of_shortest=1.0, counted=0)


def no_tails() -> TailQuota:
    return TailQuota(every=10**6)


@given(st.lists(st.floats(1.0, 1000.0), max_size=120), st.integers(1, 25), st.integers(0, 3))
def test_tails_are_at_most_one_in_every_and_all_long(estimates: list[float], every: int, counted: int) -> None:
    quota, tails = TailQuota(every=every, counted=counted), 0
    for number, estimate_s in enumerate(estimates, start=1):
        if quota.is_tail(estimate_s):
            tails += 1
            assert estimate_s >= 0.8 * max(estimates[:number])
            assert estimate_s >= 1.5 * min(estimates[:number])
        assert tails <= (number + counted) // every - counted // every


def test_credits_add_up_while_no_request_is_long() -> None:
    quota = TailQuota(every=20, counted=1)
    assert not any(quota.is_tail(10.0) for _ in range(59))
    assert [quota.is_tail(100.0) for _ in range(5)] == [True, True, True, False, False]


def test_warm_up_request_counts_towards_the_first_credit() -> None:
    tails = [number for number, quota in enumerate([TailQuota()] * 25) if quota.is_tail(1.0 if number == 0 else 9.0)]
    assert tails == [18]


def test_normal_request_preempts_a_tail_at_the_next_boundary_and_the_tail_keeps_its_steps() -> None:
    run = served(SuperP95(longest_first()), [0.0, 12.0], [50.0, 5.0])
    assert column(run, "tail") == [True, False]
    assert column(run, "start_s") == [0.0, 20.0]
    assert column(run, "finish_s") == [55.0, 25.0]
    assert column(run, "pauses") == [1, 0]


def test_last_step_runs_into_decoding_without_a_boundary() -> None:
    run = served(SuperP95(longest_first()), [0.0, 41.0], [50.0, 5.0])
    assert column(run, "finish_s") == [50.0, 55.0]


def test_normal_request_never_preempts_a_normal_one() -> None:
    run = served(SuperP95(no_tails()), [0.0, 1.0, 2.0], [50.0, 5.0, 1.0])
    assert column(run, "finish_s") == [50.0, 55.0, 56.0]


def test_waiting_tails_run_last_in_first_out() -> None:
    run = served(SuperP95(longest_first()), [0.0, 1.0, 2.0, 3.0], [50.0, 50.0, 50.0, 5.0])
    assert column(run, "finish_s") == [155.0, 115.0, 65.0, 15.0]


def test_request_goes_to_the_group_with_the_least_weighted_seconds() -> None:
    """A tail of 100 s weighs 10 s, less than a normal request of 20 s."""
    run = served(SuperP95(longest_first()), [0.0, 1.0, 2.0], [100.0, 20.0, 20.0], gpus=2)
    gpus = [tuple(each) for each in run.attempts().gpus]
    assert column(run, "tail") == [True, False, False]
    assert gpus.count((0,)) == 3  # the tail before and after the third request
    assert column(run, "start_s")[2] == 20.0


def test_group_of_degree_n_is_n_gpus() -> None:
    run = served(SuperP95(no_tails(), degree=2), [0.0, 0.0], [40.0, 40.0], gpus=4)
    assert sorted(run.attempts().gpus) == [(0, 1), (2, 3)]
    assert column(run, "finish_s") == [20.0, 20.0]


def test_degree_that_does_not_divide_the_gpus_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"group_policy.degree: found 2, and 3 GPUs do not divide"):
        served(SuperP95(no_tails(), degree=2), [0.0], [1.0], gpus=3)


@pytest.mark.parametrize(("beta", "order"), [(0.0, [0, 1, 2]), (1.0, [0, 2, 1])])
def test_central_pull_takes_the_greatest_age_plus_weighted_estimate(beta: float, order: list[int]) -> None:
    run = served(CentralPull(no_tails(), beta=beta), [0.0, 10.0, 20.0], [100.0, 10.0, 100.0])
    assert np.argsort(column(run, "start_s")).tolist() == order


def test_queue_band_changes_the_weight_while_so_many_wait() -> None:
    band = QueueBand(beta=0.0, min_waiting=3, max_waiting=3)
    run = served(CentralPull(no_tails(), band=band), [0.0, 1.0, 2.0, 3.0], [100.0, 10.0, 20.0, 100.0])
    assert np.argsort(column(run, "start_s")).tolist() == [0, 1, 3, 2]  # three wait: the earliest; then the longest


@pytest.mark.parametrize(("tails", "group"), [("spread", 2), ("sink", 0)])
def test_tail_goes_where_its_rule_says(tails: Any, group: int) -> None:
    policy = CentralPull(longest_first(), tails=tails)
    policy.quota = TailQuota(every=4, min_of_shortest=1.0, counted=0)
    run = served(policy, [0.0, 0.1, 0.2, 0.3], [100.0, 90.0, 30.0, 100.0], gpus=3)
    assert column(run, "tail") == [False, False, False, True]
    assert run.attempts().gpus[run.attempts().row.index(3)] == (group,)


def test_packed_tails_share_a_group() -> None:
    policy = CentralPull(TailQuota(every=2, min_of_shortest=1.0, counted=0), tails="pack")
    run = served(policy, [0.0, 0.1, 0.2, 0.3], [10.0, 100.0, 10.0, 100.0], gpus=4)
    attempts = run.attempts()
    assert {gpus for row, gpus in zip(attempts.row, attempts.gpus, strict=True) if row in (1, 3)} == {(1,)}


def test_released_tails_start_with_the_first_then_last_in_first_out() -> None:
    policy = CentralPull(TailQuota(every=2, min_of_shortest=1.0, counted=1), tails="pack", gate=True)
    run = served(policy, [0.0, 1.0, 2.0, 3.0, 4.0], [100.0, 10.0, 100.0, 10.0, 100.0])
    assert column(run, "tail") == [True, False, True, False, True]
    starts = column(run, "start_s")
    assert starts[0] == 0.0  # nothing else waits
    assert starts[4] < starts[2]


@pytest.mark.parametrize("seed", range(6))
def test_tail_never_starts_before_its_gate_was_open(seed: int) -> None:
    """Open: no normal request waits in the central queue, and none on the tail's group is unanswered."""
    rng = np.random.default_rng(seed)
    times, full_s = np.cumsum(rng.exponential(20.0, 120)), rng.choice([20.0, 60.0, 150.0], 120) + rng.random(120)
    policy = CentralPull(TailQuota(every=6), tails="pack", gate=True)
    run = served(policy, times.tolist(), full_s.tolist(), gpus=4, handling=Handling(after_s=2.0))
    start_s, finish_s, tail = (np.asarray(column(run, name)) for name in ("start_s", "finish_s", "tail"))
    attempts = run.attempts()
    first = dict(reversed(list(zip(attempts.row, attempts.gpus, strict=True))))
    group = np.array([first[row][0] for row in range(len(times))])
    normal = ~tail.astype(bool)

    def is_open(at_s: float, on: int) -> bool:
        waits, runs = (times <= at_s) & (start_s > at_s), (start_s <= at_s) & (finish_s > at_s) & (group == on)
        return not (normal & (waits | runs)).any()

    waited = 0
    for row in np.flatnonzero(tail):
        instants = {float(at) for at in (*times, *finish_s) if times[row] <= at <= start_s[row]}
        assert any(is_open(at, group[row]) for at in instants)
        waited += start_s[row] > times[row]
    assert waited >= 10


@pytest.mark.parametrize(("backfill", "start_s"), [(False, 100.0), (True, 11.0)])
def test_idle_group_takes_a_held_tail_only_with_backfill(backfill: bool, start_s: float) -> None:
    quota = TailQuota(every=3, min_of_shortest=1.0, counted=0)
    policy = CentralPull(quota, tails="sink", gate=True, backfill=backfill)
    run = served(policy, [0.0, 1.0, 2.0], [100.0, 10.0, 100.0], gpus=2)
    assert column(run, "tail") == [False, False, True]
    assert column(run, "start_s")[2] == start_s


def test_backfill_without_a_gate_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"group_policy\.backfill"):
        CentralPull(no_tails(), backfill=True)


def test_handling_is_part_of_the_latency_and_not_of_the_busy_time() -> None:
    plain, handled = (
        served(SuperP95(no_tails()), [0.0], [50.0], handling=Handling(after_s=seconds)) for seconds in (0.0, 2.0)
    )
    assert column(handled, "finish_s") == [52.0]
    assert column(handled, "gpu_s") == column(plain, "gpu_s") == [50.0]


def test_handling_may_differ_by_size() -> None:
    run = served(SuperP95(no_tails()), [0.0], [50.0], handling=Handling(after_s=2.0, by_size={"64x64": 3.0}))
    assert column(run, "finish_s") == [53.0]


@pytest.mark.parametrize(("pulls", "start_s"), [("answered", 52.0), ("finished", 50.0)])
def test_group_pulls_after_the_answer_or_at_the_end_on_its_gpus(pulls: Any, start_s: float) -> None:
    run = served(CentralPull(no_tails(), pulls=pulls), [0.0, 1.0], [50.0, 5.0], handling=Handling(after_s=2.0))
    assert column(run, "start_s") == [0.0, start_s]


def test_tail_runs_a_step_between_two_normal_requests_while_the_first_is_answered() -> None:
    policy = CentralPull(TailQuota(every=2, min_of_shortest=1.0, counted=0))
    run = served(policy, [0.0, 1.0, 2.0], [50.0, 50.0, 5.0], handling=Handling(after_s=2.0))
    assert column(run, "tail") == [False, True, False]
    assert column(run, "start_s") == [0.0, 50.0, 60.0]
    assert column(run, "pauses") == [0, 1, 0]


@pytest.mark.parametrize("name", ["super_p95", "central pull", "gate"])
def test_every_policy_does_the_same_work(name: str) -> None:
    rng = np.random.default_rng(3)
    times, full_s = np.cumsum(rng.exponential(15.0, 80)).tolist(), rng.choice([20.0, 60.0, 150.0], 80).tolist()
    policy = SuperP95(TailQuota()) if name == "super_p95" else CentralPull(TailQuota(), gate=name == "gate")
    run = served(policy, times, full_s, gpus=4)
    assert column(run, "gpu_s") == pytest.approx(full_s)
