"""Handling with every executor: seconds without a GPU, which overlap the next request or hold its GPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mezzotint.sim.cache.admission import Misses
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.handling import NO_HANDLING, Handling
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.protocols import GroupPolicy
from mezzotint.sim.run.config.settings import check
from mezzotint.sim.scheduling.batching.dynamic import DynamicBatching
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.central_pull import CentralPull
from mezzotint.sim.scheduling.group_policies.edf import EarliestDeadline
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.group_policies.fixed_groups import FixedGroups
from mezzotint.sim.scheduling.group_policies.tails import TailQuota
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.similarity.similarities import TextToText
from tests.sim.lab import configured, engine, simulated
from tests.sim.scheduling.group_policies.test_tails import EqualSteps

SERVICE_S, AFTER_S, BEFORE_S = 4.0, 1.25, 0.75
MODELS = {role: Model(role, 4, 64, 64) for role in ("large", "small")}


def staged(policy: GroupPolicy) -> dict[str, Any]:
    return {"executor": Stages(policy, Scaled())}


SERVERS: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": lambda: {"executor": Sequential()},
    "static batches": lambda: {"executor": StaticBatch(1), "scheduler": DynamicBatching(1, 0.0)},
    "continuous batches": lambda: {"executor": ContinuousBatching(1)},
    "fixed degree": lambda: staged(FixedDegree(degree=1)),
    "edf-best-fit": lambda: staged(EarliestDeadline()),
    "central pull": lambda: staged(CentralPull(TailQuota(every=10**6, counted=0), pulls="finished")),
    "fixed groups": lambda: staged(FixedGroups()),
}
WAITING: dict[str, Callable[[], dict[str, Any]]] = {
    **{name: server for name, server in SERVERS.items() if name != "central pull"},
    "central pull": lambda: staged(CentralPull(TailQuota(every=10**6, counted=0), pulls="answered")),
}
"""The same, except for a policy that would choose the next request before its GPU is free."""
SHARED = [name for name in SERVERS if name != "fixed groups"]
"""Servers whose requests take the first GPU that is free."""


class OneGpu(EqualSteps):
    """A request runs on one GPU."""

    def group_sizes(self, model: str | None = None) -> tuple[int, ...]:
        return ()


def served(
    server: str, times: Any, handling: Handling = NO_HANDLING, service_s: float = SERVICE_S, gpus: int = 2, **parts: Any
) -> Engine:
    """Run as many requests as there are ``times``, or as a ``Schedule`` says, of equal service times."""
    count = parts.pop("rows", len(times) if hasattr(times, "__len__") else 0)
    full_s = [service_s] * count
    run = engine(
        times, full_s, gpus, backend=OneGpu(full_s), models=MODELS, handling=handling, **(SERVERS[server]() | parts)
    )
    run.run()
    return run


def arrivals(seed: int, rows: int = 120) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).exponential(SERVICE_S / 2 / 0.7, rows))


def column(run: Engine, name: str) -> np.ndarray:
    return np.asarray(run.record.request_columns[name])


def latency_s(run: Engine) -> np.ndarray:
    seconds: np.ndarray = column(run, "finish_s") - column(run, "arrival_s")
    return seconds


@pytest.mark.parametrize("server", SERVERS)
def test_handling_that_overlaps_is_added_to_every_latency_and_changes_no_start(server: str) -> None:
    """M/D/c: also the busy time is the same."""
    times = arrivals(1)
    plain, handled = served(server, times), served(server, times, Handling(after_s=AFTER_S))
    assert np.allclose(latency_s(handled), latency_s(plain) + AFTER_S)
    for name in ("start_s", "worker", "denoise_s", "energy_j"):
        assert (column(handled, name) == column(plain, name)).all()
    assert handled.record.usage_log.spans().tobytes() == plain.record.usage_log.spans().tobytes()


@pytest.mark.parametrize("server", WAITING)
def test_handling_that_holds_a_gpu_is_a_longer_service_and_no_busy_time(server: str) -> None:
    """M/D/c."""
    times, parts = arrivals(2), WAITING[server]
    held = served(server, times, Handling(after_s=AFTER_S, overlap=False), **parts())
    longer = served(server, times, service_s=SERVICE_S + AFTER_S, **parts())
    assert np.allclose(latency_s(held), latency_s(longer))
    assert np.allclose(column(held, "start_s"), column(longer, "start_s"))
    plain = served(server, times)
    assert np.allclose(column(held, "energy_j"), column(plain, "energy_j"))
    spans = held.record.usage_log.spans()
    assert np.isclose((spans["until_s"] - spans["from_s"]).sum(), len(times) * SERVICE_S)


@pytest.mark.parametrize("server", SERVERS)
def test_handling_before_the_gpu_delays_it_and_no_deadline(server: str) -> None:
    """As if every request arrived later, by its own clock earlier."""
    times = arrivals(3)
    handled = served(server, times, Handling(before_s=BEFORE_S), deadline=2.0)
    later = served(server, times + BEFORE_S, deadline=2.0)
    assert np.allclose(column(handled, "finish_s"), column(later, "finish_s"))
    assert np.allclose(column(handled, "arrival_s"), times)
    assert np.allclose(latency_s(handled), latency_s(later) + BEFORE_S)


def test_fixed_groups_serve_the_next_request_during_handling_that_overlaps() -> None:
    run = served("fixed groups", [0.0, 0.0], Handling(after_s=AFTER_S), gpus=1)
    assert column(run, "start_s").tolist() == [0.0, SERVICE_S]
    assert np.allclose(column(run, "finish_s"), [SERVICE_S + AFTER_S, 2 * SERVICE_S + AFTER_S])


def test_held_gpu_of_a_batch_waits_for_the_longest_or_for_each_answer() -> None:
    """Four requests at once: a static batch takes 4 + 1.25 s; a continuous one 4 s and then 1.25 s for each answer."""
    handling = Handling(after_s=AFTER_S, overlap=False)
    static: dict[str, Any] = {"executor": StaticBatch(4), "scheduler": DynamicBatching(4, 1.0)}
    run = served("sequential", np.zeros(4), handling, gpus=1, **static)
    assert np.allclose(column(run, "finish_s"), SERVICE_S + AFTER_S)
    run = served("sequential", np.zeros(4), handling, gpus=1, executor=ContinuousBatching(4))
    assert np.allclose(sorted(column(run, "finish_s")), SERVICE_S + AFTER_S * np.arange(1, 5))


def closed(server: str, clients: int, handling: Handling, rows: int, gpus: int, service_s: float) -> Engine:
    return served(server, Schedule(np.zeros(clients)), handling, service_s, gpus, rows=rows)


@pytest.mark.parametrize("server", SHARED)
def test_hand_over_costs_replicas_throughput_only_where_it_holds_them_or_nobody_waits(server: str) -> None:
    """n replicas make n / (S + h) requests a second in a closed loop of n clients, and n / S with twice as many clients
    if the hand-over overlaps. Wan2.2 on 1 and 4 A800: 4.71 and 18.02 videos a minute (vLLM-Omni, pull request 5052),
    with a hand-over of .3 s on one and .87 s on four."""
    service_s, rows = 12.44, 400

    def per_minute(clients: int, gpus: int, after_s: float, overlap: bool) -> float:
        run = closed(server, clients, Handling(after_s=after_s, overlap=overlap), rows, gpus, service_s)
        return 60 * rows / float(column(run, "finish_s").max())

    assert per_minute(1, 1, 0.3, True) == pytest.approx(4.71, rel=0.002)
    assert per_minute(4, 4, 0.87, True) == pytest.approx(18.02, rel=0.002)
    assert per_minute(8, 4, 0.87, False) == pytest.approx(18.02, rel=0.002)
    assert per_minute(8, 4, 0.87, True) == pytest.approx(4 * 60 / service_s, rel=0.002)


def test_overlapping_handling_gives_a_measured_closed_loop() -> None:
    """Cosmos3-Super on 8 H200 as one server: 127.6 s alone, of which 14.4 s overlap (vLLM-Omni's dashboard, 7.3). Two
    clients, four requests: mean 208.2 s, median 230.1 s, 30.43 clips an hour; held GPUs would make 28.2."""
    alone_s, after_s = 127.6, 14.4
    run = closed("sequential", 2, Handling(after_s=after_s), 4, 1, alone_s - after_s)
    assert latency_s(run).mean() == pytest.approx(208.2, rel=0.02)
    assert np.median(latency_s(run)) == pytest.approx(230.1, rel=0.02)
    assert 4 * 3600 / column(run, "finish_s").max() == pytest.approx(30.43, rel=0.02)
    held = closed("sequential", 2, Handling(after_s=after_s, overlap=False), 4, 1, alone_s - after_s)
    assert 4 * 3600 / column(held, "finish_s").max() == pytest.approx(3600 / alone_s)


def test_answer_from_the_cache_is_handled_without_a_gpu() -> None:
    for overlap in (True, False):
        cache = ArtifactCache(None, TextToText(), Fifo())
        frontend = CachedFrontEnd(cache, Thresholds({50: 0.9}), Misses(), search_s=0.1, fetch_s=0.2)
        run = engine(
            [0.0, 20.0], [9.0, 9.0], frontend=frontend, embeddings=lambda: np.ones((2, 1), np.float32),
            handling=Handling(BEFORE_S, AFTER_S, overlap),
        )  # fmt: skip
        run.run()
        assert column(run, "worker")[1] == MISSING
        assert np.allclose(latency_s(run), [BEFORE_S + 0.1 + 9.0 + AFTER_S, BEFORE_S + 0.1 + 0.2 + AFTER_S])


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("server", SERVERS)
def test_every_request_is_answered_once_though_gpus_fail_meanwhile(server: str, overlap: bool) -> None:
    times = arrivals(4, 60)
    outages = {gpu: [(float(at), float(at) + 3.0) for at in range(7 + gpu, 200, 11)] for gpu in range(2)}
    run = served(server, times, Handling(after_s=AFTER_S, overlap=overlap), controllers=[Failures(outages=outages)])
    assert run.gpu_failures > 10
    finish_s, start_s = column(run, "finish_s"), column(run, "start_s")
    assert (finish_s >= start_s + SERVICE_S + AFTER_S - 1e-9).all()
    for span in run.record.usage_log.spans():
        for gpu in run.cluster.gpus_of(span["worker"]):
            assert not any(down < span["until_s"] and span["from_s"] < up for down, up in outages[gpu])


def test_seconds_may_differ_by_size_and_enter_the_summary() -> None:
    load = ("trace.requests=20", "arrivals.rate_rpm=5")
    words = (*load, "handling.after_s=2", "handling.before_s=0.5")
    plain, other = simulated(*words), simulated(*words, "handling.by_size={1024x1024: 3}")
    latency = [np.subtract(run.requests.column("finish_s"), run.requests.column("arrival_s")) for run in (plain, other)]
    assert np.allclose(latency[1] - latency[0], 1.0)
    assert other.requests.column("handling_s").to_pylist() == [3.0] * 20
    assert other.summary["queue_s"] == pytest.approx(simulated(*load).summary["queue_s"], abs=1e-9)
    listed = {each["what"]: each["value"] for each in other.summary["assumptions"]}
    assert listed["seconds from the image to the answer"] == {"1024x1024": 3.0, "others": 2.0}
    assert listed["seconds before the GPU on none"] == 0.5
    assert listed["GPUs from the image to the answer"] == "serve others"


def test_former_settings_of_the_executor_name_their_successor() -> None:
    stages = configured("system=edf-best-fit")
    old = {**stages, "executor": {**stages["executor"], "handling_s": 0, "handling_by_size": None}}
    assert check(old).parts().get("executor") is not None
    with pytest.raises(ConfigError, match=r"executor\.handling_s: found 14\.4, which is handling\.after_s now"):
        check({**stages, "executor": {**stages["executor"], "handling_s": 14.4}})
    with pytest.raises(ConfigError, match=r"handling\.by_size.* expected sizes as WIDTHxHEIGHT"):
        check({**stages, "handling": {"by_size": {"square": 1.0}}})
