"""ControlNets in the worker's own loop: one after another before the denoiser, at every step (diffusers)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.base import Asset, Cost, WorkFailed
from sim.addons.assets import activations, asked, in_use, joules, load
from sim.parts import Loads, Run, Worker
from sim.request import Request


@dataclass(slots=True)
class InLine:
    """They lie in the worker's memory; what was unused for the longest goes first, and none that is in use.

    Where those of a request do not all fit beside the model and what a step allocates, the last ones take turns in the
    room of one, loaded from host memory at every step (SwiftDiffusion, 1: "forced to offload"), or the request fails.

    Args:
        keep: whether they stay when their request is done; if not, every request loads its own.
        offload: whether they take turns; if not, the request fails.
    """

    keep: bool = True
    offload: bool = True
    _run: Run = field(init=False, repr=False)
    _turns: dict[int, Cost] = field(init=False, default_factory=dict, repr=False)
    """By row: what loading those that take turns adds to a step."""

    def bind(self, run: Run, faster: Callable[[str], float] | None = None) -> None:
        """See ControlNets.bind. They run in the denoiser's own loop, and are as fast as it is."""
        self._run = run

    def bring(self, worker: Worker, request: Request, active: Sequence[Request] = ()) -> Loads:
        """See ControlNets.bring."""
        nets = asked(self._run, request, "controlnet")
        request.offloaded = 0
        if not nets:
            return []
        run = self._run
        keep, room = in_use([*active, request]), activations(run, request)
        loads: Loads = []
        for n, net in enumerate(nets):
            absent = net not in worker.resident
            if run.cluster.admit(worker, net, run.backend.bytes(net), keep, room) is None:
                self._take_turns(worker, request, nets, n)
                break
            if absent:
                loads.append(("controlnet", load(run, worker, net)))
                run.loaded(net, loads[-1][1].seconds)
        return loads

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
        self._turns[request.row] = Cost(sum(cost.seconds for cost in costs), joules(costs))
        request.offloaded = sum(run.backend.bytes(net) or 0 for net in nets[fit:])

    def step(self, worker: Worker, active: Sequence[Request], plain: Cost, now_s: float) -> Cost:
        """See ControlNets.step. The backend has them in ``plain``."""
        if not self._turns:
            return plain
        costs = [plain, *(self._turns[each.row] for each in active if each.row in self._turns)]
        return Cost(sum(cost.seconds for cost in costs), joules(costs))

    def holds(self, worker: Worker, active: Sequence[Request]) -> int | None:
        """See ControlNets.holds."""
        return None

    def gone(self, worker: Worker, request: Request, active: Sequence[Request]) -> None:
        """See ControlNets.gone."""
        self._turns.pop(request.row, None)
        if not self.keep:
            used = in_use(active)
            for net in asked(self._run, request, "controlnet"):
                if net in worker.resident and net not in used:
                    self._run.cluster.evict(worker, net)
