"""What clients do: hold back, give up, retry, hedge; and what a server does with a request that was given up."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mezzotint.sim.client.client import Impatient
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.handling import Handling
from mezzotint.sim.core.request import COMPLETED, Request
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.protocols import Client, Run, Sender
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.arrivals.closed import Closed
from tests.sim import lab

EXECUTORS = {"sequential": {}, "stages": {"executor": Stages()}, "groups": {"executor": Stages(EarliestDeadline())}}


def run(client: Any, times: Any, full_s: Any, **parts: Any) -> Any:
    engine = lab.engine(times, full_s, client=client, **parts)
    engine.run()
    return engine


def answered(engine: Any) -> NDArray[np.bool_]:
    return np.isfinite(engine.client.seen()["answered_s"])


def closed(clients: int) -> Schedule:
    return Schedule(np.zeros(clients))


def exponential(rows: int, rate: float, service_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(7)
    return np.cumsum(rng.exponential(1 / rate, rows)), rng.exponential(service_s, rows)


def test_three_clients_with_300_s_patience_get_two_of_thirty_images() -> None:
    # GLM-Image on a serial server (sglang issue 30634): 132.96 s alone, clients that give up after 300 s.
    assert answered(run(Impatient(timeout_s=300.0), closed(3), [132.96] * 30)).sum() == 2
    two = run(Impatient(timeout_s=300.0), closed(2), [132.96] * 20)
    seen = two.client.seen()
    assert answered(two).all()
    assert (seen["answered_s"] - seen["sent_s"]).mean() == pytest.approx(264.37, rel=0.03)


def test_eight_clients_with_600_s_patience_get_five_of_sixteen_videos() -> None:
    # Cosmos3-Super (vLLM-Omni dashboard 7.3): 127.6 s alone, of which 14.4 s overlap with the next request.
    handling = Handling(0.0, 14.4, True, {})
    assert answered(run(Impatient(timeout_s=600.0), closed(8), [113.2] * 16, handling=handling)).sum() == 5
    assert answered(run(Impatient(), closed(8), [113.2] * 16, handling=handling)).all()


@pytest.mark.parametrize("cancellation", ["never", "queued", "step"])
def test_share_answered_in_m_m_1_with_deterministic_patience(cancellation: Any) -> None:
    rate, service_s, patience_s, rows = 0.7, 1.0, 2.0, 6_000
    times, full_s = exponential(rows, rate, service_s)
    # Steps of a thousandth of a request: it stops at once, as the formula has it.
    shapes = tuple(np.full(rows, value, np.int32) for value in (64, 64, 1000))
    client = Impatient(timeout_s=patience_s, cancellation=cancellation)
    share = answered(run(client, times, full_s, shapes=shapes, use_model_shape=False)).mean()
    mu, theta = 1 / service_s, 1 / service_s - rate
    # The wait of an arrival has the density rate * p0 * exp(-theta * x) up to the patience in each case, as without it.
    below = 1 + rate * (1 - math.exp(-theta * patience_s)) / theta
    at_patience = rate * math.exp(-theta * patience_s)
    # Beyond: none (it stops); exp(-mu * (x - patience)) (it ends what it began); as before (it serves all).
    beyond = {"step": 0.0, "queued": at_patience / mu, "never": at_patience / theta}[cancellation]
    p0 = 1 / (below + beyond)
    in_time = (
        1
        - math.exp(-mu * patience_s)
        + rate
        * (
            (1 - math.exp(-theta * patience_s)) / theta
            - math.exp(-mu * patience_s) * (math.exp((mu - theta) * patience_s) - 1) / (mu - theta)
        )
    )
    assert share == pytest.approx(p0 * in_time, abs=0.02)


@pytest.mark.parametrize("parts", EXECUTORS.values(), ids=EXECUTORS)
def test_server_is_done_with_each_request_once(parts: dict[str, Any]) -> None:
    times, full_s = exponential(300, 1.2, 1.0)
    for cancellation in ("never", "queued", "step"):
        client = Impatient(timeout_s=2.5, cancellation=cancellation, max_retries=2, hedge_after_s=2.0)
        parts = {name: Stages(EarliestDeadline()) if part.group_policy else Stages() for name, part in parts.items()}
        engine = run(client, times, full_s, count=2, **parts)
        columns, seen = engine.record.request_columns, engine.client.seen()
        sent = columns["outcome"] > 0
        assert sent.sum() == seen["tries"].sum() == engine.arrived
        completed = (columns["outcome"] == COMPLETED).reshape(client.max_tries, -1).sum(axis=0)
        assert (completed == answered(engine)).all()
        spans = engine.record.usage_log.spans()
        busy_s = (spans["until_s"] - spans["from_s"]).sum()
        served_s = np.where(columns["outcome"] == COMPLETED, columns["denoise_s"] + columns["decode_s"], 0).sum()
        assert busy_s == pytest.approx(served_s + columns["wasted_gpu_s"].sum())
        if cancellation == "never":
            assert columns["wasted_gpu_s"].sum() > 100


def test_client_without_limits_changes_nothing() -> None:
    overrides = "system=nirvana", "trace.requests=40"
    alone, same = lab.simulated(*overrides), lab.simulated(*overrides, "client=impatient", "client.timeout_s=null")
    assert alone.requests.equals(same.requests)
    assert alone.cluster.equals(same.cluster)


def test_stopped_request_frees_its_gpu_at_its_next_step_boundary() -> None:
    # Fifty steps of .2 s each; the first gives up at 5.05 s, in its 26th step.
    engine = run(Impatient(timeout_s=5.05, cancellation="step"), [0.0, 1.0], [10.0, 5.0 * 0.09])
    columns = engine.record.request_columns
    assert columns["start_s"][1] == pytest.approx(5.2)
    assert columns["wasted_gpu_s"][0] == pytest.approx(5.2)
    batch = ContinuousBatching(max_batch=1)
    again = run(Impatient(timeout_s=5.05, cancellation="step"), [0.0, 1.0], [10.0, 5.0 * 0.09], executor=batch)
    assert again.record.request_columns["start_s"][1] == pytest.approx(5.2)


def test_batch_goes_on_without_the_member_that_is_given_up() -> None:
    batch = ContinuousBatching(max_batch=2)
    client = Impatient(timeout_s=5.0, cancellation="step")
    # Steps of .4 s together. The first stops at 5.2 s; the other has 42 of its 50 steps left, of .02 s each.
    engine = run(client, [0.0, 2.0], [20.0, 1.0], executor=batch)
    columns = engine.record.request_columns
    assert answered(engine).tolist() == [False, True]
    assert columns["finish_s"].tolist() == pytest.approx([5.0, 6.04])
    assert columns["wasted_gpu_s"].tolist() == pytest.approx([2.0 + 3.2 / 2, 0.0])


def test_closed_loop_with_exponential_think_times_uses_the_server_as_the_machine_repair_model() -> None:
    # M/M/1//N: N machines that run for think_s on average, and one repairman (Gross and Harris, section 2.9).
    rows, clients, service_s, think_s = 5_000, 4, 1.0, 3.0
    rng = np.random.default_rng(3)
    schedule = Closed(clients, think_s, "exponential").schedule(np.zeros(rows), rng)
    engine = lab.engine(schedule, rng.exponential(service_s, rows))
    engine.run()
    spans = engine.record.usage_log.spans()
    utilisation = (spans["until_s"] - spans["from_s"]).sum() / spans["until_s"].max()
    states = [math.perm(clients, broken) * (service_s / think_s) ** broken for broken in range(clients + 1)]
    assert utilisation == pytest.approx(1 - states[0] / sum(states), abs=0.02)


def test_batch_of_a_shared_stage_goes_on_without_the_member_that_is_given_up() -> None:
    # Hedges share the language model with their first tries; one of the two is dropped when the batch is launched anew.
    outcome = lab.simulated(
        "system=language-model", "cluster=a800", "cluster.count=2", "trace.requests=20", "arrivals.rate_rpm=10",
        "client=hedging", "client.hedge_after_s=15", "+client.timeout_s=30",
    )  # fmt: skip
    summary = outcome.summary
    assert summary["requests"]["arrived"] == len(outcome.requests) == 20 + summary["client"]["hedges"]
    assert 0 < summary["requests"]["completed"] == summary["client"]["answered"]


def test_answer_at_the_timeout_counts() -> None:
    assert answered(run(Impatient(timeout_s=4.0), [0.0], [4.0])).all()


def test_requests_beyond_the_limit_wait_at_the_client_in_order() -> None:
    engine = run(Impatient(max_in_flight=1), [0.0, 0.1, 0.2, 0.3], [1.0] * 4, count=4)
    seen = engine.client.seen()
    assert seen["sent_s"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert seen["due_s"].tolist() == [0.0, 0.1, 0.2, 0.3]


def test_back_off_doubles_up_to_its_bound() -> None:
    client = Impatient(timeout_s=1.0, max_retries=4, backoff_s=1.0, max_backoff_s=4.0, jitter="none")
    engine = run(client, [0.0], [100.0])
    sent_s = np.sort(engine.record.request_columns["arrival_s"])
    assert sent_s.tolist() == [0.0, 2.0, 5.0, 10.0, 15.0]


def test_retry_budget_bounds_the_storm() -> None:
    times, full_s = exponential(400, 2.0, 1.0)
    tries = [
        run(Impatient(timeout_s=2.0, max_retries=5, retry_budget=budget), times, full_s).client.seen()["tries"].sum()
        for budget in (0.2, None)
    ]
    assert tries[0] <= 400 * 1.2 < tries[1]


def test_hedge_takes_the_first_answer_and_stops_the_other_try() -> None:
    # The first request holds one GPU for long; its hedge runs on the other one, as long.
    client = Impatient(hedge_after_s=1.0, cancellation="step")
    engine = run(client, [0.0, 0.0], [2.0, 10.0], count=2)
    seen = engine.client.seen()
    assert seen["hedges"].tolist() == [1, 1]
    assert answered(engine).all()
    assert (engine.record.request_columns["outcome"] == COMPLETED).sum() == 2


def test_client_refuses_what_has_no_effect() -> None:
    with pytest.raises(ConfigError, match=r"client\.cancellation"):
        Impatient(cancellation="step")
    with pytest.raises(ConfigError, match=r"client\.retry_budget"):
        Impatient(timeout_s=1.0, retry_budget=0.2)
    with pytest.raises(ConfigError, match=r"client\.patience"):
        Impatient(patience="exponential")
    with pytest.raises(ConfigError, match=r"client\.cancellation: found step, and StaticBatch"):
        run(Impatient(timeout_s=1.0, cancellation="step"), [0.0], [1.0], executor=StaticBatch(2))


class Silent(Client):
    """A client of somebody else that sends nothing."""

    def bind(self, run: Run, sender: Sender) -> None:
        pass

    def due(self, row: int, now_s: float) -> None:
        pass

    def ended(self, request: Request, outcome: int, now_s: float) -> None:
        pass


class Patient(Silent):
    """Sends each request as it is due, and one of them ``times`` times."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def bind(self, run: Run, sender: Sender) -> None:
        self.sender = sender

    def due(self, row: int, now_s: float) -> None:
        request = self.sender.make(row)
        for _ in range(self.times if row else 1):
            self.sender.send(request)


def test_client_that_does_not_send_or_sends_twice_ends_the_run_with_its_name() -> None:
    assert (run(Patient(), [0.0, 1.0], [1.0, 1.0]).record.request_columns["outcome"] == COMPLETED).all()
    with pytest.raises(SimulationError, match=r"Silent\) sent 0; send each row"):
        run(Silent(), [0.0, 1.0], [1.0, 1.0])
    with pytest.raises(SimulationError, match=r"Patient\) sends the request in row 1 twice"):
        run(Patient(2), [0.0, 1.0], [1.0, 1.0])


def test_rows_of_a_run_with_retries_are_its_tries_in_the_order_of_arrival() -> None:
    outcome = lab.simulated(
        "trace.requests=60", "cluster.count=2", "client=retrying", "client.timeout_s=200", "client.max_retries=1"
    )
    requests, client = outcome.requests, outcome.summary["client"]
    arrival_s = requests.column("arrival_s").to_numpy()
    assert (np.diff(arrival_s) >= 0).all()
    ids, number = requests.column("request_id").to_pylist(), requests.column("try").to_numpy()
    assert len(requests) == len(set(ids)) == 60 + client["retries"] > 60
    assert [name.endswith("~2") for name in ids] == (number == 2).tolist()
    assert outcome.summary["requests"]["arrived"] == len(requests)
    # The server works on after the last client has gone, and the summary ends with it.
    assert 0 < client["wasted_gpu_s"] <= requests.column("wasted_gpu_s").to_numpy().sum()
