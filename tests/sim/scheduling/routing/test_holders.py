"""The index of workers by the assets they hold finds what a scan over all workers finds."""

from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.backends.base import Asset, Cost
from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.cluster.failures import Failures
from mezzotint.sim.cluster.residency import ModelResidency
from mezzotint.sim.core.gpu import Gpu, Kind
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.request import Addons, Request
from mezzotint.sim.execution.continuous_batching import ContinuousBatching
from mezzotint.sim.execution.sequential import Sequential
from mezzotint.sim.execution.static_batch import StaticBatch
from mezzotint.sim.frontend.by_base_model import ByBaseModel
from mezzotint.sim.protocols import Run, Scheduler, Worker
from mezzotint.sim.scheduling import resident_first
from mezzotint.sim.scheduling.resident_first import ResidentFirst, holds_model
from mezzotint.sim.scheduling.routing import holders
from mezzotint.sim.scheduling.routing.addons import ByAddons
from mezzotint.sim.scheduling.routing.models import ByModel
from mezzotint.sim.scheduling.routing.per_worker import PerWorkerQueues
from mezzotint.sim.scheduling.routing.routers import WorkAndLoads
from tests.sim.cluster.test_cluster import Acts
from tests.sim.lab import FixedTimes, engine
from tests.sim.scheduling.routing.test_lowest import Scan

SIZES = {"m0": 40, "m1": 40, "m2": 60, "m3": 30, "net0": 20, "net1": 25, "net2": 30}
"""Bytes of the assets; a GPU has 100."""
ADDONS = [
    Addons(("net0",), ("lora0",)),
    Addons(("net0", "net1"), ("lora1",)),
    Addons(("net1",)),
    Addons((), ("lora0", "lora2")),
    Addons(("net2", "net0"), ("lora0",)),
    Addons(("net0", "net1", "net2", "net3"), ("lora0",)),  # more than `MAX_TOLD_APART`
    Addons(),
]
LOAD_S = {"model": 1.0, "controlnet": 0.5, "lora": 0.25}


class Assets(FixedTimes):
    """Assets that load in the seconds of their kind, ``slower`` times."""

    by_row = False

    def __init__(self, slower: float) -> None:
        super().__init__([3.0] * 100)
        self.slower = slower

    def bytes(self, asset: Asset) -> int | None:
        return SIZES.get(asset.name, 1)

    def load(self, asset: Asset) -> Cost:
        return Cost(self.slower * LOAD_S[asset.kind], 1.0)


class ScanOfLoads(Scan):
    """The definition of a router that counts loads: work left and missing loads of all workers, for every request."""

    def __init__(self, router: WorkAndLoads) -> None:
        super().__init__("work", router.ties)
        self.router = router

    def bind(self, run: Run) -> None:
        super().bind(run)
        self.router.bind(run)

    def choose(self, request: Request, workers: Sequence[Worker], now_s: float) -> Worker:
        self.request = request
        return super().choose(request, workers, now_s)

    def value(self, worker: Worker, now_s: float) -> float:
        left_s, weight = super().value(worker, now_s), self.router.load_weight
        return left_s if self.request is None else left_s + weight * self.router.missing_load_s(worker, self.request)

    def sent(self, worker: Worker, request: Request, now_s: float, loading_s: float = 0.0) -> None:
        self.request = None
        super().sent(worker, request, now_s, self.router.missing_load_s(worker, request))
        self.router.sent(worker, request, now_s)

    def left(self, worker: Worker, request: Request, now_s: float) -> None:
        super().left(worker, request, now_s)
        self.router.left(worker, request, now_s)


class ScannedFirst(ResidentFirst):
    """The definition: of all free GPUs the one with the shortest load, then the fewest requests, then the first."""

    def _free_worker(self, model: str) -> Worker | None:
        cluster = self._run.cluster
        free = [worker for worker in cluster.workers if worker.has_capacity and self._may_take(worker, model)]
        load_s = {at: 0.0 if holds_model(at, model) else cluster.load_s(at, model) for at in free}
        return min(free, key=lambda worker: (load_s[worker], worker.running), default=None)


def controllers(what: str, gpus: int, roles: Sequence[str]) -> list[Any]:
    """Return what makes GPUs fail, rents and gives back the last instance of two, or changes roles."""
    last = gpus // 2 - 1
    rents = [
        (0.0, lambda run, now_s: run.cluster.rent(2 * last)),
        (1.0, lambda run, now_s: run.cluster.start_instance(last, 0.4, now_s)),
        (5.0, lambda run, now_s: run.cluster.stop_instance(last, now_s)),
        (7.0, lambda run, now_s: run.cluster.start_instance(last, 0.4, now_s)),
    ]
    changes = [
        (
            0.7 + at,
            lambda run, now_s, at=at: run.cluster.change_role(run.cluster.worker(at), roles[-at % len(roles)], now_s),
        )
        for at in range(3)
    ]
    return {
        "": [],
        "fails": [Failures(mean_up_s=4.0, mean_down_s=1.0)],
        "rents": [Acts(*rents)],
        "roles": [Acts(*changes)],
    }[what]


def run_of(
    scheduler: Scheduler, gaps: Sequence[float], of_row: Sequence[int], gpus: int, kinds: int, batch: int, what: str,
    residency: ModelResidency | None, is_placed: bool, addons: bool,
) -> list[int]:  # fmt: skip
    """Return the worker of each request; without ``addons``, ``of_row`` are the models."""
    names = ["m0"] if addons else ["m0", "m1", "m2", "m3"]
    models = {name: Model(name, 50, 64, 64) for name in names}
    frontend = ByBaseModel(variants_of=None)
    frontend.read(np.array([0 if addons else row for row in of_row[: len(gaps)]], np.int32), names, models)
    of_kind = [
        Kind(Gpu(f"gpu{number}", 300.0, 60.0, "made up", memory_bytes=100, gpus_per_instance=2), Assets(1.0 + number))
        for number in range(kinds)
    ]
    on = [[names[number % len(names)], names[(number + 1) % len(names)]] for number in range(gpus)]
    roles = [at[0] if is_placed else "m0" for at in on]
    cluster = Cluster(
        [of_kind[number // 2 % kinds] for number in range(gpus)], roles, models, residency, on if is_placed else None
    )
    run = engine(
        np.cumsum(gaps), [3.0] * len(gaps), models=models, frontend=frontend, scheduler=scheduler, seed=len(gaps),
        backend=of_kind[0].backend, roles=roles, cluster=cluster, controllers=controllers(what, gpus, names),
        executor={1: Sequential(), 2: ContinuousBatching(2), 3: StaticBatch(3)}[batch],
        addons=(lambda row: ADDONS[(of_row[row] + row % 4) % len(ADDONS)]) if addons else None,
    )  # fmt: skip
    run.run()
    return run.record.request_columns["worker"].tolist()


RESIDENCIES = {
    "none": lambda: None,
    "all in host memory": lambda: ModelResidency(disk_bytes_per_s=20.0),
    "two in host memory": lambda: ModelResidency(1, 100, disk_bytes_per_s=20.0),
}


@settings(max_examples=40)
@given(
    part=st.sampled_from(["by-model", "by-addons", "resident-first"]),
    gaps=st.lists(st.sampled_from([0.0, 0.1, 0.3, 2.0]), min_size=25, max_size=40),
    of_row=st.lists(st.integers(0, 3), min_size=40, max_size=40),
    gpus=st.sampled_from([4, 6, 20]),
    kinds=st.sampled_from([1, 2]),
    what=st.sampled_from(["", "fails", "rents", "roles"]),
    residency=st.sampled_from([*RESIDENCIES]),
    is_placed=st.booleans(),
    batch=st.sampled_from([1, 2, 3]),
    load_weight=st.sampled_from([0.0, 1.0, 5.0]),
    ties=st.sampled_from(["first", "first", "random"]),
    few=st.sampled_from([0, 0, 100]),
)
def test_index_chooses_what_a_scan_over_all_workers_chooses(
    part: str, of_row: Any, kinds: int, what: str, residency: str, is_placed: bool, few: int, load_weight: float,
    ties: Any, **system: Any,
) -> None:  # fmt: skip
    """With ties, kinds of GPU, failures, rented GPUs, and loads that change what workers hold and expect."""
    if what == "rents":
        kinds = 1  # all GPUs that are rented are of one kind
    if part == "by-addons":
        residency, is_placed = "none", False
    if part != "resident-first":
        system["batch"] = 1  # a batch has one model and one set of LoRAs
    found = []
    for is_scan in (True, False):
        if part == "resident-first":
            scheduler: Scheduler = ScannedFirst() if is_scan else ResidentFirst()
        else:
            router = (ByModel if part == "by-model" else ByAddons)(load_weight=load_weight, ties=ties)
            scheduler = PerWorkerQueues(ScanOfLoads(router) if is_scan else router)
        with mock.patch.object(holders, "FEW", few), mock.patch.object(resident_first, "FEW", few):
            found.append(
                run_of(
                    scheduler, of_row=of_row, kinds=kinds, what=what, residency=RESIDENCIES[residency](),
                    is_placed=is_placed, addons=part == "by-addons", **system,
                )
            )  # fmt: skip
    assert found[0] == found[1]
