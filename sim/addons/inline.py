"""ControlNets in the worker's own loop: one after another before the denoiser, at every step (diffusers)."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal

from backends.base import Asset, Cost, WorkFailed, total
from conf.ranges import Count
from sim.addons.assets import activations, asked, in_use, load
from sim.core.request import Request
from sim.protocols import ControlNetPlacement, Loads, Run, Worker


@dataclass(slots=True)
class InlineControlNets(ControlNetPlacement):
    """They lie in the worker's memory, and none that is in use is evicted.

    Where those of a request do not all fit beside the model and what a step allocates, the last ones take turns in the
    room of one, loaded from host memory at every step (SwiftDiffusion, 1: "forced to offload").

    Args:
        keep_resident: whether they stay when their request is done; if not, every request loads its own.
        offload: whether they take turns; if not, the request fails.
        eviction: which is evicted first: ``lru`` the least recently used, ``lfu`` the least frequently used since it was
            loaded onto that worker, among equals the least recently used.
        max_resident: ControlNets that a worker keeps at most, but for those of one request; null: as many as fit.
    """

    keep_resident: bool = True
    offload: bool = True
    eviction: Literal["lru", "lfu"] = "lru"
    max_resident: Count | None = None
    _uses: dict[int, Counter[Asset]] = field(init=False, default_factory=dict, repr=False)
    _run: Run = field(init=False, repr=False)
    _turns: dict[int, Cost] = field(init=False, default_factory=dict, repr=False)
    """By row: what loading those that take turns adds to a step."""

    def bind(self, run: Run, faster: Callable[[str], float] | None = None) -> None:
        self._run = run

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request] = ()) -> Loads:
        nets = asked(self._run, request, "controlnet")
        request.swapped_bytes = 0
        if not nets:
            return []
        run = self._run
        keep, room = in_use([*active, request]), activations(run, request)
        loads: Loads = []
        for n, net in enumerate(nets):
            absent = net not in worker.resident
            uses = self._uses.setdefault(worker.id, Counter())
            uses[net] = 1 if absent else uses[net] + 1  # as traces.describe.loads.Cache: a count is lost at eviction
            if absent and (self.eviction == "lfu" or self.max_resident is not None):
                self._make_room(worker, net, keep, room)
            if run.cluster.admit(worker, net, run.backend.bytes(net), keep, room) is None:
                self._take_turns(worker, request, nets, n)
                break
            if absent:
                loads.append(("controlnet", load(run, worker, net)))
                run.record_load(net, loads[-1][1].seconds)
        return loads

    def _make_room(self, worker: Worker, net: Asset, keep: Collection[Asset], room: int) -> None:
        cluster, resident, uses = self._run.cluster, worker.resident, self._uses[worker.id]
        nets = [asset for asset in resident if asset.kind == "controlnet"]
        order = sorted(nets, key=uses.__getitem__) if self.eviction == "lfu" else nets
        memory = cluster.gpu.memory_bytes
        free = inf if memory is None else memory - sum(resident.values()) - room
        held, needed = len(nets), self._run.backend.bytes(net) or 0
        for other in order:
            if needed <= free and (self.max_resident is None or held < self.max_resident):
                return
            if other not in keep:
                free += resident[other]
                held -= 1
                cluster.evict(worker, other)

    def _take_turns(self, worker: Worker, request: Request, nets: Sequence[Asset], fit: int) -> None:
        run = self._run
        if not fit or not self.offload:
            gpu = run.cluster.gpu
            raise WorkFailed(
                f"the ControlNets {', '.join(net.name for net in nets)} do not fit into the "
                f"{(gpu.memory_bytes or 0) / 1e9:.1f} GB of a {gpu.name} beside {request.model} and what it runs: "
                f"{fit} of {len(nets)} do; choose another cluster= or addons=ignore"
            )
        costs = [load(run, worker, net) for net in nets[fit - 1 :]]
        self._turns[request.row] = total(costs)
        request.swapped_bytes = sum(run.backend.bytes(net) or 0 for net in nets[fit:])

    def step(self, worker: Worker, active: Sequence[Request], plain: Cost, now_s: float) -> Cost:
        if not self._turns:
            return plain
        return total([plain, *(self._turns[each.row] for each in active if each.row in self._turns)])

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> None:
        self._turns.pop(request.row, None)
        if not self.keep_resident:
            used = in_use(active)
            for net in asked(self._run, request, "controlnet"):
                if net in worker.resident and net not in used:
                    self._run.cluster.evict(worker, net)
