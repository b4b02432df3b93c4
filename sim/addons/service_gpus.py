"""ControlNets on GPUs of their own, beside the denoiser's encoder at every step (SwiftDiffusion, 4.1)."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from backends.base import AddonBackend, Asset, Cost, RemoteControlNetCosts, WorkFailed
from sim.addons.assets import activations, asked, check_addon_backend, load
from sim.core.request import Request
from sim.protocols import ControlNetPlacement, Loads, Run, Worker

PARTS = ("controlnets: %s does not tell the parts of a step apart", "or controlnet_placement=inline")


@dataclass(slots=True)
class ServiceGpus(ControlNetPlacement):
    """Each on a GPU of the group, or on as many as step the denoiser, so that nobody waits for another's (4.1; Katz).

    A step takes max(encoder, ControlNet) + n x receive + decoder. ControlNets that are not on their GPUs are loaded
    before the first step, all at once; ``keep_resident`` says whether they stay when the request is done.
    """

    keep_resident: bool = True
    _run: Run = field(init=False, repr=False)
    _faster: Callable[[str], float] = field(init=False, repr=False)

    def bind(self, run: Run, faster: Callable[[str], float]) -> None:
        self._run, self._faster = run, faster
        check_addon_backend(run, *PARTS)

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        nets = asked(self._run, request, "controlnet")
        request.remote_controlnets = True
        beside = self._run.cluster.service_gpus(worker)
        copies = worker.denoisers
        if len(nets) * copies > len(beside):
            raise WorkFailed(
                f"its {len(nets)} ControlNets need {len(nets) * copies} GPUs beside the {copies} that step the "
                f"denoiser, and its worker has {len(beside)}; choose scheduler=groups, or a larger cluster.count"
            )
        loads: Loads = []
        for net, gpus in placed(nets, beside, copies):
            took = [cost for gpu in gpus if (cost := load_addons(self._run, gpu, net, request)) is not None]
            if took:
                loads.append(("controlnet", took[0]))
        return loads if len(loads) < 2 else [max(loads, key=lambda each: each[1].seconds)]

    def step(self, worker: Worker, active: Sequence[Request], plain: Cost, now_s: float) -> Cost:
        nets = max((len(asked(self._run, each, "controlnet")) for each in active), default=0)
        if not nets:
            return plain
        parts = parted(self._run, active, worker.denoisers, self._faster)
        extra_s = max(parts.controlnet_s - parts.encoder_s, 0.0) + nets * parts.receive_s
        return longer(plain, extra_s)

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> None:
        if self.keep_resident:
            return
        for gpu in self._run.cluster.service_gpus(worker):
            for asset in [each for each in gpu.resident if each.kind == "controlnet"]:
                self._run.cluster.evict(gpu, asset)


def placed(nets: Sequence[Asset], gpus: Sequence[Worker], copies: int) -> list[tuple[Asset, list[Worker]]]:
    """Each of ``nets`` with the ``copies`` GPUs that it runs on: those that hold it, then those that are left."""
    left = list(gpus)
    chosen: list[tuple[Asset, list[Worker]]] = []
    for net in nets:
        there = [gpu for gpu in left if net in gpu.resident][:copies]
        left = [gpu for gpu in left if gpu not in there]
        chosen.append((net, there))
    for _, there in chosen:
        there += [left.pop(0) for _ in range(copies - len(there))]
    return chosen


def load_addons(run: Run, gpu: Worker, net: Asset, request: Request, keep: Collection[Asset] = ()) -> Cost | None:
    """Have ``net`` on ``gpu``: what that costs, None where it is there. Raises WorkFailed where it does not fit."""
    absent = net not in gpu.resident
    if run.cluster.admit(gpu, net, run.backend.bytes(net), keep, activations(run, request)) is None:
        kind = run.cluster.gpu
        raise WorkFailed(
            f"the ControlNet {net.name} does not fit into the {(kind.memory_bytes or 0) / 1e9:.1f} GB of a {kind.name} "
            f"beside {', '.join(asset.name for asset in gpu.resident) or 'nothing'}; choose another cluster="
        )
    if not absent:
        return None
    cost = load(run, gpu, net)
    run.record_load(net, cost.seconds)
    return cost


def parted(run: Run, active: Sequence[Request], gpus: int, faster: Callable[[str], float]) -> RemoteControlNetCosts:
    """Return the parts of a step of ``active``, the denoiser's on ``gpus`` GPUs."""
    backend = run.backend
    assert isinstance(backend, AddonBackend)
    work = run.work(active[0])
    parts, times = backend.remote_controlnet_costs(work, len(active), gpus), faster(work.model)
    return RemoteControlNetCosts(parts.encoder_s / times, parts.controlnet_s / times, parts.receive_s)


def longer(plain: Cost, extra_s: float) -> Cost:
    """``plain`` and ``extra_s`` more at the same draw."""
    if plain.joules is None:
        return Cost(plain.seconds + extra_s)
    return Cost(plain.seconds + extra_s, plain.joules * (plain.seconds + extra_s) / plain.seconds)
