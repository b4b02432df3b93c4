"""Continuous batching with add-ons: ControlNet placement, LoRA loading and faster kernels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mezzotint.backends.base import FREE, Cost, Work
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.addons.kernels import Kernels
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import ControlNetPlacement, Loads, LoraLoading, Run, Steps, Worker


@dataclass(slots=True)
class WithAddons(Steps):
    """Add the costs of ControlNets, LoRAs and kernels to the stages and steps of ``base``.

    Args:
        base: costs of the denoiser, and of the stages before and after it.
        kernels: of the denoiser and its ControlNets.
    """

    base: Steps
    controlnet_placement: ControlNetPlacement = field(default_factory=InlineControlNets)
    lora_loading: LoraLoading = field(default_factory=SyncLoading)
    kernels: Kernels = field(default_factory=Kernels)
    _run: Run = field(init=False, repr=False)
    _interrupt: Callable[[Worker], None] = field(init=False, repr=False)
    _active: dict[int, list[Request]] = field(init=False, default_factory=dict, repr=False)
    """Requests whose add-ons are loaded, by worker id."""

    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        self._run, self._interrupt = run, interrupt
        self.kernels.bind(run)
        self.base.bind(run, interrupt)
        self.controlnet_placement.bind(run, self.kernels.faster)
        self.lora_loading.bind(run, interrupt)

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        self._active.setdefault(worker.id, []).append(request)
        loads = Loads()
        for part in (self.controlnet_placement, self.lora_loading):
            loads += part.load_addons(worker, request, active)
        return loads

    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        return self.base.prepare(worker, request, now_s).times(self.kernels.stages)

    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        faster = self.kernels.faster(active[0].model or "")
        plain = self.base.step(worker, active, now_s).times(1.0 / faster)
        if self._run.workload.addons is None:
            return plain
        until_merge = self.lora_loading.stable_steps(worker, active)
        until_change = self.controlnet_placement.stable_steps(worker, active)
        if until_merge is not None and (until_change is None or until_merge <= until_change):
            self._interrupt(worker)  # LoRAs are due at the boundary after these steps
        return self.controlnet_placement.step(worker, active, plain, now_s)

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> int | None:
        if self._run.workload.addons is None:
            return None
        limits = [part.stable_steps(worker, active) for part in (self.lora_loading, self.controlnet_placement)]
        return min((steps for steps in limits if steps is not None), default=None)

    def price(self, works: Sequence[Work]) -> Cost:
        return self.base.price(works).times(1.0 / self.kernels.faster(works[0].model))

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        base = self.base.boundary(worker, active, now_s)
        merged = self.lora_loading.boundary(worker, active, now_s)
        return base.plus(merged) if merged.seconds else base

    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        before, after = self.base.finish(worker, request, now_s)
        restoring = self._remove(worker, request)
        if restoring.seconds:
            after = after.plus(restoring)
        return before.times(self.kernels.stages), after

    def request_lost(self, worker: Worker, request: Request) -> None:
        self._remove(worker, request)

    def _remove(self, worker: Worker, request: Request) -> Cost:
        active = self._active.get(worker.id, [])
        if request not in active:
            return FREE
        active.remove(request)
        self.controlnet_placement.request_left(worker, request, active)
        return self.lora_loading.request_left(worker, request, active)
