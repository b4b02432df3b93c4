"""First come, first served, each request on as many GPUs as it takes, allocated and released as one."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from conf.ranges import Count
from sim.core.clock import DISPATCH
from sim.core.errors import ConfigError
from sim.core.request import FAILED, NO_ADDONS, Request
from sim.protocols import Run, Scheduler, Worker


@dataclass(slots=True)
class WorkerGroups(Scheduler):
    """A request waits until as many GPUs are idle as it takes; nobody overtakes it meanwhile.

    It takes ``denoisers`` GPUs for the denoiser and as many for each of its ControlNets, as SwiftDiffusion (1) and Katz
    (2) do; or as ``sizes`` say, and all of them step together, as DistriFusion's do. A group of this size serves first,
    then the idle GPUs that hold the most of what it asks for. A group of GPUs with different models loads one on all of
    them first. A request that takes more than the cluster has fails.

    Args:
        denoisers: GPUs that step the denoiser together.
        sizes: GPUs by number of ControlNets, the last for more; empty for the rule.
    """

    denoisers: Count = 1
    sizes: list[Count] = field(default_factory=list)
    _run: Run = field(init=False, repr=False)
    _waiting: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _coming: tuple[Request, Worker] | None = field(init=False, default=None, repr=False)
    """Who was first when the last group was made, and that group, which may be loading."""

    def bind(self, run: Run) -> None:
        self._run = run
        there, least = run.cluster.gpus - len(run.cluster.servers), min(self.sizes, default=self.denoisers)
        if least > there:
            key = f"scheduler.sizes={self.sizes}" if self.sizes else f"scheduler.denoisers={self.denoisers}"
            raise ConfigError(
                f"cluster.count: found {there} GPUs for requests, and each takes {least} or more ({key}); raise "
                "cluster.count, or lower the other"
            )

    def _takes(self, request: Request) -> tuple[int, int]:
        """GPUs of ``request``, and how many of them step its denoiser."""
        nets = len((request.addons or NO_ADDONS).controlnets)
        if self.sizes:
            size = self.sizes[min(nets, len(self.sizes) - 1)]
            return size, size
        return self.denoisers * (1 + nets), self.denoisers

    def offer(self, request: Request, now_s: float) -> Worker | None:
        gpus, denoisers = self._takes(request)
        there = self._run.cluster.gpus - len(self._run.cluster.servers)
        if gpus > there:
            nets = len((request.addons or NO_ADDONS).controlnets)
            takes = f"with {nets} ControlNets it takes {gpus} GPUs, {denoisers} of them for the denoiser"
            self._run.end(request, FAILED, f"{takes}; found {there}; raise cluster.count")
            return None
        if not self._waiting:
            worker = self._assemble(request, now_s, list(self._run.cluster.idle()))
            if worker is not None and worker.has_capacity:
                return worker
        self._waiting.append(request)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        if not self._waiting or worker.running:
            return None
        first = self._waiting[0]
        if (len(worker.gpus), worker.denoisers) == self._takes(first):
            if len(self._waiting) > 1:
                # For whoever is first now, GPUs may be idle that were too few or not wanted before.
                self._run.clock.at(now_s, DISPATCH, self._ask)
            return self._waiting.popleft()
        idle = [each for each in self._run.cluster.idle() if each is not worker]
        made = self._assemble(first, now_s, [worker, *idle])
        if made is not None and made.has_capacity:
            self._run.pull(made)
        return None

    def _ask(self, _: None) -> None:
        worker = next(self._run.cluster.idle(), None)
        if worker is not None:
            self._run.pull(worker)

    def _assemble(self, request: Request, now_s: float, idle: Sequence[Worker]) -> Worker | None:
        """A worker for ``request`` out of ``idle`` ones; None where they are too few, or one loads for it already."""
        gpus, denoisers = self._takes(request)
        cluster = self._run.cluster
        fitting = [each for each in idle if (len(each.gpus), each.denoisers) == (gpus, denoisers)]
        if fitting:
            return max(fitting, key=lambda each: self._held(each, request))
        if sum(len(each.gpus) for each in idle) < gpus:
            return None
        if self._coming is not None and self._coming[0] is request and self._coming[1].loading:
            return None
        singles = [each for each in idle if len(each.gpus) == 1]
        for group in sorted((each for each in idle if len(each.gpus) > 1), key=lambda each: len(each.gpus)):
            if len(singles) >= gpus:
                break
            members = set(group.gpus)
            cluster.disband(group, now_s)
            singles += [each for each in cluster.workers if len(each.gpus) == 1 and each.id in members]
        if gpus == 1:
            return max(singles, key=lambda each: self._held(each, request))
        chosen = sorted(singles, key=lambda each: -self._held(each, request))[:gpus]
        beside, stepping = chosen[: gpus - denoisers], chosen[gpus - denoisers :]
        made = cluster.form_group([*stepping, *beside], chosen[0].role, now_s, denoisers)
        self._coming = request, made
        return made

    def _held(self, worker: Worker, request: Request) -> int:
        wanted = (request.addons or NO_ADDONS).controlnets
        there = [worker, *(self._run.cluster.service_gpus(worker) if len(worker.gpus) > 1 else ())]
        return sum(asset.kind == "controlnet" and asset.name in wanted for gpu in there for asset in gpu.resident)

    def __len__(self) -> int:
        return len(self._waiting)
