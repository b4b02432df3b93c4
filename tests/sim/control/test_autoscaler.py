"""Laws of autoscaling: what is paid, what runs where, and what each rule wants."""

import gzip
import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mezzotint.sim.control.autoscaler import Autoscaler, ScalingRule
from mezzotint.sim.control.instances import Instances
from mezzotint.sim.control.scaling_rules import (
    PendingRequests,
    QueueingModel,
    TargetUtilisation,
    mean_latency,
    sustained_load,
)
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.engine import Engine
from mezzotint.sim.metrics.cost import cost
from mezzotint.sim.metrics.time_series import series
from mezzotint.sim.protocols import Controller, Run
from tests.sim.lab import FixedTimes, engine, simulated, simulated_with

RULES = ("utilisation", "pending", "queueing-model", "foresight")
H100 = ("cluster=h100", "cluster.count=8", "trace.requests=1500")
WAVES = (*H100, "arrivals=fluctuating", "arrivals.rate_rpm=40", "arrivals.levels=[1,5]", "arrivals.every_s=600")


class Script(Controller):
    """Begins with ``on`` GPUs, then gives each order: (time, ``order`` or ``give_back``, instance)."""

    def __init__(self, on: int, orders: Sequence[tuple[float, str, int]], startup_s: float = 0.0) -> None:
        self.on, self.orders, self.startup_s = on, orders, startup_s

    def bind(self, run: Run) -> None:
        run.cluster.rent(self.on)
        run.process(self.follow(run))

    def follow(self, run: Run) -> Any:
        for at_s, what, instance in self.orders:
            yield run.clock.sleep_until(at_s)
            if what == "order":
                run.cluster.start_instance(instance, self.startup_s, at_s)
            else:
                run.cluster.stop_instance(instance, at_s)


class Wishes(ScalingRule):
    """Wants one number after another, then the last."""

    def __init__(self, wishes: Sequence[float]) -> None:
        self.left = list(wishes)

    def bind(self, run: Run, instances: Instances) -> None:
        pass

    def wanted(self, now_s: float) -> float:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


def served(times: Sequence[float], full_s: float, controller: Controller, count: int = 2, **parts: Any) -> Engine:
    """Run requests of ``full_s`` seconds on ``count`` GPUs."""
    load_s = parts.pop("load_s", 0.0)
    backend = FixedTimes([full_s] * len(times), load_s)
    made = engine(times, [full_s] * len(times), count, controllers=[controller], backend=backend, **parts)
    made.run()
    return made


def latencies(made: Engine) -> Any:
    columns = made.record.request_columns
    return np.asarray(columns["finish_s"]) - np.asarray(columns["arrival_s"])


# -- what is paid ----------------------------------------------------------------------------------------------------


fixed_outcome = cache(simulated)
"""Runs without an autoscaler, which the rules share."""


@pytest.mark.parametrize("system", ["vanilla", "nirvana", "orca", "static-batches"])
@pytest.mark.parametrize("rule", RULES[:3])
def test_autoscaler_that_keeps_all_gpus_changes_nothing(system: str, rule: str) -> None:
    words = (*H100, f"system={system}", "arrivals.rate_rpm=60", "trace.requests=400")
    fixed = fixed_outcome(*words)
    scaled = simulated_with("controller", f"autoscale-{rule}", *words, min_gpus=8, startup_s=0)
    assert scaled.requests.equals(fixed.requests)
    assert scaled.cluster.select(fixed.cluster.column_names).equals(fixed.cluster)
    different = {key for key, value in fixed.summary.items() if scaled.summary[key] != value}
    assert different <= {"assumptions", "state", "wall"}
    assert scaled.summary["state"] | {"periods": {}, "note": None} == fixed.summary["state"]


def test_gpu_is_paid_from_its_order_to_its_release() -> None:
    """GPU 0 is on for all 400 s, GPU 1 is ordered at 50 s, ready at 80 s and given back at 200 s."""
    made = served(
        [0.0, 390.0], 10.0, Script(1, [(50.0, "order", 1), (200.0, "give_back", 1)], 10.0), load_s=20.0,
        gpu=Gpu("test", 300.0, 60.0, "made up", usd_per_gpu_h=7.2),
    )  # fmt: skip
    log = made.record.usage_log
    assert log.rentals == [(1, "off", 0.0, 50.0), (1, "starting", 50.0, 60.0), (1, "off", 200.0, 400.0)]
    off_s = log.off_s(0.0, 400.0)
    assert off_s == 250.0
    paid = cost(made.record, {next(iter(made.cluster.kinds)): 2}, {}, 400.0, 2, off_s)
    assert paid["total"] == pytest.approx(7.2 / 3600 * (400 + 150))


@pytest.mark.parametrize("rule", RULES)
def test_cost_and_energy_follow_the_paid_seconds(rule: str) -> None:
    found = simulated(*WAVES, f"controller=autoscale-{rule}", "cluster.gpu.usd_per_gpu_h=3.6")
    summary, table = found.summary, found.cluster
    paid_s = summary["gpu"]["seconds"]
    assert summary["cost_usd"]["total"] == pytest.approx(paid_s / 1000)
    busy_s = paid_s * summary["gpu"]["busy_fraction"]
    assert summary["energy_j"]["total"] == pytest.approx(700 * busy_s + 140 * (paid_s - busy_s), rel=1e-6)
    on = np.asarray(table["gpus_on"]) + np.asarray(table["gpus_starting"])
    sampled_s = float((on * np.asarray(table["seconds"])).sum())
    assert paid_s == pytest.approx(sampled_s, rel=0.1), "draining GPUs are paid and not counted; samples are a minute"
    window_s = float(np.asarray(table["seconds"]).sum())
    assert busy_s <= paid_s < 8 * window_s


def test_instances_are_ordered_and_paid_whole() -> None:
    """Ten A10G are two and a half instances of four: the last one is paid whole, and GPUs come and go by instances."""
    words = ["cluster=a10g", "cluster.count=10", "trace.requests=600", "arrivals=fluctuating", "arrivals.rate_rpm=20"]
    words += ["arrivals.every_s=600", "controller=autoscale-pending", "controller.stabilisation_s=60"]
    found = simulated(*words, "controller.min_gpus=2")
    counts = np.unique(np.asarray(found.cluster["gpus_on"]) + np.asarray(found.cluster["gpus_starting"]))
    assert set(counts.tolist()) == {4, 8, 10}
    price = 8.144 / 4 / 3600
    total, seconds = found.summary["cost_usd"]["total"], found.summary["gpu"]["seconds"]
    assert price * seconds < total < price * seconds * 12 / 10


def test_start_that_is_broken_off_is_paid_until_then() -> None:
    starting = [(10.0, "order", 1), (30.0, "give_back", 1)]
    made = served([0.0, 95.0], 5.0, Script(1, starting, 60.0))
    assert made.record.usage_log.off_s(0.0, 100.0) == 10 + 70
    made = served([0.0, 95.0], 5.0, Script(1, starting, 5.0), load_s=60.0)
    assert made.record.usage_log.off_s(0.0, 100.0) == 10 + 70
    assert made.record.usage_log.inside(0.0, 100.0, [1, 1]).switch_s == 15.0, "it loaded from 15 to 30 s"


# -- what runs where -------------------------------------------------------------------------------------------------


def test_gpu_finishes_its_request_before_it_is_off() -> None:
    made = served([0.0, 0.0, 1.0, 100.0], 20.0, Script(2, [(5.0, "give_back", 1)]))
    columns = made.record.request_columns
    assert columns["finish_s"].tolist() == [20.0, 20.0, 40.0, 120.0]
    assert columns["worker"].tolist() == [0, 1, 0, 0], "the third request waits for GPU 0, though GPU 1 was as early"
    assert made.record.usage_log.rentals == [(1, "off", 20.0, 120.0)]


def test_draining_gpu_that_is_ordered_again_serves_at_once() -> None:
    orders = [(5.0, "give_back", 1), (15.0, "order", 1)]
    made = served([0.0, 0.0, 16.0, 16.0], 20.0, Script(2, orders, 1000.0))
    assert made.record.request_columns["finish_s"].tolist() == [20.0, 20.0, 40.0, 40.0]
    assert made.record.usage_log.rentals == []


def test_request_waits_for_start_and_load() -> None:
    made = served([0.0, 1.0], 100.0, Script(1, [(1.0, "order", 1)], 10.0), load_s=7.0)
    assert latencies(made).tolist() == [100.0, 117.0]


@given(startup_s=st.floats(0, 300), longer_s=st.floats(0, 300), seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_longer_start_never_makes_a_request_earlier(startup_s: float, longer_s: float, seed: int) -> None:
    times = np.sort(np.random.default_rng(seed).uniform(0, 2000, 150)).tolist()
    orders = [(300.0, "order", 1), (500.0, "order", 2), (1200.0, "order", 3)]
    short, long = (
        latencies(served(times, 20.0, Script(1, orders, seconds), 4)) for seconds in (startup_s, startup_s + longer_s)
    )
    assert (long >= short - 1e-6).all()


@given(
    wishes=st.lists(st.floats(0, 40), min_size=1, max_size=40),
    bounds=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
)
@example(wishes=[9.0, 0.0], bounds=(4, 9, 2))
@settings(max_examples=40, deadline=None)
def test_gpus_stay_within_their_bounds(wishes: list[float], bounds: tuple[int, int, int]) -> None:
    low, high, size = min(bounds[:2]), max(bounds[:2]), bounds[2]
    if high < 9 and high // size < math.ceil(low / size):
        return  # no whole number of instances is within the bounds
    scaler = Autoscaler(Wishes(wishes), 7.0, 10.0, min_gpus=low, max_gpus=high, stabilisation_s=15.0)
    gpu = Gpu("test", None, None, "made up", 1.0, size)
    made = served([3.0 * at for at in range(150)], 9.0, scaler, 9, gpu=gpu, sample_s=1.0, load_s=2.0)
    table = series(made.record)
    ordered = np.asarray(table["gpus_on"]) + np.asarray(table["gpus_starting"])
    assert ordered.min() >= low
    assert ordered.max() <= high


@pytest.mark.parametrize("router", ["round-robin", "least-work-left"])
def test_queue_of_a_gpu_that_goes_is_routed_again(router: str) -> None:
    words = [*WAVES, "scheduler=per-worker", f"router={router}", "controller=autoscale-utilisation"]
    found = simulated(*words, "controller.stabilisation_s=30", "controller.startup_s=30")
    assert found.summary["requests"]["completed"] == 1500
    assert found.summary["gpu"]["seconds"] < 8 * float(np.asarray(found.cluster["seconds"]).sum())


def test_work_on_a_gpu_that_is_off_ends_the_run() -> None:
    class Liar(Script):
        def follow(self, run: Any) -> Any:
            yield run.clock.sleep_until(3.0)
            run.record.usage_log.rentals.append((0, "off", 2.0, 3.0))

    with pytest.raises(
        SimulationError, match=r"Sequential.* ran something on GPU 0 from 0\.0 s to 10\.0 s, and it was"
    ):
        served([0.0], 10.0, Liar(2, []))


def test_timeline_and_decisions_show_rented_gpus(tmp_path: Path) -> None:
    found = simulated(*WAVES, "controller=autoscale-utilisation", "timeline=true")
    assert found.timeline is not None
    found.timeline(tmp_path / "timeline.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "timeline.json.gz").read_bytes()))["traceEvents"]
    rentals = [event for event in events if event.get("cat") == "rental"]
    assert {event["name"] for event in rentals} == {"off", "starting"}
    starts_s = [event["dur"] / 1e6 for event in rentals if event["name"] == "starting"]
    assert max(starts_s) == pytest.approx(180.0), "one may be broken off"
    assert {event["name"] for event in events if event.get("cat") == "decision"} == {"scale", "rent", "give back"}


# -- what each rule wants --------------------------------------------------------------------------------------------


def decided(made: Engine) -> list[tuple[float, int]]:
    """Return the time and the GPUs of every change of their number."""
    return [(at_s, details["gpus"]) for at_s, what, details in made.record.decisions if what == "scale"]


def test_utilisation_rule_wants_gpus_times_utilisation_over_target() -> None:
    """Two GPUs, always busy, of a target of 0.6: ceil(2 x 1 / 0.6) = 4. Two that start count as idle."""
    scaler = Autoscaler(TargetUtilisation(0.6, 30.0), 50.0, 10.0, start_gpus=2)
    made = served([0.0] * 12, 100.0, scaler, 8)
    assert decided(made)[:2] == [(10.0, 4), (60.0, 7)]


def test_pending_rule_wants_requests_over_requests_per_gpu() -> None:
    for count, wanted in (("in_system", 5), ("waiting", 4)):
        scaler = Autoscaler(PendingRequests(2.0, count), 1000.0, 10.0, start_gpus=2)  # type: ignore[arg-type]
        made = served([0.0] * 10, 100.0, scaler, 8)
        assert decided(made)[0] == (10.0, wanted)


def test_difference_within_the_tolerance_changes_nothing() -> None:
    for wish, gpus in ((4.39, None), (4.41, 5)):
        made = served([0.0] * 9, 20.0, Autoscaler(Wishes([wish]), 0.0, 10.0, start_gpus=4), 9)
        assert dict(decided(made)).get(10.0) == gpus


def test_scale_down_waits_for_the_stabilisation_window() -> None:
    """It goes to the most that was wanted within the window, and never up to that."""
    wishes = [4.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    scaler = Autoscaler(Wishes(wishes), 0.0, 10.0, stabilisation_s=30.0, start_gpus=3)
    made = served([0.0, 195.0], 5.0, scaler, 5)
    assert decided(made) == [(10.0, 4), (40.0, 2), (60.0, 1)]


def test_first_decision_does_not_forget_the_gpus_at_the_start() -> None:
    """As in Kubernetes, whose autoscaler counts the number that it finds among its wishes."""
    scaler = Autoscaler(Wishes([0.0]), 0.0, 10.0, stabilisation_s=30.0, start_gpus=3)
    assert decided(served([0.0, 95.0], 5.0, scaler, 5)) == [(30.0, 1)]


@given(st.floats(1.01, 1000))
def test_one_at_a_time_the_queueing_rule_is_mm1(multiplier: float) -> None:
    load = sustained_load([1.0], multiplier)
    assert load == pytest.approx(1 - 1 / multiplier)
    assert mean_latency([1.0], load) == pytest.approx(1 / (1 - load)) == pytest.approx(multiplier)


@given(st.integers(2, 20), st.floats(0.05, 0.95))
def test_batches_that_cost_nothing_are_an_mmc_queue(servers: int, utilisation: float) -> None:
    """Of c servers, by Erlang's C."""
    load = servers * utilisation
    terms = [load**n / math.factorial(n) for n in range(servers)]
    waits = load**servers / math.factorial(servers) / (1 - utilisation)
    waiting = waits / (sum(terms) + waits)
    speeds = [float(n) for n in range(1, servers + 1)]
    assert mean_latency(speeds, load) == pytest.approx(1 + waiting / (servers - load))


def test_queueing_rule_wants_the_rate_over_the_rate_of_one_gpu() -> None:
    """One request every 2 s of 20 s each is a load of 10; a GPU holds 2/3 of one at three times the latency: 15."""
    scaler = Autoscaler(QueueingModel(3.0, 100.0), 0.0, 100.0, start_gpus=12)
    made = served([1.0 + 2.0 * at for at in range(60)], 20.0, scaler, 30)
    assert decided(made)[0] == (100.0, 15)


def test_queueing_rule_counts_the_steps_that_hits_run() -> None:
    words = [*WAVES, "controller=autoscale-queueing-model"]
    full = simulated(*words, "system=vanilla").summary["gpu"]["seconds"]
    hits = ["system=nirvana", "hits=declared", "hits.hit_rate=1", "hits.mean_k=25"]
    assert simulated(*words, *hits).summary["gpu"]["seconds"] < 0.8 * full


# -- what cannot be ----------------------------------------------------------------------------------------------------

UTILISATION = "controller=autoscale-utilisation"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((UTILISATION, "controller.min_gpus=9"), "controller.min_gpus: found 9, expected at most cluster.count=8"),
        (
            (UTILISATION, "controller.min_gpus=4", "controller.max_gpus=2"),
            "min_gpus: found 4, expected at most max_gpus=2",
        ),
        ((UTILISATION, "controller.max_gpus=9"), "controller.max_gpus: found 9, expected at most cluster.count=8"),
        (
            (UTILISATION, "controller.max_gpus=4", "controller.start_gpus=5"),
            "controller.start_gpus: found 5, expected 1",
        ),
        ((UTILISATION, "cluster=a10g", "cluster.count=8", "controller.max_gpus=3"), "expected a multiple between them"),
        ((UTILISATION, "controller.rule.target=0"), "controller.rule.target: found 0"),
        ((UTILISATION, "controller.startup_s=-1"), "controller.startup_s: found -1"),
        ((UTILISATION, "controller.period_s=0"), "controller.period_s: found 0"),
        (("controller=autoscale-queueing-model", "controller.rule.slo_multiplier=1"), "slo_multiplier: found 1"),
        (("controller=autoscale-pending", "controller.rule.count=all"), "controller.rule.count: found 'all'"),
        ((UTILISATION, "failures=random"), "failures: found outages beside a controller that gives GPUs back"),
        (
            (UTILISATION, "system=modm-throughput", "cluster=mi210", "models=sd35l-sdxl", UTILISATION),
            "controller: found GPUs of several roles",
        ),
        (
            (UTILISATION, "system=patched-add-ons", "cluster=h800-batches", "trace=add-ons", "cluster.count=8"),
            "controller: found 2 GPUs in the role controlnet-server",
        ),
        (
            (UTILISATION, "system=patchedserve", "discipline=shortest-remaining", "latency_predictor=known"),
            "discipline: found one that preempts beside a controller",
        ),
        (
            (
                UTILISATION,
                "system=rssp",
                "group_policy=fixed-groups",
                "models=flux-dev-xdit",
                "~group_policy.degree_by_size",
            ),
            "controller: found Autoscaler beside the group policy FixedGroups, which counts on the GPUs",
        ),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        simulated("cluster=h100", "cluster.count=8", "trace.requests=100", *words)
    assert message in str(refused.value)
