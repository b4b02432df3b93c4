"""Routing by add-on: prefer workers that hold a request's ControlNets and LoRAs, if waiting for them pays."""

from collections.abc import Iterator
from dataclasses import dataclass

from mezzotint.backends.base import Asset
from mezzotint.sim.core.request import NO_ADDONS, Request
from mezzotint.sim.protocols import Worker
from mezzotint.sim.scheduling.routing.holders import Among, Key
from mezzotint.sim.scheduling.routing.routers import WorkAndLoads


@dataclass(slots=True)
class ByAddons(WorkAndLoads):
    """Send a request to the worker with the least work left, counting the loads of its missing add-ons as work.

    A worker is expected to hold its resident ControlNets, those of its outstanding requests, and the LoRAs of the last
    of these: weights hold one set of LoRAs at a time.
    """

    kinds = ("controlnet", "lora")

    def assets(self, request: Request) -> list[tuple[str, str]]:
        nets, loras = request.addons or NO_ADDONS
        return [*(("controlnet", name) for name in nets), *(("lora", name) for name in loras)]

    def lists(self, request: Request, among: Among) -> Iterator[tuple[Key, float]]:
        (nets, loras), model = request.addons or NO_ADDONS, request.model or ""
        for kind, worker in among.kinds.items():
            loras_s = [worker.backend.load(Asset("lora", name, model)).seconds for name in loras]
            nets_s = [worker.backend.load(Asset("controlnet", name, model)).seconds for name in nets]
            # The LoRAs first: few workers hold the same, and the others load all of the set.
            if loras:
                yield (kind, "lora", loras[0]), 0.0
            for number, name in enumerate(nets):
                # In the order of missing_load_s: a sum depends on it.
                yield (kind, "controlnet", name), sum([*nets_s[:number], *loras_s])
            yield (kind,), sum([*nets_s, *loras_s])

    def missing_load_s(self, worker: Worker, request: Request) -> float:
        wanted, model = request.addons or NO_ADDONS, request.model or ""
        outstanding = self._outstanding.get(worker, ())
        nets = {name for sent in outstanding for name in (sent.addons or NO_ADDONS).controlnets}
        # Weights hold one set of LoRAs: what the last request sent there will leave
        # (test_lora_of_the_last_request_sent_to_a_worker_is_not_missing_there).
        loras = set((outstanding[-1].addons or NO_ADDONS).loras) if outstanding else None
        missing = [
            Asset("controlnet", name, model)
            for name in wanted.controlnets
            if name not in nets and Asset("controlnet", name, model) not in worker.resident
        ]
        if loras is None:
            loras = {asset.name for asset in worker.resident if asset.kind == "lora"}
        # All of the set are loaded anew if one differs: the weights are restored first.
        if loras != set(wanted.loras):
            missing += [Asset("lora", name, model) for name in wanted.loras]
        return sum(worker.backend.load(asset).seconds for asset in missing)
