"""Step-by-step execution with add-ons: how ControlNets run, when LoRAs come, and with which kernels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.base import FREE, Cost, Work
from sim.addons.in_line import InLine
from sim.addons.kernels import Kernels
from sim.addons.synchronous import Synchronous
from sim.culprit import sane
from sim.errors import ConfigError
from sim.parts import ControlNets, Loads, Loras, Priced, Run, Steps, Worker
from sim.request import Request


@dataclass(slots=True)
class WithAddons(Steps):
    """What ``base`` has stages and steps cost, with add-ons as ``controlnets`` and ``loras`` have them.

    Args:
        base: of the denoiser, and the stages beside it.
        kernels: of the denoiser and its ControlNets.
    """

    base: Steps
    controlnets: ControlNets = field(default_factory=InLine)
    loras: Loras = field(default_factory=Synchronous)
    kernels: Kernels = field(default_factory=Kernels)
    _run: Run = field(init=False, repr=False)
    _cut: Callable[[Worker], None] = field(init=False, repr=False)
    _active: dict[int, list[Request]] = field(init=False, default_factory=dict, repr=False)
    """By worker: those whose add-ons are there."""

    def bind(self, run: Run, cut: Callable[[Worker], None]) -> None:
        self._run, self._cut = run, cut
        self.kernels.bind(run)
        self.base.bind(run, cut)
        self.controlnets.bind(run, self.kernels.faster)
        self.loras.bind(run, cut)

    def bring(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        self._active.setdefault(worker.id, []).append(request)
        loads = Loads()
        for part in (self.controlnets, self.loras):
            for kind, cost in part.bring(worker, request, active):
                loads.append((kind, sane(cost, part, "bring")))
        return loads

    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        return sane(self.base.prepare(worker, request, now_s), self.base, "prepare").times(self.kernels.stages)

    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        plain = sane(self.base.step(worker, active, now_s), self.base, "step")
        faster = self.kernels.faster(active[0].model or "")
        if faster != 1.0:
            plain = plain.times(1.0 / faster)
        if self._run.workload.addons is None:
            return plain
        due, holds = self.loras.holds(worker, active), self.controlnets.holds(worker, active)
        if due is not None and (holds is None or due <= holds):
            self._cut(worker)  # the boundary after these steps has something to do
        return sane(self.controlnets.step(worker, active, plain, now_s), self.controlnets, "step")

    def holds(self, worker: Worker, active: Sequence[Request]) -> int | None:
        if self._run.workload.addons is None:
            return None
        known = [part.holds(worker, active) for part in (self.loras, self.controlnets)]
        return min((steps for steps in known if steps is not None), default=None)

    def price(self, works: Sequence[Work]) -> Cost:
        return priced(self.base).price(works).times(1.0 / self.kernels.faster(works[0].model))

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        base = sane(self.base.boundary(worker, active, now_s), self.base, "boundary")
        merged = sane(self.loras.boundary(worker, active, now_s), self.loras, "boundary")
        return base.plus(merged) if merged.seconds else base

    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        before, after = self.base.finish(worker, request, now_s)
        sane(before, self.base, "finish")
        taken = self._left(worker, request)
        if taken.seconds:
            after = after.plus(taken)
        return before.times(self.kernels.stages), after

    def lost(self, worker: Worker, request: Request) -> None:
        self._left(worker, request)

    def _left(self, worker: Worker, request: Request) -> Cost:
        active = self._active.get(worker.id, [])
        if request not in active:
            return FREE
        active.remove(request)
        self.controlnets.gone(worker, request, active)
        return sane(self.loras.gone(worker, request, active), self.loras, "gone")


def priced(steps: Steps) -> Priced:
    """Return ``steps``. Raises ConfigError where they have no price."""
    if isinstance(steps, Priced):
        return steps
    raise ConfigError(
        f"steps: {type(steps).__qualname__} cannot say beforehand what a step costs, which the scheduler asks; choose "
        "another steps= or discipline="
    )
