"""Routing by add-on: prefer workers that hold a request's ControlNets and LoRAs, if waiting for them pays."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations

from mezzotint.backends.base import Asset
from mezzotint.sim.addons.assets import requested_addons
from mezzotint.sim.core.request import NO_ADDONS, Request
from mezzotint.sim.protocols import Worker
from mezzotint.sim.scheduling.routing.holders import Among, Key, name_of_set
from mezzotint.sim.scheduling.routing.routers import WorkAndLoads

MAX_TOLD_APART = 4
"""Add-ons of a request for which holders and others are told apart: a request takes up to 2 to this power searches."""


@dataclass(slots=True)
class ByAddons(WorkAndLoads):
    """Send a request to the worker with the least work left, counting the loads of its missing add-ons as work.

    A worker is expected to hold its resident ControlNets, those of its outstanding requests, and the LoRAs of the last
    of these: weights hold one set of LoRAs at a time.
    """

    _request: Request | None = field(init=False, default=None, repr=False)
    _known: dict[tuple[str, str | None], "AddonLoads"] = field(init=False, default_factory=dict, repr=False)
    """The loads of ``_request``, the last one asked for, by kind of GPU and model, which its next try may change."""

    kinds = ("controlnet", "lora")

    def assets(self, request: Request) -> list[tuple[str, str]]:
        nets, loras = request.addons or NO_ADDONS
        return [*(("controlnet", name) for name in nets), *([("lora", name_of_set(loras))] if loras else [])]

    def lists(self, request: Request, among: Among) -> Iterator[tuple[list[Key], float]]:
        assets = self.assets(request)
        for kind, worker in among.kinds.items():
            loads = self._loads(worker, request)
            each_s = [*([seconds] for _, seconds in loads.nets), loads.loras_s]
            keys = [(kind, *asset) for asset in assets]
            listed = [number for number, key in enumerate(keys) if key in among.lists]
            # Who holds more before who holds less, so that few are looked at who miss more than they must.
            told_apart, others = listed[:MAX_TOLD_APART], (*listed[MAX_TOLD_APART:],)
            for size in range(len(told_apart), -1, -1):
                for held in combinations(told_apart, size):
                    missing = (each for number, each in enumerate(each_s) if number not in held + others)
                    # In the order of missing_load_s: a sum depends on it.
                    yield [keys[number] for number in held] or [(kind,)], sum(chain.from_iterable(missing))

    def missing_load_s(self, worker: Worker, request: Request) -> float:
        loads, outstanding = self._loads(worker, request), self._outstanding.get(worker, ())
        missing = [(net, seconds) for net, seconds in loads.nets if net not in worker.resident]
        if missing:  # else what comes with the outstanding requests, which may be many, is not asked for
            coming = {name for sent in outstanding for name in (sent.addons or NO_ADDONS).controlnets}
            missing = [(net, seconds) for net, seconds in missing if net.name not in coming]
        missing_s = [seconds for _, seconds in missing]
        if loads.loras:
            # Weights hold one set of LoRAs: what the last request sent there will leave
            # (test_lora_of_the_last_request_sent_to_a_worker_is_not_missing_there).
            if outstanding:
                loras = set((outstanding[-1].addons or NO_ADDONS).loras)
            else:
                loras = {asset.name for asset in worker.resident if asset.kind == "lora"}
            # All of the set are loaded anew if one differs: the weights are restored first.
            if loras != loads.loras:
                missing_s += loads.loras_s
        return sum(missing_s)

    def _loads(self, worker: Worker, request: Request) -> "AddonLoads":
        """Return the loads of the add-ons of ``request`` on the kind of GPU of ``worker``."""
        if request is not self._request:
            self._request, self._known = request, {}
        key = worker.gpu.name, request.model
        loads = self._known.get(key)
        if loads is None:
            nets = requested_addons(self._run, request, "controlnet")
            loras = requested_addons(self._run, request, "lora")
            load = worker.backend.load
            loads = self._known[key] = AddonLoads(
                [(net, load(net).seconds) for net in nets],
                {lora.name for lora in loras},
                [load(lora).seconds for lora in loras],
            )
        return loads


@dataclass(slots=True)
class AddonLoads:
    """The ControlNets of a request, each with the seconds of its load, the set of its LoRAs, and those of each."""

    nets: list[tuple[Asset, float]]
    loras: set[str]
    loras_s: list[float]
