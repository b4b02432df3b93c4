"""Servers that start: seconds until they are ready, first compilations of a shape, warm-up, crashes and rentals."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.backends.base import ServerStart, Work
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.server import Server
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.metrics.header import header
from mezzotint.sim.protocols import Executor
from mezzotint.sim.run.simulate import simulate
from mezzotint.sim.scheduling.batching.dynamic import DynamicBatching
from mezzotint.sim.scheduling.estimates import Scaled
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from tests.sim.control.test_autoscaler import Script
from tests.sim.execution.stages.test_life import ByDegree
from tests.sim.execution.stages.test_pulled import COLUMNS
from tests.sim.lab import FixedTimes, configured, engine

READY_S, LOAD_S = 9.0, 4.0
COMPILE_S: Mapping[tuple[int, int, int], float] = {(64, 64, 1): 20.0, (32, 32, 1): 6.0, (16, 16, 1): 1.0}
START = ServerStart(READY_S, COMPILE_S, None, "a log", "a log")
SIZES = np.array([16, 32, 64], np.int32)


class Cold(FixedTimes):
    """A server that is ready after 9 s, 4 of them its load, and takes 20, 6 or 1 s longer for the first of a shape."""

    start = START

    def server_start(self, model: str) -> ServerStart:
        return self.start


def served(times: Any, full_s: Any, count: int = 1, sides: Any = 64, **parts: Any) -> Engine:
    """Run requests of ``full_s`` seconds and images of ``sides`` pixels a side."""
    side = np.broadcast_to(np.asarray(sides, np.int32), len(full_s))
    backend = parts.pop("backend", None) or Cold([float(each) for each in full_s], LOAD_S)
    shapes = side, side, np.full(len(full_s), 8, np.int32)
    run = engine(times, full_s, count, use_model_shape=False, shapes=shapes, backend=backend, **parts)
    run.run()
    return run


def busy(run: Engine, *kinds: str) -> list[tuple[str, float, float]]:
    """Return kind, begin and end of each busy span of ``kinds``, in order of time."""
    log, names = run.record.usage_log, {code: kind for kind, code in run.record.usage_log.kinds.items()}
    spans = [(names[each["kind"]], float(each["from_s"]), float(each["until_s"])) for each in log.spans()]
    return sorted((span for span in spans if span[0] in kinds), key=lambda span: span[1:])


@pytest.mark.parametrize("seed", range(12))
def test_first_request_of_a_shape_on_a_worker_takes_exactly_its_seconds_longer(seed: int) -> None:
    """Kiefer and Wolfowitz's recursion by hand, Lindley's with one worker: each of w workers compiles s shapes once."""
    rng = np.random.default_rng(seed)
    count, workers = int(rng.integers(5, 60)), int(rng.integers(1, 5))
    times, full_s = np.cumsum(rng.exponential(4.0, count)), rng.exponential(5.0, count)
    sides = rng.choice(SIZES, count)
    columns = served(times, full_s, workers, sides, server=Server(begin="ready")).record.request_columns
    free_s, compiled, compilations = np.zeros(workers), set(), 0
    for row in range(count):
        # The worker that ran: of several that are idle, the longest idle one.
        worker = int(columns["worker"][row])
        assert free_s[worker] <= max(times[row], free_s.min()) + 1e-9
        shape = worker, int(sides[row])
        first_s = 0.0 if shape in compiled else COMPILE_S[shape[1], shape[1], 1]
        compilations += shape not in compiled
        compiled.add(shape)
        free_s[worker] = max(free_s[worker], times[row]) + first_s + full_s[row]
        assert columns["load_s"][row] == first_s
        assert columns["finish_s"][row] == pytest.approx(free_s[worker], rel=1e-12)
    assert compilations <= workers * len(SIZES)


BATCHED: dict[str, Callable[[], dict[str, Any]]] = {
    "sequential": lambda: {"executor": Sequential()},
    "static batches": lambda: {"executor": StaticBatch(1), "scheduler": DynamicBatching(1, 0.0)},
    "continuous batches": lambda: {"executor": ContinuousBatching(1)},
    "stages": lambda: {"executor": Stages()},
    "group policy": lambda: {"executor": Stages(FixedDegree(degree=1), Scaled())},
}


@pytest.mark.parametrize("name", BATCHED)
def test_every_executor_charges_the_first_of_a_shape_alike(name: str) -> None:
    """As busy time of its own kind, and in the load_s of the request that waits for it."""
    run = served([0.0, 0.0, 1.0, 50.0], [2.0] * 4, 1, [64, 32, 64, 32], server=Server(begin="ready"), **BATCHED[name]())
    columns = run.record.request_columns
    assert columns["load_s"].tolist() == [20.0, 6.0, 0.0, 0.0]
    assert columns["finish_s"].tolist() == [22.0, 30.0, 32.0, 52.0]
    assert busy(run, "compile") == [("compile", 0.0, 20.0), ("compile", 22.0, 28.0)]
    assert columns["energy_j"].tolist() == [300.0 * 22, 300.0 * 8, 600.0, 600.0]


def test_batch_waits_for_each_of_its_shapes_once() -> None:
    """Neither the size of a batch nor its place in one counts: a batch of a known shape compiles nothing."""
    parts: dict[str, Any] = {"executor": StaticBatch(4), "scheduler": DynamicBatching(4, 0.0)}
    times, sides = [0.0] * 4 + [60.0] * 3, [64, 64, 32, 64, 64, 64, 64]
    run = served(times, [2.0] * 7, 1, sides, server=Server(begin="ready"), **parts)
    assert sum(until_s - from_s for _, from_s, until_s in busy(run, "compile")) == 26.0
    assert set(run.record.request_columns["load_s"][4:].tolist()) == {0.0}
    run = served(
        [0.0, 0.5, 1.0], [8.0] * 3, 1, [64, 64, 32], server=Server(begin="ready"), executor=ContinuousBatching(4)
    )
    assert [kind for kind, *_ in busy(run, "compile")] == ["compile", "compile"]
    assert run.record.request_columns["load_s"].tolist() == [20.0, 0.0, 6.0]


class ColdGroups(ByDegree):
    def server_start(self, model: str) -> ServerStart:
        return START


@pytest.mark.parametrize(("degree", "load_s"), [(1, [20.0, 20.0, 0.0]), (2, [20.0, 0.0, 0.0])])
def test_group_compiles_once_for_its_gpus(degree: int, load_s: list[float]) -> None:
    """The GPUs of a group are busy together with it; GPUs that work alone compile each for itself."""
    backend, executor = ColdGroups({1: [1.0] * 3, 2: [0.5] * 3}), Stages(FixedDegree(degree=degree), Scaled())
    run = served([0.0, 0.0, 90.0], [8.0] * 3, 2, backend=backend, server=Server(begin="ready"), executor=executor)
    columns = run.record.request_columns
    assert columns["load_s"].tolist() == load_s
    assert columns["energy_j"][0] == 300.0 * degree * 20.0 + 300.0 * 8.0
    assert len(run.record.logs["first requests of a shape"].at_s) == sum(each > 0 for each in load_s)


def test_each_gpu_of_a_group_has_its_own_shapes() -> None:
    """What a group compiled none of its GPUs compiles again; a group compiles if one of its GPUs has not."""
    run = engine([0.0], [1.0], 2, backend=Cold([1.0], LOAD_S), server=Server(begin="ready"))
    run.open()
    cluster, (first, second) = run.cluster, run.cluster.workers
    group, request = cluster.group((0, 1)), run.request(0, 0.0)
    request.model = "large"
    assert [cluster.compile_s(worker, request) for worker in (group, first, second)] == [20.0, 0.0, 0.0]
    request.model = "small"
    assert [cluster.compile_s(worker, request) for worker in (second, group, first)] == [20.0, 20.0, 0.0]


FINE = 2.0**-20
"""Seconds that add up without rounding, and rarely to one instant twice."""


@pytest.mark.parametrize("seed", range(36))
def test_servers_that_start_run_on_stages_as_sequential(seed: int) -> None:
    """To the byte, with crashes and every begin. Ends of one instant take turns by their last step on stages alone."""

    def run(executor: Executor) -> Engine:
        rng = np.random.default_rng(seed)
        count, workers = int(rng.integers(3, 40)), int(rng.integers(1, 5))
        times, full_s = (np.floor(rng.exponential(4.0, count) / FINE) * FINE for _ in range(2))
        begin: Any = ("warm", "ready", "cold")[seed % 3]
        warm_up = ((32, 32, 1),) if rng.random() < 0.5 else ()
        at_s = np.floor(np.cumsum(rng.exponential(30.0, 3)) / FINE) * FINE
        return served(
            np.cumsum(times), full_s, workers, rng.choice(SIZES, count), executor=executor, seed=seed,
            server=Server(begin=begin, warm_up=warm_up),
            controllers=[Failures(crashes={0: at_s.tolist()})] if seed % 2 else [],
        )  # fmt: skip

    fast, definition = run(Sequential()), run(Stages())
    for name in COLUMNS:
        expected, column = (each.record.request_columns[name] for each in (fast, definition))
        np.testing.assert_array_equal(column, expected, err_msg=name)
    if seed % 2 == 0:  # else a compilation that a crash ends is lost on one and cut on the other
        assert busy(fast, "compile") == busy(definition, "compile")


def test_warm_up_moves_its_seconds_into_the_start() -> None:
    """All shapes are compiled either by the start, or by its first requests; whoever asks for others waits less."""
    times, sides, sizes = [0.0, 1.0, 2.0, 100.0], [64, 32, 16, 16], tuple(COMPILE_S)
    late, early = (
        served(times, [2.0] * 4, 1, sides, server=Server(begin="cold", warm_up=warm_up)) for warm_up in ((), sizes)
    )
    assert late.record.request_columns["finish_s"].tolist() == [9 + 22, 31 + 8, 39 + 3, 102]
    assert early.record.request_columns["start_s"].tolist() == [9 + 27, 36 + 2, 38 + 2, 100]
    assert late.record.request_columns["finish_s"][2] == early.record.request_columns["finish_s"][2]
    assert early.record.request_columns["load_s"].tolist() == [0.0] * 4
    assert sum(until_s - from_s for _, from_s, until_s in busy(early, "compile")) == 27.0
    assert len(early.record.logs["first requests of a shape"].at_s) == 0
    assert early.record.logs["starts of servers"].seconds.tolist() == [36.0]


def test_measured_start_includes_the_load() -> None:
    """Busy in its last part; a load that takes longer than the whole start is cut to it."""
    run = served([0.0], [2.0], server=Server(begin="cold", compile="off"))
    assert busy(run, "load", "serve") == [("load", READY_S - LOAD_S, READY_S), ("serve", READY_S, READY_S + 2)]
    run = served([0.0], [2.0], server=Server(begin="cold", compile="off", ready_s=3.0))
    assert busy(run, "load") == [("load", 0.0, 3.0)]
    unknown = FixedTimes([2.0], LOAD_S)
    run = served([0.0], [2.0], backend=unknown, server=Server(begin="cold"))
    assert busy(run, "load") == [("load", 0.0, LOAD_S)]


@pytest.mark.parametrize("executor", [Sequential, Stages, ContinuousBatching, StaticBatch])
def test_crash_costs_ready_load_and_the_first_of_each_shape(executor: type[Executor]) -> None:
    """A request of 10 s is lost at 24 s, 4 s after its compilation, and begins anew on the server that starts then."""
    parts: dict[str, Any] = {"scheduler": DynamicBatching(1, 0.0)} if executor is StaticBatch else {}
    made: Any = executor if executor in (Sequential, Stages) else lambda: executor(max_batch=1)  # type: ignore[call-arg]
    crash = Failures(crashes={0: [24.0]})
    run = served([0.0, 100.0], [10.0] * 2, executor=made(), controllers=[crash], server=Server(begin="ready"), **parts)
    columns = run.record.request_columns
    assert columns["finish_s"].tolist() == [24 + READY_S + 20 + 10, 110]
    assert columns["load_s"].tolist() == [20.0, 0.0]
    assert busy(run, "load", "compile")[-2:] == [("load", 29.0, 33.0), ("compile", 33.0, 53.0)]
    assert run.record.logs["starts of servers"].at_s.tolist() == [24.0]


def test_crash_during_a_start_begins_it_anew() -> None:
    """Before the load, in it, and in the warm-up: only what was done is busy."""
    crashes = Failures(crashes={0: [3.0, 10.0, 35.0]})
    server = Server(begin="cold", warm_up=((64, 64, 1),))
    run = served([0.0], [2.0], controllers=[crashes], server=server)
    spans = [("load", 8.0, 10.0), ("load", 15.0, 19.0), ("compile", 19.0, 35.0), ("load", 40.0, 44.0)]
    assert busy(run, "load", "compile") == [*spans, ("compile", 44.0, 64.0)]
    assert run.record.request_columns["finish_s"].tolist() == [66.0]


def test_rented_gpu_pays_startup_ready_load_and_warm_up() -> None:
    """And compiles in its first requests what was not warmed up; the machine's own seconds come before."""
    times, full_s = [0.0] * 4, [200.0, 2.0, 200.0, 2.0]
    for warm_up, ready_s, waits_s in (((), 11 + READY_S, 20.0), (((64, 64, 1),), 11 + READY_S + 20, 0.0)):
        script = Script(1, [(0.0, "order", 1)], startup_s=11.0)
        run = served(times, full_s, 2, 64, controllers=[script], server=Server(warm_up=warm_up))
        columns = run.record.request_columns
        assert columns["start_s"].tolist()[:2] == [0.0, ready_s]
        assert columns["load_s"].tolist() == [0.0, waits_s, 0.0, 0.0]
        assert columns["finish_s"][1] == ready_s + waits_s + 2


def test_rented_gpus_that_begin_cold_count_as_starting() -> None:
    script = Script(1, [(4.0, "give_back", 0), (5.0, "order", 0)])
    run = served([0.0], [2.0], 2, 64, controllers=[script], server=Server(begin="cold"))
    assert run.record.request_columns["finish_s"].tolist() == [5 + READY_S + 20 + 2]


def test_servers_that_are_warm_and_never_start_compile_nothing() -> None:
    warm, off = (served([0.0, 1.0], [5.0] * 2, backend=backend) for backend in (None, FixedTimes([5.0] * 2, LOAD_S)))
    assert warm.record.usage_log.buffer == off.record.usage_log.buffer
    assert not warm.cluster.compiles
    assert [each.what for each in warm.record.assumptions] == [each.what for each in off.record.assumptions]


def test_what_nobody_measured_is_said_once_and_only_where_it_is_asked() -> None:
    def stated(backend: FixedTimes, **parts: Any) -> list[Any]:
        run = served([0.0, 1.0, 2.0], [5.0] * 3, 1, [64, 32, 64], backend=backend, **parts)
        return [(each.value, each.source) for each in run.record.assumptions if "first request" in each.what]

    failures = [Failures(outages={0: [(1.0, 2.0)]})]
    assert stated(FixedTimes([5.0] * 3), controllers=failures) == []
    lacks = [(0, "not charged: its profile has no `compile`")] * 2  # large and small
    assert stated(FixedTimes([5.0] * 3), server=Server(begin="ready")) == lacks
    some = Cold([5.0] * 3)
    some.start = ServerStart(None, {(32, 32, 1): 6.0}, None, None, "a log")
    asked = stated(some, server=Server(begin="ready"))
    assert asked == stated(some, server=Server(begin="cold", warm_up=((64, 64, 1),)))
    assert asked == [({"32x32": 6.0}, "a log")] * 2 + [(0, "not charged: its profile has `compile` of 32x32 alone")]


PROFILE = """
schema: 1
model: sensenova-u1
gpu: h20
source: vllm-project/vllm-omni, 988cfd1b, evidence/sensenova_u15_mixed_h20
step: [{width: 1024, height: 1024, seconds: 1.103}, {width: 64, height: 64, seconds: 0.061}]
ready: {seconds: 26.5}
compile: [{width: 1024, height: 1024, seconds: 0.541}, {width: 64, height: 64, seconds: 58.51}]
"""
"""An image of 1,024 pixels, and an answer in text, here a request of one step of 64 pixels."""


def test_case_43_start_is_not_only_a_load(tmp_path: Path) -> None:
    """SenseNova-U1 on an H20: after a start of 26.5 s the first text takes 58.571 s, the second .061 s."""
    (tmp_path / "sensenova.yaml").write_text(PROFILE, encoding="utf-8")
    backend, sides = Profiled("h20", folder=tmp_path), np.array([1024, 1024, 64, 64], np.int32)
    start = backend.server_start("sensenova-u1")
    assert start.ready_source == start.compile_source == backend.profiles["sensenova-u1"].source
    models = {"large": Model("sensenova-u1", 1, 1024, 1024)}
    run = engine(
        [30.0, 40.0, 50.0, 150.0], [1.0] * 4, models=models, backend=backend, use_model_shape=False,
        shapes=(sides, sides, np.ones(4, np.int32)), server=Server(begin="cold"),
    )  # fmt: skip
    run.run()
    columns = run.record.request_columns
    latency_s = columns["finish_s"] - columns["arrival_s"]
    np.testing.assert_allclose(latency_s, [1.644, 1.103, 58.571, 0.061], atol=1e-9)
    assert run.record.logs["starts of servers"].seconds.tolist() == [26.5]


def test_first_request_of_flux_by_vllm_omni_takes_what_was_published() -> None:
    """On two B200: 59.168 s, and 4.224 s once it has compiled."""
    backend = Profiled("b200-x2")
    flux_s = backend.typical_s(Work("flux-dev-vllm-omni", 1024, 1024, 50))
    first_s = backend.server_start("flux-dev-vllm-omni").first_s((1024, 1024, 1))
    assert first_s is not None
    assert flux_s + first_s == pytest.approx(59.168, abs=0.01)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"ready_s": 3}, r"server: found settings, and no server starts.*server\.begin=ready"),
        ({"compile": "3"}, r"server: found settings, and no server starts"),
        (
            {"begin": "ready", "warm_up": ["1x1"]},
            r"server\.warm_up: no request has the size 1x1; name some of 1024x1024",
        ),
        ({"begin": "ready", "warm_up": ["big"]}, r"server\.warm_up.*expected sizes as WIDTHxHEIGHT"),
        ({"begin": "cold", "warm_up": ["1024x1024"], "compile": False}, r"server\.warm_up: .*compile=off"),
        ({"begin": "hot"}, r"server\.begin.*'warm', 'ready' or 'cold'"),
        ({"compile": "always"}, r"server\.compile.*expected profile, off, or seconds"),
    ],
)
def test_settings_without_effect_are_refused(settings: dict[str, Any], error: str) -> None:
    config = deepcopy(plain())
    config["server"] |= settings
    with pytest.raises(ConfigError, match=error):
        simulate(config)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, r"failures: found no crash; name GPUs in failures\.crashes"),
        ({"crashes": {0: [9, 5]}}, r"failures\.crashes\.0: found \[9, 5\], expected seconds in order"),
        ({"crashes": {0: [9]}, "outages": {0: [(1, 2)]}}, r"failures\.crashes: found GPU 0, which has outages"),
        ({"crashes": {7: [9.0]}}, r"failures\.crashes: found GPU 7, expected 0 to 0"),
    ],
)
def test_crashes_that_cannot_be_are_refused(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        served([0.0], [1.0], controllers=[Failures(**settings)])


BASE = ("models=sdxl", "cluster=h100", "cluster.count=2", "trace.requests=60", "arrivals.rate_rpm=30")
plain = cache(lambda: configured(*BASE))


def test_summary_counts_starts_and_first_requests() -> None:
    """Of a crash, whose requests wait; where nothing starts the summary has none of it."""
    crash = deepcopy(plain())
    crash["server"] |= {"compile": 15.0, "ready_s": 40.0}
    crash["failures"] = {"_target_": "mezzotint.sim.cluster.failures.Failures", "crashes": {0: [30.0]}}
    crash["server"]["begin"] = "ready"
    warm, crashed = simulate(deepcopy(plain())).summary, simulate(crash).summary
    assert header(crashed, crash).state.startswith("no cache, servers that compiled nothing; ")
    assert "server" not in warm
    assert crashed["server"] == {"starts": 1, "start_s": 40.0, "compilations": 3, "compile_s": 45.0}
    assert crashed["latency_s"]["p99"] > warm["latency_s"]["p99"] + 10
