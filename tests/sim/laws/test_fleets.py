"""Several base models on one fleet: residency by memory, swaps, placements, and routers that know them."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Asset, Cost
from mezzotint.files.document import parse
from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.cluster.placement import Pinned, Static
from mezzotint.sim.cluster.residency import ModelResidency
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import Gpu, Kind
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.request import COMPLETED, Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.same_size import SameSizeSteps
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.execution.stages.life import Stages
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.frontend.by_base_model import ByBaseModel
from mezzotint.sim.metrics.fleet import RESIDENT, FleetLog
from mezzotint.sim.metrics.usage_log import SWAPS
from mezzotint.sim.protocols import Controller, Run
from mezzotint.sim.run.config.choices import CONF
from mezzotint.sim.run.simulate import Outcome, simulate
from mezzotint.sim.scheduling.fcfs import Fcfs
from mezzotint.sim.scheduling.group_policies.fixed_degree import FixedDegree
from mezzotint.sim.scheduling.resident_first import ResidentFirst
from mezzotint.sim.scheduling.routing.models import ByModel
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import LeastWorkLeft
from tests.sim.lab import FixedTimes, configured, engine

HOST, DISK = list(SWAPS).index("load-host"), list(SWAPS).index("load-disk")
ALL_OF_GPU = 100
"""Bytes of the memory of a GPU in these tests."""


class Weights(FixedTimes):
    """Models of given bytes, which load in a second where the residency has no bandwidth."""

    def __init__(self, full_s: Sequence[float], sizes: Mapping[str, int]) -> None:
        super().__init__(full_s, load_s=1.0)
        self.sizes = sizes

    def bytes(self, asset: Asset) -> int | None:
        return self.sizes.get(asset.name)

    def load(self, asset: Asset) -> Cost:
        return Cost(self.swap_s, 300.0 * self.swap_s)


class Watch(Controller):
    """Checks at every arrival that the weights on each GPU fit into its memory."""

    def bind(self, run: Run) -> None:
        self.run = run

    def arrived(self, request: Request, now_s: float) -> None:
        for worker in self.run.cluster.workers:
            assert sum(worker.resident.values()) <= ALL_OF_GPU


def fleet(
    times: Any,
    of_row: Sequence[int],
    sizes: Sequence[int],
    residency: ModelResidency | None,
    gpus: int = 1,
    full_s: float = 3.0,
    placed: Sequence[Sequence[str]] | None = None,
    **parts: Any,
) -> Engine:
    """Return a finished run of the models of ``of_row``, m0, m1, ... of ``sizes``; m0 is resident at the start."""
    models = {f"m{number}": Model(f"m{number}", 50, 64, 64) for number in range(len(sizes))}
    frontend = ByBaseModel(variants_of=None)
    frontend.read(np.array(of_row, np.int32), list(models), models)
    rows = len(of_row)
    backend = Weights([full_s] * rows, dict(zip(models, sizes, strict=True)))
    kinds = [Kind(Gpu("test", 300.0, 60.0, "made up", memory_bytes=ALL_OF_GPU, gpus_per_instance=gpus), backend)] * gpus
    roles = ["m0"] * gpus if placed is None else [on[0] for on in placed]
    run = engine(
        times, [full_s] * rows, models=models, frontend=frontend, backend=backend, roles=roles,
        cluster=Cluster(kinds, roles, models, residency, placed), **({"controllers": [Watch()]} | parts),
    )  # fmt: skip
    run.record.fleet = FleetLog(rows, 0, {name: [name] for name in models})
    run.run()
    return run


def swaps(run: Engine) -> list[int]:
    assert run.record.fleet is not None
    return run.record.fleet.swap.tolist()


def least_recently_used(
    of_row: Sequence[int], sizes: Sequence[int], max_models: int | None, host_bytes: int | None
) -> list[int]:
    """Return the swap of each row on one worker by plain lists, the least recently used first."""
    gpu, host, found = [0], [0] if host_bytes is None or sizes[0] <= host_bytes else [], []
    for model in of_row:
        if model in gpu:
            gpu.remove(model)
            found.append(RESIDENT)
        else:
            found.append(HOST if model in host else DISK)
            if model in host:
                host.remove(model)
                host.append(model)
            elif host_bytes is None or sizes[model] <= host_bytes:
                while host_bytes is not None and sum(sizes[other] for other in host) + sizes[model] > host_bytes:
                    del host[0]
                host.append(model)
            while gpu and (
                sum(sizes[other] for other in gpu) + sizes[model] > ALL_OF_GPU or len(gpu) == (max_models or -1)
            ):
                del gpu[0]
        gpu.append(model)
    return found


MIXED = np.random.default_rng(1).integers(0, 5, 60).tolist()
"""Models of 60 requests, which return after few others and after many."""

EXECUTORS = {
    "sequential": Sequential,
    "static-batch": lambda: StaticBatch(max_batch=1),
    "continuous-batching": lambda: ContinuousBatching(batching=SameSizeSteps(), max_batch=1),
    "stages": Stages,
    "groups": lambda: Stages(group_policy=FixedDegree(1)),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@settings(max_examples=8, deadline=None)
@example(MIXED, [30, 40, 20, 50, 10], None, 110)
@example(MIXED, [30, 40, 20, 50, 10], 3, 90)
@example(MIXED, [20, 20, 20, 20, 20], 2, 60)
@given(
    of_row=st.lists(st.integers(0, 4), min_size=1, max_size=25),
    sizes=st.lists(st.integers(1, ALL_OF_GPU), min_size=5, max_size=5),
    max_models=st.one_of(st.none(), st.integers(1, 3)),
    host_bytes=st.one_of(st.none(), st.integers(0, 200)),
)
def test_swaps_of_one_worker_are_those_of_plain_lru(
    executor: str, of_row: list[int], sizes: list[int], max_models: int | None, host_bytes: int | None
) -> None:
    """On every executor, from host memory and from disk, whose seconds are those of their bandwidths."""
    residency = ModelResidency(max_models, host_bytes, host_bytes_per_s=50.0, disk_bytes_per_s=5.0)
    run = fleet(np.zeros(len(of_row)), of_row, sizes, residency, executor=EXECUTORS[executor]())
    expected = least_recently_used(of_row, sizes, max_models, host_bytes)
    assert swaps(run) == expected
    seconds = [
        0.0 if at == RESIDENT else sizes[of] / (50.0 if at == HOST else 5.0)
        for at, of in zip(expected, of_row, strict=True)
    ]
    np.testing.assert_allclose(run.record.request_columns["load_s"], seconds)
    assert run.record.request_columns["finish_s"].max() == pytest.approx(sum(seconds) + 3.0 * len(of_row))


@given(of_row=st.lists(st.integers(0, 4), min_size=1, max_size=40), gpus=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_memory_for_all_models_loads_each_once_on_a_gpu(of_row: list[int], gpus: int) -> None:
    run = fleet(np.arange(len(of_row), dtype=float), of_row, [20] * 5, ModelResidency(), gpus)
    worker = run.record.request_columns["worker"].tolist()
    missed = [pair for pair, swap in zip(zip(worker, of_row, strict=True), swaps(run), strict=True) if swap != RESIDENT]
    assert len(missed) == len(set(missed))
    assert (0, 0) not in missed


def test_one_slot_swaps_at_every_change_of_model() -> None:
    for residency in (ModelResidency(max_models=1), None):
        run = fleet(np.arange(20.0), [0, 1] * 10, [40, 40], residency)
        assert [swap != RESIDENT for swap in swaps(run)] == [False] + [True] * 19


def test_switch_to_a_resident_model_takes_its_seconds() -> None:
    run = fleet(np.zeros(4), [0, 1, 0, 0], [40, 40], ModelResidency(activate_s=0.5))
    assert run.record.request_columns["load_s"].tolist() == [0.0, 1.0, 0.5, 0.0]
    assert swaps(run) == [RESIDENT, DISK, RESIDENT, RESIDENT]


def test_repaired_gpu_lost_its_models_and_the_host_has_them() -> None:
    failures = Failures(outages={0: [(10.0, 11.0)]})
    run = fleet([0.0, 1.0, 20.0], [0, 1, 1], [40, 40], ModelResidency(), controllers=[failures])
    assert swaps(run) == [RESIDENT, DISK, HOST]


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=30),
    max_wait_s=st.integers(0, 20),
)
def test_no_request_is_overtaken_after_its_maximum_wait(rows: list[tuple[int, int]], max_wait_s: int) -> None:
    """A request that started before an earlier one did so while that had waited less than the maximum."""
    times, of_row = np.cumsum([gap for gap, _ in rows]).astype(float), [model for _, model in rows]
    residency, scheduler = ModelResidency(max_models=1), ResidentFirst(float(max_wait_s))
    columns = fleet(times, of_row, [40] * 4, residency, 2, scheduler=scheduler).record.request_columns
    arrival_s, start_s = columns["arrival_s"], columns["start_s"]
    for row in range(len(rows)):
        later = start_s[row + 1 :]
        assert (later[later < start_s[row]] - arrival_s[row] < max_wait_s).all()


@settings(max_examples=20, deadline=None)
@given(of_row=st.lists(st.integers(0, 3), min_size=1, max_size=20), max_wait_s=st.integers(0, 20))
def test_batches_of_a_fleet_have_one_model(of_row: list[int], max_wait_s: int) -> None:
    """The executor refuses a batch of several, and every request ends."""
    executor, scheduler = ContinuousBatching(batching=SameSizeSteps(), max_batch=3), ResidentFirst(float(max_wait_s))
    run = fleet(
        np.arange(len(of_row)) * 0.5, of_row, [40] * 4, ModelResidency(), 2, executor=executor, scheduler=scheduler
    )
    assert (run.record.request_columns["outcome"] == COMPLETED).all()


def test_without_a_maximum_wait_of_0_the_resident_model_goes_first() -> None:
    of_row = [0, 1, 0, 0]
    starts = {}
    for max_wait_s in (0.0, 100.0):
        run = fleet(
            np.arange(4) * 0.1, of_row, [40, 40], ModelResidency(max_models=1), scheduler=ResidentFirst(max_wait_s)
        )
        starts[max_wait_s] = np.argsort(run.record.request_columns["start_s"]).tolist()
    assert starts == {0.0: [0, 1, 2, 3], 100.0: [0, 2, 3, 1]}


SHARES = st.lists(st.integers(1, 1000), min_size=1, max_size=12).map(
    lambda weights: {f"m{n}": weight / sum(weights) for n, weight in enumerate(sorted(weights, reverse=True))}
)


@settings(max_examples=40, deadline=None)
@given(shares=SHARES, gpus=st.integers(1, 9), slots=st.integers(1, 4))
def test_replicas_are_in_proportion_to_popularity(shares: dict[str, float], gpus: int, slots: int) -> None:
    """Highest averages: moving a replica to another model would not lower the most requests of one."""
    placed = Static().place(gpus, shares, slots)
    count = {role: sum(role in on for on in placed) for role in shares}
    assert all(placed)
    assert all(len(set(on)) == len(on) for on in placed)
    assert min(count.values()) >= 1
    for role, share in shares.items():
        for other, fewer in shares.items():
            if count[role] > 1 and count[other] < gpus:
                assert share / count[role] >= fewer / (count[other] + 1) - 1e-12
    if sum(count.values()) <= gpus * slots:
        assert max(map(len, placed)) <= slots
    elif gpus > 1:  # as many as needed for balanced load, and no more
        assert max(share / count[role] for role, share in shares.items() if count[role] < gpus) <= 1 / gpus + 1e-6


def test_placed_models_are_resident_from_the_start_and_run_nowhere_else() -> None:
    rng = np.random.default_rng(1)
    of_row = rng.choice(4, 200, p=[0.6, 0.2, 0.1, 0.1])
    shares = {f"m{n}": float(share) for n, share in enumerate(np.bincount(of_row) / 200)}
    placed = Static().place(3, shares, 2)
    for scheduler in (ResidentFirst(), PerWorkerQueues(ByModel())):
        run = fleet(
            np.cumsum(rng.exponential(1.0, 200)),
            of_row,
            [40] * 4,
            ModelResidency(),
            3,
            placed=placed,
            scheduler=scheduler,
        )
        assert set(swaps(run)) == {RESIDENT}
        for row, worker in enumerate(run.record.request_columns["worker"].tolist()):
            assert f"m{of_row[row]}" in placed[worker]


def test_pinned_models_have_gpus_that_no_other_uses() -> None:
    shares = {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
    placed = Pinned(2).place(10, shares, 1)
    assert Static().place(2, shares, 2) == [["a", "d"], ["b", "c"]]
    assert [set(on) for on in placed] == [{"a"}] * 4 + [{"b"}] * 3 + [{"c", "d"}] * 3


def test_router_keeps_each_model_where_it_is() -> None:
    """Two models in turn on two GPUs of one slot: who knows the residency swaps once, who does not swaps on."""
    found = {}
    for name, router in (("by-model", ByModel()), ("least-work-left", LeastWorkLeft())):
        run = fleet(
            np.arange(30) * 4.0,
            [0, 1, 1] * 10,
            [60, 60],
            ModelResidency(max_models=1),
            2,
            scheduler=PerWorkerQueues(router),
        )
        found[name] = sum(swap != RESIDENT for swap in swaps(run))
    assert found["by-model"] == 1
    assert found["least-work-left"] > 10


def test_router_expects_the_models_of_the_requests_that_wait() -> None:
    """The last request is for the model that GPU 0 holds, and not any more after those that wait there."""
    of_row, patient = [1, 1, 2, 2, 2, 2, 3, 3, 1], PerWorkerQueues(ByModel(load_weight=100.0))
    run = fleet(np.zeros(9), of_row, [60] * 4, ModelResidency(max_models=1), 2, scheduler=patient)
    assert run.record.request_columns["worker"].tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 1]


def test_fcfs_on_a_fleet_takes_the_seconds_of_its_swaps() -> None:
    """Without a residency a load takes the profile's seconds, and the summary counts it as such."""
    run = fleet(np.zeros(6), [0, 1, 1, 2, 0, 0], [40] * 3, None, scheduler=Fcfs())
    assert run.record.request_columns["load_s"].tolist() == [0.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    assert set(swaps(run)) == {RESIDENT, list(SWAPS).index("load")}


@cache
def one_model() -> dict[str, Any]:
    """Return the configuration of 80 requests for one base model on two GPUs."""
    words = "trace=synthetic-gentd26 trace.base_models=[1] trace.requests=80 trace.history=0 models=sdxl cluster=h100 "
    words += "arrivals.rate_rpm=60 backend.gpu=h100-diffusers cluster.count=2 extrapolate=warn"
    return configured(*words.split())


def simulated_as(choices: str = "", **keys: Any) -> Outcome:
    """Run `one_model` with other choices of parts, ``GROUP=CHOICE`` each, and ``keys``, with __ between their parts.

    `simulated` composes by Hydra every time, which takes longer than the run.
    """
    config = deepcopy(one_model())
    for group, choice in (word.split("=") for word in choices.split()):
        config[group] = parse((CONF / group / f"{choice}.yaml").read_bytes())
        if "defaults" in config[group]:
            (base,) = config[group].pop("defaults")
            config[group] = parse((CONF / group / f"{base}.yaml").read_bytes()) | config[group]
    for key, value in keys.items():
        *path, last = key.split("__")
        node = config
        for name in path:
            node = node[name]
        node[last] = value
    return simulate(config)


def test_fleet_of_one_model_is_the_run_without_one_to_the_byte() -> None:
    direct = simulated_as().requests
    for choices in (
        "",
        "residency=by-memory scheduler=resident-first",
        "allocation=static-by-popularity scheduler=resident-first",
    ):
        assert simulated_as(f"frontend=by-base-model {choices}").requests.equals(direct)


def test_summary_of_a_fleet_adds_up() -> None:
    choices = "frontend=by-base-model residency=one-model scheduler=resident-first"
    summary = simulated_as(choices, trace__base_models=[50, 30, 20]).summary
    fleet = summary["fleet"]
    swapped = sum(of["count"] for of in fleet["swaps"].values())
    assert swapped == summary["gpu"]["switches"] > 0
    assert fleet["hit_rate"] == pytest.approx(1 - swapped / summary["requests"]["completed"])
    assert sum(of["completed"] for of in fleet["models"].values()) == summary["requests"]["completed"]
    # Each GPU holds one model all the time.
    assert sum(of["replicas"] for of in fleet["models"].values()) == pytest.approx(2.0)
    assert sum(of["gpu_s"] for of in fleet["models"].values()) == pytest.approx(
        summary["gpu"]["busy_fraction"] * summary["gpu"]["seconds"]
    )
    assert [of["base_models"] for of in fleet["models"].values()] == [["model-0"], ["model-1"], ["model-2"]]
    named = [row["what"] for row in summary["assumptions"]]
    assert len([what for what in named if what.startswith("step time of")]) == 1


def test_explicit_models_cost_what_their_profiles_say() -> None:
    small = {
        "_target_": "mezzotint.sim.core.model.Model",
        "name": "flux-dev",
        "steps": 50,
        "width": 1024,
        "height": 1024,
    }
    found = simulated_as(
        "frontend=by-base-model", trace__base_models=[50, 50], models__small=small,
        frontend__models={"model-0": "large", "model-1": "small"},
    ).requests.to_pandas()  # fmt: skip
    seconds = found.groupby("model")["denoise_s"].mean()
    assert set(seconds.index) == {"flux-dev", "sdxl"}
    assert seconds["flux-dev"] > 1.5 * seconds["sdxl"]


FLEET = "frontend=by-base-model"


@pytest.mark.parametrize(
    ("choices", "keys", "message"),
    [
        (FLEET, {"trace__base_models": []}, r"default: found 80 of 80 requests without a base model that is known;"),
        (FLEET, {"frontend__variants_of": None}, r"default: found 80 of 80 .* known \(model-0\)"),
        (FLEET, {"frontend__models": {"model-0": "huge"}}, "needs a model in role 'huge'"),
        (f"{FLEET} allocation=static-by-popularity", {}, "beside the scheduler Fcfs"),
        ("allocation=pinned", {}, "beside the front end Direct"),
        (f"{FLEET} allocation=pinned scheduler=resident-first controller=autoscale-utilisation", {}, "^controller: "),
        (
            f"{FLEET} scheduler=hit-miss-per-worker",
            {"trace__base_models": [50, 50]},
            "requests for the role model-1, and scheduler=hit-miss-per-worker",
        ),
        ("residency=by-memory", {"backend__gpu": "h100"}, "the bytes of sdxl on h100 are not known"),
        ("residency=by-memory", {"cluster__gpu__memory_bytes": None}, "cluster.gpu.memory_bytes null"),
        ("", {"models__large__architecture": "unheard"}, "architecture unheard"),
        ("", {"models__large__architecture": "flux-dev"}, "has a profile of its own"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(choices: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulated_as(choices, **keys)


def test_default_serves_requests_without_a_base_model_and_counts_them() -> None:
    summary = simulated_as(FLEET, trace__base_models=[], frontend__default="large").summary
    counted = {row["what"]: row["value"] for row in summary["assumptions"]}
    assert counted["requests without a known base model, served by the model in role large"] == 80
    assert summary["fleet"]["models"]["sdxl"]["completed"] == 80
