"""Fair shares between tenants and their limits: the laws that they state."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import COMPLETED, DISCARDED
from mezzotint.sim.core.tenant import TOO_MANY_IN_FLIGHT, TOO_MANY_QUEUED
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.protocols import Scheduler
from mezzotint.sim.scheduling.central import CentralQueue
from mezzotint.sim.scheduling.disciplines.fair import Fair
from mezzotint.sim.scheduling.disciplines.fifo import FifoQueue
from mezzotint.sim.scheduling.fcfs import Fcfs
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastOutstanding
from tests.sim.cluster.test_cluster import Acts, order
from tests.sim.lab import FixedTimes, engine

USERS = "ABC"
LIMITS = ("max_running", "max_queued", "max_in_flight")


def run_of(users: str, scheduler: Scheduler, times: Sequence[float] | None = None, **parts: Any) -> Engine:
    """Return a finished run of a request of each of ``users``, a letter each and a blank for none."""
    names = sorted({*users} - {" "})
    codes = np.array([names.index(user) if user != " " else -1 for user in users], np.int32)
    full_s = parts.pop("full_s", [1.0] * len(users))
    run = engine(
        [0.0] * len(users) if times is None else times, full_s, scheduler=scheduler,
        column_codes=lambda _: codes, column_values=lambda _: names, **parts,
    )  # fmt: skip
    run.run()
    return run


def turns(run: Engine, users: str) -> str:
    """Return the users in the order in which their requests started."""
    start_s = run.record.request_columns["start_s"]
    rows = np.argsort(start_s, kind="stable")
    return "".join(users[row] for row in rows if not np.isnan(start_s[row]))


def test_round_robin_interleaves_users_as_invokeai_does() -> None:
    """InvokeAI, pull request 9086: A queues six, then B one and C two."""
    users = "AAAAAABCC"
    assert turns(run_of(users, CentralQueue(Fair()), np.arange(9) / 100), users) == "ABCACAAAA"
    assert turns(run_of(users, Fcfs(), np.arange(9) / 100), users) == users
    # With its example: A1 A2 B1 C1 C2 A3 are processed as A1 B1 C1 A2 C2 A3, at these seconds.
    run = run_of("AABCCA", CentralQueue(Fair()), np.arange(6) / 100)
    assert run.record.request_columns["start_s"].tolist() == [0.0, 3.0, 1.0, 2.0, 4.0, 5.0]


@settings(max_examples=12)
@given(
    gaps=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    took=st.lists(st.integers(1, 5), min_size=20, max_size=20),
    service=st.sampled_from(["requests", "declared-cost", "gpu-seconds"]),
    batched=st.booleans(),
)
def test_one_tenant_is_served_first_come_first_served(
    gaps: list[int], took: list[int], service: Any, batched: bool
) -> None:
    times, full_s = np.cumsum(gaps).astype(float), [float(s) for s in took[: len(gaps)]]

    def table(scheduler: Scheduler) -> Any:
        executor = ContinuousBatching(3) if batched else Sequential()
        run = run_of("A" * len(gaps), scheduler, times, count=2, full_s=full_s, executor=executor)
        columns = run.record.request_columns
        return {name: columns[name].tobytes() for name in ("start_s", "finish_s", "worker", "denoise_s", "energy_j")}

    fair = table(CentralQueue(Fair(service)))
    assert fair == table(CentralQueue(FifoQueue())) == table(Fcfs())
    routed = [table(PerWorkerQueues(LeastOutstanding(), rule)) for rule in (Fair(service), FifoQueue())]
    assert routed[0] == routed[1]


@pytest.mark.parametrize("weights", [(2, 1), (1, 1), (3, 1), (0.5, 0.2), (1, 7)])
@pytest.mark.parametrize("gpus", [1, 3])
def test_tenants_of_weights_two_and_one_get_two_to_one_at_every_instant(
    weights: tuple[float, float], gpus: int
) -> None:
    users = "C" * gpus + "A" * 40 + "B" * 40  # C keeps all GPUs busy until A and B both wait
    rule = Fair(weight_by_user=dict(zip("AB", weights, strict=True)))
    start_s = run_of(users, CentralQueue(rule), count=gpus).record.request_columns["start_s"]
    for now_s in sorted(set(start_s)):
        served = [int((start_s <= now_s)[[row for row, of in enumerate(users) if of == user]].sum()) for user in "AB"]
        if max(served) == 40:  # from here on one of them no longer waits
            return
        assert abs(served[0] / weights[0] - served[1] / weights[1]) <= 1 / min(weights) + 1e-12


def test_equal_gpu_seconds_weigh_requests_by_their_cost() -> None:
    """A's images take three times as long: of the same service B gets three for one of A."""
    users = "A" * 6 + "B" * 18
    full_s = [3.0] * 6 + [1.0] * 18
    shapes = tuple(np.array([value] * 6 + [other] * 18, np.int32) for value, other in ((64, 64), (64, 64), (150, 50)))
    for service in ("gpu-seconds", "declared-cost"):
        rule = Fair(service)  # type: ignore[arg-type]
        run = run_of(users, CentralQueue(rule), full_s=full_s, shapes=shapes, use_model_shape=False)
        order = turns(run, users)
        assert [order[: 4 * k].count("A") for k in range(1, 6)] == [1, 2, 3, 4, 5]


def test_gpu_seconds_are_corrected_when_a_request_ends() -> None:
    """The estimate is 1 s for all; A's really take 3 s, and A gets no more GPU seconds than B for that."""
    users = "A" * 9 + "B" * 27
    full_s = [3.0] * 9 + [1.0] * 27  # of no row, as an estimate is asked: the last one's
    order = turns(run_of(users, CentralQueue(Fair("gpu-seconds")), full_s=full_s), users)
    spent = {"A": 0.0, "B": 0.0}
    for user in order[:-4]:
        spent[user] += 3.0 if user == "A" else 1.0
        assert abs(spent["A"] - spent["B"]) <= 3.0


@pytest.mark.parametrize("service", ["requests", "gpu-seconds"])
def test_idle_tenant_banks_no_credit(service: Any) -> None:
    """B is idle while A gets 20, and then both always wait: they take turns, and B does not get 20 in a row."""
    users, times = "A" * 40 + "B" * 10, [0.0] * 40 + [20.5] * 10
    run = run_of(users, CentralQueue(Fair(service)), times)
    assert turns(run, users) == "A" * 21 + "BA" * 10 + "A" * 9


def test_service_that_nobody_else_asked_for_is_not_held_against_a_tenant() -> None:
    """A has the GPU alone for 10 s. After a pause both wait: they take turns, and B does not get 10 s at first."""
    users, times = "A" + "BA" * 4, [0.0] + [100.0] * 8
    run = run_of(users, CentralQueue(Fair("gpu-seconds")), times, full_s=[10.0] + [1.0] * 8)
    assert turns(run, users) == "A" + "BA" * 4


def test_newcomer_goes_before_those_that_had_their_turn() -> None:
    """D comes while A's second request runs, when B is next."""
    users, times = "AAABBBD", [0.0] * 6 + [2.5]
    assert turns(run_of(users, CentralQueue(Fair()), times), users) == "ABADBAB"


@settings(max_examples=25)
@given(
    users=st.text(USERS, min_size=1, max_size=30),
    gaps=st.lists(st.integers(0, 2), min_size=30, max_size=30),
    gpus=st.integers(1, 2),
)
def test_no_request_waits_for_more_than_a_turn_of_each_other_tenant(users: str, gaps: list[int], gpus: int) -> None:
    """So no request starves: those of its own tenant before it wait likewise, and on each GPU one may be ahead."""
    times = np.cumsum(gaps[: len(users)]).astype(float)
    run = run_of(users, CentralQueue(Fair()), times, count=gpus)
    start_s = run.record.request_columns["start_s"]
    order = sorted(range(len(users)), key=lambda row: (start_s[row], run.record.request_columns["worker"][row]))
    for row, user in enumerate(users):
        overtook = [users[other] for other in order if times[row] < start_s[other] < start_s[row]]
        ahead = sum(users[other] == user and times[other] <= times[row] and other < row and start_s[other] >= times[row]
                    for other in order)  # fmt: skip
        for other in {*USERS} - {user}:
            assert overtook.count(other) <= ahead + 1 + gpus


@settings(max_examples=40)
@given(
    users=st.text("AB ", min_size=1, max_size=25),
    gaps=st.lists(st.integers(0, 1), min_size=25, max_size=25),
    limits=st.fixed_dictionaries(dict.fromkeys(LIMITS, st.none() | st.integers(1, 3))),
    gpus=st.integers(1, 4),
    central=st.booleans(),
    shares=st.booleans(),
)  # fmt: skip
def test_limits_are_never_exceeded(
    users: str, gaps: list[int], limits: dict[str, int | None], gpus: int, central: bool, shares: bool
) -> None:
    if users.isspace() or (not shares and set(limits.values()) == {None}):
        return
    times = np.cumsum(gaps[: len(users)]).astype(float)
    rule = Fair("requests" if shares else None, **limits)  # type: ignore[arg-type]
    scheduler = CentralQueue(rule) if central else PerWorkerQueues(LeastOutstanding(), rule)
    run = run_of(users, scheduler, times, count=gpus if central else 1, full_s=[2.0] * len(users))
    columns = run.record.request_columns
    start_s, finish_s, outcome = (columns[name] for name in ("start_s", "finish_s", "outcome"))
    for user in {*users}:
        rows = [row for row in range(len(users)) if users[row] == user and outcome[row] == COMPLETED]
        running, waiting = ([np.array([(a <= t < b) for a, b in spans]).sum() for t in {*times, *finish_s}]
                            for spans in ([(start_s[row], finish_s[row]) for row in rows],
                                          [(times[row], start_s[row]) for row in rows]))  # fmt: skip
        assert max(running, default=0) <= (limits["max_running"] or gpus)
        assert max(waiting, default=0) <= (limits["max_queued"] or len(users))
        assert max((a + b for a, b in zip(running, waiting, strict=True)), default=0) <= (
            limits["max_in_flight"] or len(users)
        )
        # Only those that are over a limit are discarded, each for its reason.
        for row in (row for row in range(len(users)) if users[row] == user and outcome[row] == DISCARDED):
            assert columns.reasons[row] in (TOO_MANY_QUEUED, TOO_MANY_IN_FLIGHT)
            at = [r for r in rows if times[r] <= times[row] and r < row and finish_s[r] >= times[row]]
            assert len(at) >= min(limits["max_queued"] or 99, limits["max_in_flight"] or 99)


def test_tenant_at_its_limit_is_overtaken_and_leaves_a_gpu_idle() -> None:
    run = run_of("AAAB", CentralQueue(Fair(None, max_running=1)), [0.0, 0.0, 0.0, 0.5], count=2)
    assert run.record.request_columns["start_s"].tolist() == [0.0, 1.0, 2.0, 0.5]


def test_tenant_below_its_limit_again_is_served_by_any_idle_worker() -> None:
    """A's first request ends on a worker that loads another model then; its second starts at once on the other."""
    run = run_of(
        "AA", CentralQueue(Fair(max_running=1)), count=2, controllers=[Acts((0.5, order(0, "small")))],
        backend=FixedTimes([1.0, 1.0], load_s=5.0),
    )  # fmt: skip
    assert run.record.request_columns["start_s"].tolist() == [0.0, 1.0]
    assert run.record.request_columns["worker"].tolist() == [0, 1]


def test_moved_requests_are_not_discarded_by_limits() -> None:
    """Three wait at the worker that leaves the cluster's large ones, two more than may wait."""
    rule = Fair(max_queued=2)
    run = run_of(
        "AAAAAA", PerWorkerQueues(LeastOutstanding(), rule), count=2, controllers=[Acts((0.5, order(0, "small")))]
    )
    assert (run.record.request_columns["outcome"] == COMPLETED).all()


def test_requests_without_user_are_one_tenant() -> None:
    users = "  AA"
    run = run_of(users, CentralQueue(Fair()))
    assert turns(run, users) == " A A"
    noted = next(noted for noted in run.record.assumptions if noted.what.startswith("requests without user_id"))
    assert noted.value == 2


def test_higher_priority_goes_first_among_requests_of_one_tenant_only() -> None:
    rule = Fair(within="priority")
    run = run_of("AAABB", CentralQueue(rule), priority=(0, 0, 5, 0, 9))
    assert run.record.request_columns["start_s"].tolist() == [0.0, 4.0, 2.0, 3.0, 1.0]


@pytest.mark.parametrize(
    ("rule", "users", "says"),
    [
        (Fair(), "   ", "no request of the trace has one"),
        (Fair(weight_by_user={"Z": 2}), "AB", "found 'Z', which is no user_id of the trace; expected some of its 2"),
        (Fair(None, {"A": 2}, max_queued=1), "AB", "discipline.weight_by_user: found some beside"),
        (Fair(None), "AB", "found null and no limit"),
        (Fair(within="priority"), "AB", "found priority, and no request of the trace has one"),
        (SimpleNamespace(executor=None), "AB", "looks at the batch of one worker, beside scheduler=central"),
    ],
)
def test_settings_without_effect_are_refused(rule: Any, users: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        run_of(users, CentralQueue(rule))
