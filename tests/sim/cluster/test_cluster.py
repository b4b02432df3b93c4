"""Laws of the cluster: roles and orders, capacity, groups, memory, and busy time."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Asset, Cost, Work, WorkFailed
from mezzotint.sim import protocols
from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.cluster.free_workers import FreeWorkers, remove
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import DECLARED, HIT, MISS, Plan
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.worker import BACKLOG, DOWN, DRAINING, LOADING, ON, Worker
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.loading import ensure
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.scheduling.hit_miss import HitMiss
from mezzotint.sim.scheduling.hit_miss_per_worker import HitMissPerWorker
from tests.sim.lab import FixedTimes, engine

LOAD_S = 7.0
Spans = list[tuple[str, int, float, float]]


class Acts:
    """A controller that does ``what(run, now_s)`` at given times, as a SimPy process."""

    def __init__(self, *at: tuple[float, Any]) -> None:
        self.at = at

    def bind(self, run: Any) -> None:
        self.run = run
        run.process(self.follow())

    def arrived(self, request: Request, now_s: float) -> None: ...

    def follow(self) -> Any:
        for time_s, what in self.at:
            yield self.run.clock.sleep_until(time_s)
            what(self.run, time_s)


def order(worker: int, role: str) -> Any:
    return lambda run, now_s: run.cluster.change_role(run.cluster.workers[worker], role, now_s)


class Marked:
    """Front end: rows in ``hits`` are hits, refined in half of the steps."""

    def __init__(self, hits: Sequence[bool]) -> None:
        self.hits = hits

    def bind(self, run: Any) -> None:
        self.run = run

    def admit(self, request: Request, now_s: float) -> float:
        hit = {"lookup": HIT, "source": DECLARED, "k": 1, "of_steps": 2}
        self.run.assign(
            request, Plan(self.run.models["large"].name, **hit if self.hits[request.row] else {"lookup": MISS})
        )
        return 0.0

    def completed(self, request: Request) -> bool:
        return False

    def insert(self, request: Request, now_s: float) -> None: ...


def spans(run: Engine) -> Spans:
    kinds = list(run.record.usage_log.kinds)
    return [
        (kinds[s["kind"]], int(s["worker"]), float(s["from_s"]), float(s["until_s"]))
        for s in run.record.usage_log.spans()
    ]


def checked_busy_s(run: Engine) -> float:
    """Return the busy GPU-seconds; check that no GPU, groups included, is busy twice at one instant."""
    total = 0.0
    until = dict.fromkeys(range(run.cluster.gpus), 0.0)
    for _, worker, from_s, until_s in sorted(spans(run), key=lambda span: span[2:]):
        for gpu in run.cluster.gpus_of(worker):
            assert from_s >= until[gpu]
            until[gpu] = until_s
            total += until_s - from_s
    return total


def switched(times: Any, full_s: Any, *acts: Any, roles: Any = ("large", "small"), **parts: Any) -> Engine:
    """Return a finished run under ``acts``, with ``hits`` as the front end has them."""
    hits = parts.pop("hits", [False] * len(full_s))
    backend = parts.pop("backend", None) or FixedTimes([float(s) for s in full_s], LOAD_S)
    run = engine(
        times, full_s, roles=list(roles), backend=backend, frontend=Marked(hits), scheduler=HitMiss(),
        controllers=[Acts(*acts)], **parts,
    )  # fmt: skip
    run.run()
    return run


# -- roles ---------------------------------------------------------------------------------------------------------


def test_ordered_worker_drains_loads_and_serves_its_new_role() -> None:
    """Worker 1 is ordered at 3 s while it refines until 5 s (10 s x 1/2). It loads until 12 s and takes the next miss
    that finds worker 0 busy."""
    run = switched([0.0, 1.0, 2.0, 20.0], [10.0] * 4, (3.0, order(1, "large")), hits=[True, False, False, False])
    assert sorted(spans(run), key=lambda span: span[2]) == [
        ("serve", 1, 0.0, 5.0), ("serve", 0, 1.0, 11.0), ("load", 1, 5.0, 12.0), ("serve", 0, 11.0, 21.0),
        ("serve", 1, 20.0, 30.0),
    ]  # fmt: skip
    assert run.record.request_columns["worker"].tolist() == [1, 0, 0, 1]
    assert run.record.request_columns["load_s"].tolist() == [0.0] * 4
    usage_log = run.record.usage_log
    load = usage_log.spans()[[kind == "load" for kind, *_ in spans(run)]]
    assert load["joules"].tolist() == [300 * LOAD_S]
    assert list(usage_log.models)[load["model"][0]] == "large"
    usage = usage_log.inside(0.0, 30.0, run.cluster.gpu_counts())
    assert (usage.switches, usage.switch_s, usage.busy_s) == (1, LOAD_S, 42.0)


def test_request_for_a_role_without_workers_waits_until_the_role_returns() -> None:
    run = switched(
        [0.0, 1.0, 2.0], [10.0] * 3, (3.0, order(1, "large")), (30.0, order(1, "small")), hits=[True] * 3
    )  # fmt: skip
    assert run.record.request_columns["start_s"].tolist() == [0.0, 37.0, 42.0]
    assert (run.record.request_columns["outcome"] == 1).all()
    checked_busy_s(run)


def test_order_revoked_before_loading_costs_nothing() -> None:
    acts = (1.0, order(1, "large")), (2.0, order(1, "small"))
    run = switched([0.0, 1.5, 6.0], [10.0] * 3, *acts, hits=[True] * 3)
    assert [kind for kind, *_ in spans(run)] == ["serve"] * 3
    assert run.record.request_columns["start_s"].tolist() == [0.0, 5.0, 10.0]


def test_order_during_a_load_starts_a_second_load() -> None:
    acts = (1.0, order(1, "large")), (2.0, order(1, "small"))
    run = switched([0.0, 3.0], [30.0] * 2, *acts, hits=[False, True])
    assert [span for span in spans(run) if span[0] == "load"] == [("load", 1, 1.0, 8.0), ("load", 1, 8.0, 15.0)]
    assert run.record.request_columns["start_s"].tolist() == [0.0, 15.0]
    third = switched([0.0, 3.0], [30.0] * 2, *acts, (3.0, order(1, "large")), hits=[False, False])
    # the model of the second order was the right one all the time
    assert [span[2:] for span in spans(third) if span[0] == "load"] == [(1.0, 8.0)]
    assert third.record.request_columns["start_s"].tolist() == [0.0, 8.0]


def test_order_to_a_role_with_the_same_model_costs_nothing() -> None:
    models = {role: Model(name, 50, 64, 64) for role, name in (("large", "one"), ("small", "one"))}
    run = switched([0.0, 2.0], [10.0] * 2, (1.0, order(1, "large")), hits=[False, False], models=models)
    assert spans(run) == [("serve", 0, 0.0, 10.0), ("serve", 1, 2.0, 12.0)]


def test_load_cut_by_the_end_of_the_run_counts_up_to_that_time() -> None:
    run = switched([0.0], [10.0], (6.0, order(1, "large")))
    assert ("load", 1, 6.0, 10.0) in spans(run)
    assert run.record.usage_log.inside(0.0, 10.0, run.cluster.gpu_counts()).joules == pytest.approx(300 * 14)


@pytest.mark.invariant(5)
@settings(max_examples=80)
@given(
    gaps=st.lists(st.tuples(st.floats(0, 8), st.booleans(), st.floats(0.1, 20)), min_size=1, max_size=40),
    orders=st.lists(st.tuples(st.floats(0, 6), st.integers(0, 3), st.sampled_from(["large", "small"])), max_size=25),
    load_s=st.sampled_from([0.0, 0.5, 7.0]),
)
def test_random_orders_lose_no_request_and_never_use_a_gpu_twice(
    gaps: list[tuple[float, bool, float]], orders: list[tuple[float, int, str]], load_s: float
) -> None:
    times = np.cumsum([gap for gap, *_ in gaps])
    full_s = [s for *_, s in gaps]
    seen = []

    def kept(worker: int, role: str) -> Any:
        def act(run: Any, now_s: float) -> None:
            workers = run.cluster.workers
            if sum(each.role == workers[worker].role for each in workers) > 1:
                run.cluster.change_role(workers[worker], role, now_s)
            seen.append({each.role for each in workers})

        return act

    at = np.cumsum([gap for gap, *_ in orders])
    acts = [(float(t), kept(worker, role)) for t, (_, worker, role) in zip(at, orders, strict=True)]
    run = switched(
        times, full_s, *acts, roles=["large", "large", "small", "small"], hits=[hit for _, hit, _ in gaps],
        backend=FixedTimes(full_s, load_s),
    )  # fmt: skip
    columns, end_s = run.record.request_columns, float(run.record.request_columns["finish_s"].max())
    assert (columns["outcome"] == 1).all()  # Engine.run checks Little's law
    gpus = [run.cluster.group((number,)) for number in range(4)]
    # No order waits for requests that have ended.
    assert all(gpu.state == LOADING or (gpu.state, gpu.model) == (ON, gpu.role) for gpu in gpus)
    assert all(roles == {"large", "small"} for roles in seen)
    assert checked_busy_s(run) <= 4 * (end_s - 0.0) + 1e-9
    loads_s = sum(until_s - from_s for kind, _, from_s, until_s in spans(run) if kind == "load")
    assert checked_busy_s(run) == pytest.approx(columns["denoise_s"].sum() + loads_s)
    models = np.array(list(columns.model_code))[columns["model"]]
    assert (models == np.where([hit for _, hit, _ in gaps], "small", "large")).all()
    busy = run.record.gauges["busy"].values
    assert max(busy) <= 4


def states(seen: list[str], gpu: int = 0) -> Any:
    """Return an act that notes the state of a GPU."""
    return lambda run, _: seen.append(run.cluster.group((gpu,)).state)


def test_gpu_passes_through_the_states_of_the_drawing() -> None:
    seen: list[str] = []
    look = states(seen)

    acts = (
        (1.0, look), (3.0, order(0, "small")), (4.0, look), (12.0, look), (18.0, look),
        (20.0, lambda run, _: run.fail(run.cluster.workers[0])), (21.0, look),
        (25.0, lambda run, now_s: run.cluster.repair(run.cluster.workers[0], now_s)), (26.0, look), (33.0, look),
        (34.0, order(0, "large")), (35.0, order(0, "small")), (42.0, look), (49.0, look),
    )  # fmt: skip
    switched([0.0, 100.0], [10.0] * 2, *acts, roles=["large"] * 2, hits=[False, True])
    assert seen == [ON, DRAINING, LOADING, ON, DOWN, LOADING, ON, LOADING, ON]


def test_gpu_that_leaves_is_no_worker() -> None:
    rented = opened(100)
    rented.rent(1)
    rented.take(rented.workers[0])
    rented.stop_instance(0, 0.0)
    assert rented.workers == ()


def test_gpu_that_drains_loads_when_the_launch_of_a_stage_leaves_it() -> None:
    cluster = opened(100)
    worker = cluster.workers[0]
    cluster.occupy(worker)
    cluster.change_role(worker, "small", 0.0)
    assert worker.state == DRAINING
    cluster.vacate(worker)
    assert worker.state == LOADING


@pytest.mark.parametrize(
    "order",
    [
        lambda cluster, workers: cluster.change_role(workers[0], "small", 0.0),
        lambda cluster, workers: cluster.fail(workers[0], 0.0),
    ],
)
def test_rented_gpus_keep_their_role_and_do_not_fail(order: Any) -> None:
    cluster = opened(100)
    cluster.rent(1)
    with pytest.raises(ConfigError, match="controller: found one that orders and gives back single GPUs, and"):
        order(cluster, cluster.workers)


# -- capacity ------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(max_batch=st.integers(1, 3), roles=st.lists(st.sampled_from("ab"), min_size=1, max_size=5), data=st.data())
def test_least_loaded_and_idle_match_a_linear_search(max_batch: int, roles: list[str], data: st.DataObject) -> None:
    """Fewest running, then longest so, by a linear search over (running, time of the last change)."""
    kind: Any = {"gpu": Gpu("test", 300.0, 60.0, "made up"), "backend": FixedTimes([])}
    free, workers = FreeWorkers(), [Worker(i, role, role, max_batch, **kind) for i, role in enumerate(roles)]
    since = list(range(len(workers)))
    for worker in workers:
        free.add(worker)
    for now in range(len(workers), len(workers) + 25):
        worker = data.draw(st.sampled_from(workers))
        change = data.draw(st.sampled_from([n for n in (-1, 1) if 0 <= worker.running + n <= max_batch]))
        if worker.bucket is not None:
            remove(worker)
        worker.running += change
        since[worker.id] = now
        if worker.running < max_batch:
            free.add(worker)
        for role in (None, "a", "b"):
            there = [w for w in workers if w.running < max_batch and role in (None, w.role)]
            assert free.least_loaded(role) is min(there, key=lambda w: (w.running, since[w.id]), default=None)
            idle = sorted((w for w in there if not w.running), key=lambda w: since[w.id])
            assert list(free.idle(role)) == idle


def test_empty_worker_serves_again_after_close_and_reopen() -> None:
    acts = (
        (1.0, lambda run, _: run.cluster.close(run.cluster.workers[0])),
        (5.0, lambda run, _: run.cluster.reopen(run.cluster.workers[0])),
    )
    run = engine([2.0], [1.0], controllers=[Acts(*acts)])
    run.run()
    assert run.record.request_columns["start_s"].tolist() == [5.0]


@pytest.mark.parametrize("executor", [Sequential, lambda: StaticBatch(1)])
def test_worker_with_its_own_queue_drains_it_before_loading(executor: Any) -> None:
    """Three simultaneous misses of 10 s for the one large worker, which is ordered at 3 s to become small."""
    seen: list[str] = []
    acts = (3.0, order(0, "small")), (4.0, states(seen)), (19.0, states(seen))
    run = engine(
        [0.0, 1.0, 2.0], [10.0] * 3, roles=["large", "small"], backend=FixedTimes([10.0] * 3, LOAD_S),
        scheduler=HitMissPerWorker(), executor=executor(), controllers=[Acts(*acts)],
    )  # fmt: skip
    run.run()
    assert seen == [BACKLOG, BACKLOG]
    assert run.record.request_columns["finish_s"].tolist() == [10.0, 20.0, 30.0]
    assert spans(run)[-1] == ("load", 0, 30.0, 30.0)  # the run ends as the load begins


def test_partial_batch_finishes_before_its_worker_loads() -> None:
    """In batches of up to two, one request ends at 10 s and the next at 20 s."""
    run = engine(
        [0.0, 1.0, 50.0], [10.0] * 3, roles=["large", "small"], backend=FixedTimes([10.0] * 3, LOAD_S),
        scheduler=HitMissPerWorker(), executor=StaticBatch(2),
        controllers=[Acts((3.0, order(0, "small")), (40.0, order(0, "large")))],
    )  # fmt: skip
    run.run()
    assert run.record.request_columns["finish_s"].tolist() == [10.0, 20.0, 60.0]
    assert [span for span in spans(run) if span[0] == "load"] == [("load", 0, 20.0, 27.0), ("load", 0, 40.0, 47.0)]


def test_worker_with_a_batch_loads_after_its_last_request_leaves() -> None:
    """Two requests step together for 20 and 30 s. Ordered at 5 s, the worker takes no other until it has loaded."""
    run = engine(
        [0.0, 0.0, 6.0], [20.0, 30.0, 10.0], roles=["large"], backend=FixedTimes([20.0, 30.0, 10.0], LOAD_S),
        executor=ContinuousBatching(2), controllers=[Acts((5.0, order(0, "small")), (40.0, order(0, "large")))],
        shapes=tuple(np.array(column, np.int32) for column in ([64] * 3, [64] * 3, [25, 50, 50])),
        use_model_shape=False,
    )  # fmt: skip
    run.run()
    columns = run.record.request_columns
    first_s, last_s = sorted(columns["finish_s"][:2])
    (load,) = [span for span in spans(run) if span[0] == "load"][:1]
    assert first_s < last_s == load[2]
    assert load[3] == last_s + LOAD_S


def refusal_to_take(prepare: Any) -> str:
    """Return the error of ``cluster.take`` after ``prepare(cluster, worker)``."""
    cluster = opened(100)
    worker = cluster.workers[0]
    prepare(cluster, worker)
    with pytest.raises(SimulationError) as caught:
        cluster.take(worker)
    return str(caught.value)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda cluster, worker: cluster.take(worker), "has 1 of at most 1 running"),
        (lambda cluster, worker: cluster.close(worker), "runs a batch"),
        (lambda cluster, worker: cluster.fail(worker, 0.0), "failed and is not back"),
        (lambda cluster, worker: cluster.change_role(worker, "small", 0.0), "loads the model of its role"),
        (
            lambda cluster, worker: cluster.take(worker) or cluster.change_role(worker, "small", 0.0),
            "finishes its requests and then changes its role",
        ),
        (lambda cluster, worker: cluster.rent(0), "is off"),
        (lambda cluster, worker: cluster.rent(0) or cluster.start_instance(0, 60.0, 0.0), "is starting"),
        (
            lambda cluster, worker: cluster.take(worker) or cluster.rent(1) or cluster.stop_instance(0, 0.0),
            "was given back",
        ),
    ],
)
def test_taking_an_unavailable_worker_says_why_it_is_unavailable(prepare: Any, reason: str) -> None:
    message = refusal_to_take(prepare)
    assert message.startswith("the scheduler (mezzotint.sim.scheduling.fcfs.Fcfs) gave a request to worker 0")
    assert f"which {reason}; ask Cluster.least_loaded or Cluster.idle" in message


def test_cluster_refuses_to_release_more_requests_than_run() -> None:
    cluster = opened(100)
    worker = cluster.workers[0]
    cluster.take(worker)
    with pytest.raises(SimulationError, match=r"Sequential\) released 2 requests of worker 0 .*, which has 1 running"):
        cluster.release(worker, 2)


def test_executor_without_capacity_is_refused() -> None:
    class Closed(Sequential):
        max_batch = 0

    with pytest.raises(SimulationError, match=r"Closed\) takes 0 requests at once; expected a whole number from 1 on"):
        engine([0.0], [1.0], executor=Closed()).run()


def test_worker_refuses_a_second_model_while_requests_run() -> None:
    class Both(Marked):
        def admit(self, request: Request, now_s: float) -> float:
            self.run.assign(request, Plan(self.run.models["small" if self.hits[request.row] else "large"].name))
            return 0.0

    message = r"row 1, for small, was given to worker 0 while others run on large there, .* must not mix models"
    with pytest.raises(ConfigError, match=message):
        engine([0.0, 1.0], [9.0] * 2, frontend=Both([False, True]), executor=ContinuousBatching(2)).run()


def test_plan_without_a_model_is_refused() -> None:
    run = engine([0.0], [1.0])
    run.open()
    request = Request(7, 0.0, 64, 64, 50)
    for act in (lambda: ensure(run, run.cluster.workers[0], request, []), lambda: run.work(request)):
        with pytest.raises(SimulationError, match="the plan of the request in row 7 names no model"):
            act()


def test_failing_request_still_pays_for_its_model_load() -> None:
    class Refusing(FixedTimes):
        def steps(self, works: Sequence[Work], count: int = 1) -> Cost:
            raise WorkFailed("no such shape")

    run = engine([0.0], [9.0], roles=["small"], backend=Refusing([9.0], LOAD_S))
    run.run()
    assert spans(run) == [("load", 0, 0.0, LOAD_S)]
    assert run.record.request_columns["finish_s"].tolist() == [LOAD_S]
    assert run.record.request_columns.reasons == {0: "no such shape"}


def test_busy_counts_workers_that_serve_or_load() -> None:
    """Of three GPUs one serves for 10 s, one loads for 20 s from 2 s on, and one is idle."""
    seen = []

    def load(run: Any, now_s: float) -> None:
        run.cluster.change_role(run.cluster.workers[1], "small", now_s)

    def look(run: Any, now_s: float) -> None:
        seen.append(run.cluster.busy(now_s))

    acts = Acts((1.0, look), (2.0, load), (5.0, look), (15.0, look), (23.0, look))
    engine([0.0, 30.0], [10.0, 1.0], 3, backend=FixedTimes([10.0, 1.0], 20.0), controllers=[acts]).run()
    assert seen == [1, 2, 1, 0]


# -- memory --------------------------------------------------------------------------------------------------------


class Sized(FixedTimes):
    """A model takes 10 bytes, an add-on the bytes that its name states."""

    def bytes(self, asset: Asset) -> int | None:
        return 10 if asset.kind == "model" else int(asset.name)


def opened(memory: int, backend: FixedTimes | None = None) -> Any:
    gpu = Gpu("test", 300.0, 60.0, "made up", memory_bytes=memory)
    run = engine([0.0], [1.0], gpu=gpu, backend=backend or Sized([1.0]))
    run.open()
    return run.cluster


OWN = Asset("model", "large", "large")


@settings(max_examples=150)
@given(memory=st.integers(10, 40), asked=st.lists(st.integers(1, 35), max_size=30))
def test_admit_evicts_the_least_recently_used_addon_and_never_the_model(memory: int, asked: list[int]) -> None:
    cluster = opened(memory)
    worker = cluster.workers[0]
    brute: list[Asset] = []  # add-ons, most recently used last
    for size in asked:
        asset = Asset("lora" if size % 2 else "controlnet", str(size), "large")
        before = dict(worker.resident)
        gone = cluster.admit(worker, asset, size)
        if asset in brute:
            assert gone == []
            brute.remove(asset)
        elif size > memory - 10:
            assert gone is None
            assert list(before.items()) == list(worker.resident.items())
            continue
        else:
            expected = []
            while 10 + sum(int(each.name) for each in brute) + size > memory:
                expected.append(brute.pop(0))
            assert gone == expected
        brute.append(asset)
        assert [each for each in worker.resident if each != OWN] == brute
        assert worker.resident[OWN] == 10
        assert sum(worker.resident.values()) <= memory


def test_methods_take_the_keywords_of_the_protocol() -> None:
    cluster = opened(40)
    for name, stated in inspect.getmembers(protocols.Cluster, inspect.isfunction):
        if not name.startswith("_"):
            keywords = dict.fromkeys(list(inspect.signature(stated).parameters)[1:])
            inspect.signature(getattr(cluster, name)).bind(**keywords)


def test_addon_named_like_the_model_is_not_the_model() -> None:
    class Named(Sized):
        def bytes(self, asset: Asset) -> int | None:
            return 10

    cluster = opened(25, Named([1.0]))
    worker = cluster.workers[0]
    namesake = Asset("lora", "large", "large")
    assert cluster.admit(worker, namesake, 10) == []
    with pytest.raises(SimulationError, match=r"takes 0\.0 GB"):
        cluster.check_memory(worker, 16)
    assert cluster.admit(worker, Asset("lora", "other", "large"), 10) == [namesake]
    with pytest.raises(SimulationError, match="where it is not"):
        cluster.evict(worker, namesake)
    with pytest.raises(SimulationError, match="which serves with it"):
        cluster.evict(worker, OWN)
    cluster.check_memory(worker, 15)
    cluster.check_memory(worker, None)


def test_batch_evicts_addons_it_does_not_use_and_keeps_those_it_uses() -> None:
    """A batch takes 30 of 40 bytes with its model. Of add-ons of 5 and 8 bytes the 5, used first, is evicted."""
    five, eight = Asset("lora", "5", "large"), Asset("controlnet", "8", "large")

    def with_both() -> Any:
        cluster = opened(40)
        assert cluster.admit(cluster.workers[0], five, 5) == cluster.admit(cluster.workers[0], eight, 8) == []
        return cluster, cluster.workers[0]

    cluster, worker = with_both()
    cluster.check_memory(worker, 30, [()])
    assert set(worker.resident) == {OWN, eight}
    cluster, worker = with_both()
    cluster.check_memory(worker, 32, [(), (five,)])  # one of two requests uses it, so it counts beside what both take
    assert set(worker.resident) == {OWN, five}
    cluster, worker = with_both()
    cluster.check_memory(worker, 40, [(eight,)])  # it is among the 40
    assert set(worker.resident) == {OWN, eight}
    with pytest.raises(
        WorkFailed,
        match=r"with 8 it takes .* GB that a test has \(cluster\.gpu\.memory_bytes\); choose another cl",
    ):
        cluster.check_memory(worker, 41, [(eight,)])
    with pytest.raises(SimulationError, match="lower the batch limit"):
        cluster.check_memory(worker, 41, [(eight,), (eight,)])


def test_model_larger_than_the_device_is_refused() -> None:
    with pytest.raises(SimulationError, match=r"large takes .* GB that a test has \(cluster\.gpu\.memory_bytes\)"):
        opened(9)


# -- busy time -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("from_s", "until_s", "batch", "what"),
    [
        (5.0, 4.0, 1, "which is earlier"),
        (float("nan"), 4.0, 1, "no times"),
        (5.0, float("nan"), 1, "no times"),
        (5.0, float("inf"), 1, "no times"),
        (2.0, 4.0, 1, "twice: serve from 2.0 s, and something else until 3.0 s"),
        (5.0, 6.0, 2, "runs 2 requests at once"),
        (5.0, 6.0, 0, "runs 0 requests"),
    ],
)
def test_invalid_busy_spans_are_refused(from_s: float, until_s: float, batch: int, what: str) -> None:
    cluster: Cluster = opened(100)
    worker = cluster.workers[0]
    assert cluster.record_busy(worker, 1.0, 3.0, "serve") == 600.0
    with pytest.raises(SimulationError, match=f"the executor .*{what}"):
        cluster.record_busy(worker, from_s, until_s, "serve", batch=batch)
    assert cluster.record_busy(worker, 3.0, 3.0, "serve") == 0.0
