"""Inline ControlNets: one after another before the denoiser, at every step, in the worker's own loop (diffusers)."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from mezzotint.backends.base import Asset, Cost, WorkFailed, total
from mezzotint.settings.ranges import Count
from mezzotint.sim.addons.assets import activation_bytes, in_use, least_recent, requested_addons
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import ControlNetPlacement, Loads, Run, Worker


@dataclass(slots=True)
class InlineControlNets(ControlNetPlacement):
    """Keep ControlNets in the worker's memory; none that is in use is evicted.

    If those of a request do not all fit beside the model and a step's activations, the last ones share the memory of
    one. Each is then loaded from host memory at every step (SwiftDiffusion, 1: "forced to offload").

    Args:
        keep_resident: keep them when their request is done; else every request loads its own.
        offload: swap those that do not fit; else the request fails.
        eviction: ``lru`` evicts the least recently used first, ``lfu`` the least frequently used since it was loaded
            onto that worker, among equals the least recently used.
        max_resident: ControlNets that a worker keeps at most, not counting those of one request; null: as many as fit.
    """

    keep_resident: bool = True
    offload: bool = True
    eviction: Literal["lru", "lfu"] = "lru"
    max_resident: Count | None = None
    _uses: dict[int, Counter[Asset]] = field(init=False, default_factory=dict, repr=False)
    _run: Run = field(init=False, repr=False)
    _swap_costs: dict[int, Cost] = field(init=False, default_factory=dict, repr=False)
    """Cost that loading swapped ControlNets adds to a step, by trace row."""

    def bind(self, run: Run, faster: Callable[[str], float] | None = None) -> None:
        self._run = run

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request] = ()) -> Loads:
        nets = requested_addons(self._run, request, "controlnet")
        request.swapped_bytes = 0
        if not nets:
            return []
        run = self._run
        keep, reserved_bytes = in_use([*active, request]), activation_bytes(worker, request)
        loads: Loads = []
        for n, net in enumerate(nets):
            absent = net not in worker.resident
            uses = self._uses.setdefault(worker.id, Counter())
            # Eviction loses the count, as in mezzotint.traces.describe.loads.Cache.
            uses[net] = 1 if absent else uses[net] + 1
            if absent and (self.eviction == "lfu" or self.max_resident is not None):
                self._evict_for(worker, net, keep, reserved_bytes)
            if run.cluster.admit(worker, net, worker.backend.bytes(net), keep, reserved_bytes) is None:
                self._swap(worker, request, nets, n)
                break
            if absent:
                loads.append(("controlnet", worker.backend.load(net)))
                run.record_load(net, loads[-1][1].seconds)
        return loads

    def _evict_for(self, worker: Worker, net: Asset, keep: Collection[Asset], reserved_bytes: int) -> None:
        resident, uses, memory = worker.resident, self._uses[worker.id], worker.gpu.memory_bytes
        nets = [asset for asset in resident if asset.kind == "controlnet"]
        if self.eviction == "lfu":
            nets.sort(key=uses.__getitem__)
        needed = sum(resident.values()) + reserved_bytes + (worker.backend.bytes(net) or 0)
        surplus = 0 if self.max_resident is None else len(nets) - self.max_resident + 1
        order = {asset: resident[asset] for asset in nets}
        for other in least_recent(order, needed - (inf if memory is None else memory), keep, surplus):
            self._run.cluster.evict(worker, other)

    def _swap(self, worker: Worker, request: Request, nets: Sequence[Asset], fit: int) -> None:
        if not fit or not self.offload:
            gpu = worker.gpu
            raise WorkFailed(
                f"the ControlNets {', '.join(net.name for net in nets)} do not fit into the "
                f"{(gpu.memory_bytes or 0) / 1e9:.1f} GB of a {gpu.name} beside {request.model} and its "
                f"activations: {fit} of {len(nets)} do; choose another cluster= or addons=ignore"
            )
        costs = [worker.backend.load(net) for net in nets[fit - 1 :]]
        self._swap_costs[request.row] = total(costs)
        request.swapped_bytes = sum(worker.backend.bytes(net) or 0 for net in nets[fit:])

    def step(self, worker: Worker, active: Sequence[Request], plain: Cost, now_s: float) -> Cost:
        if not self._swap_costs:
            return plain
        return total([plain, *(self._swap_costs[request.row] for request in active if request.row in self._swap_costs)])

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> None:
        self._swap_costs.pop(request.row, None)
        if not self.keep_resident:
            used = in_use(active)
            for net in requested_addons(self._run, request, "controlnet"):
                if net in worker.resident and net not in used:
                    self._run.cluster.evict(worker, net)
