"""ControlNets on service GPUs of the worker group, in parallel with the denoiser's encoder (SwiftDiffusion, 4.1)."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from mezzotint.backends.base import AddonBackend, Asset, Backend, Cost, RemoteControlNetCosts, Work, WorkFailed
from mezzotint.sim.addons.assets import activation_bytes, check_addon_backend
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Loads, Run, Worker

STEP_PARTS = ("controlnet_placement", "the parts of a step", "controlnet_placement=inline")
"""Arguments of `check_addon_backend`: placements outside the worker's loop need the seconds of each part of a step."""


@dataclass(slots=True)
class ServiceGpus:
    """Run each ControlNet on one service GPU of the group per GPU that steps the denoiser (4.1; Katz).

    A step takes max(encoder, ControlNet) + n x receive + decoder. Absent ControlNets are loaded before the first step,
    all at once. With ``keep_resident`` they stay when the request is done.
    """

    keep_resident: bool = True
    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run, faster: Callable[[str], float]) -> None:
        self._run = run
        check_addon_backend(run, *STEP_PARTS)

    def evict_all(self, gpus: Sequence[Worker]) -> None:
        """Evict the ControlNets of ``gpus``, whose request is done, unless they are to stay."""
        if self.keep_resident:
            return
        for gpu in gpus:
            for asset in [resident for resident in gpu.resident if resident.kind == "controlnet"]:
                self._run.cluster.evict(gpu, asset)


def assign_gpus(nets: Sequence[Asset], gpus: Sequence[Worker], copies: int) -> list[tuple[Asset, list[Worker]]]:
    """Assign ``copies`` GPUs to each of ``nets``: first GPUs that hold it, then any that are left."""
    left = list(gpus)
    assigned: list[tuple[Asset, list[Worker]]] = []
    for net in nets:
        holders = [gpu for gpu in left if net in gpu.resident][:copies]
        left = [gpu for gpu in left if gpu not in holders]
        assigned.append((net, holders))
    for _, chosen in assigned:
        chosen += [left.pop(0) for _ in range(copies - len(chosen))]
    return assigned


def load_controlnet(run: Run, gpu: Worker, net: Asset, request: Request, keep: Collection[Asset] = ()) -> Cost | None:
    """Load ``net`` onto ``gpu`` and return the cost, None if it was resident. Raises WorkFailed if it does not fit."""
    absent = net not in gpu.resident
    if run.cluster.admit(gpu, net, gpu.backend.bytes(net), keep, activation_bytes(gpu, request)) is None:
        kind = gpu.gpu
        raise WorkFailed(
            f"the ControlNet {net.name} does not fit into the {(kind.memory_bytes or 0) / 1e9:.1f} GB of a {kind.name} "
            f"beside {', '.join(asset.name for asset in gpu.resident) or 'nothing'}; choose another cluster="
        )
    if not absent:
        return None
    cost = gpu.backend.load(net)
    run.record_load(net, cost.seconds)
    return cost


def load_side_by_side(run: Run, assigned: Iterable[tuple[Asset, Sequence[Worker]]], request: Request) -> Loads:
    """Load each ControlNet onto its GPUs, all at once; return the longest load, if any was absent."""
    costs = [load_controlnet(run, gpu, net, request) for net, gpus in assigned for gpu in gpus]
    longest = max((cost for cost in costs if cost is not None), key=lambda cost: cost.seconds, default=None)
    return [] if longest is None else [("controlnet", longest)]


def step_parts(backend: Backend, work: Work, gpus: int, faster: Callable[[str], float]) -> RemoteControlNetCosts:
    """Return the seconds of the parts of a step of ``work`` alone on ``gpus`` GPUs."""
    parts, speedup = cast(AddonBackend, backend).remote_controlnet_costs(work, 1, gpus), faster(work.model)
    return RemoteControlNetCosts(parts.encoder_s / speedup, parts.controlnet_s / speedup, parts.receive_s)


def lengthen(plain: Cost, extra_s: float) -> Cost:
    """Return ``plain`` and ``extra_s`` more at the same power."""
    if plain.joules is None:
        return Cost(plain.seconds + extra_s)
    return Cost(plain.seconds + extra_s, plain.joules * (plain.seconds + extra_s) / plain.seconds)
