"""A fixed parallel degree: first come, first served on any idle GPUs (``group_policy=fixed-degree``)."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import NO_ADDONS
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView
from mezzotint.sim.scheduling.group_policies.fixed_groups import size_of

GPUs = tuple[int, ...]


@dataclass(slots=True)
class FixedDegree(GroupPolicy):
    """A request waits for as many idle GPUs as its size takes, and holds them to its end; no request overtakes it.

    It takes the GPUs that were idle longest, as first come, first served does with workers (`scheduler=fcfs`). With
    ``controlnet_placement=service`` it takes as many more for each of its ControlNets, of the GPUs that hold most of
    them. One that takes more GPUs than the cluster has is discarded.

    Args:
        degree: GPUs of a request; None for all.
        degree_by_size: WIDTHxHEIGHT -> GPUs of a request of that size, in place of ``degree``.
        degree_by_controlnets: GPUs by number of ControlNets from 0 on, the last for more, in place of ``degree``.

    Source: xDiT with one degree, and RSSP, a degree by size: baselines of TetriServe (arXiv 2510.01565, 6.1).
    DistriFusion with a degree by ControlNets, and ControlNets on GPUs of their own: SwiftDiffusion (arXiv 2407.02031).
    """

    degree: Count | None = 1
    degree_by_size: dict[str, Count] = field(default_factory=dict)
    degree_by_controlnets: list[Count] = field(default_factory=list)
    follows_gpus: bool = field(init=False, default=True, repr=False)
    chooses_service_gpus: bool = field(init=False, default=True, repr=False)
    _queue: deque[Progress] = field(init=False, default_factory=deque, repr=False)
    _between_stages: list[Progress] = field(init=False, default_factory=list, repr=False)
    _gpus_of: dict[Progress, GPUs] = field(init=False, default_factory=dict, repr=False)
    """The GPUs of each request, those of its denoiser first."""
    _free: list[int] = field(init=False, repr=False)
    """GPUs that no request holds, the longest idle first; those that are away among them."""
    _run: Run = field(init=False, repr=False)
    _view: StageView = field(init=False, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._run, self._view, gpus = run, view, len(view.claimed)
        self._free = list(range(gpus))
        stated = {"degree": self.degree or gpus}
        stated |= {f"degree_by_size.{size}": degree for size, degree in self.degree_by_size.items()}
        if self.degree_by_controlnets:
            stated["degree_by_controlnets"] = min(self.degree_by_controlnets)
        key, widest = max(stated.items(), key=lambda item: item[1])
        if widest > gpus:
            raise ConfigError(f"group_policy.{key}: found {widest}, and the cluster has {gpus} GPUs; lower it")

    def arrived(self, progress: Progress, now_s: float) -> None:
        self._queue.append(progress)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        if progress.left:
            self._between_stages.append(progress)

    def ended(self, progress: Progress, now_s: float) -> None:
        self._free += self._gpus_of.pop(progress)

    def decide(self, now_s: float) -> list[Launch]:
        ready, queue, claimed = [], self._queue, self._view.claimed
        for progress in self._between_stages:
            if any(claimed[gpu] for gpu in self._gpus_of[progress]):  # one of its GPUs is away
                self._free += self._gpus_of.pop(progress)
                queue.appendleft(progress)
            else:
                ready.append(progress)
        self._between_stages.clear()
        idle = len(self._free)
        if any(map(claimed.__getitem__, self._free)):
            away = [gpu for gpu in self._free if claimed[gpu]]
            # Idle from its return on, so it goes last.
            self._free = [gpu for gpu in self._free if not claimed[gpu]] + away
            idle -= len(away)
        while queue:
            degree = self._degree(queue[0])
            service = self._view.service_gpus(queue[0], degree)
            needed = degree + service
            if needed > len(claimed):
                why = f"it takes {needed} GPUs, {service} of them for ControlNets, and the cluster has {len(claimed)}"
                self._view.discard(queue.popleft(), why)
                continue
            if needed > idle:
                break
            progress = queue.popleft()
            self._gpus_of[progress] = self._take(progress, idle, degree, service)
            idle -= needed
            ready.append(progress)
        return [self._launch(progress) for progress in ready]

    def _degree(self, progress: Progress) -> int:
        """Return the GPUs of the denoiser of ``progress``."""
        request, degree = progress.request, self.degree or len(self._view.claimed)
        if self.degree_by_controlnets:
            nets = len((request.addons or NO_ADDONS).controlnets)
            degree = self.degree_by_controlnets[min(nets, len(self.degree_by_controlnets) - 1)]
        return self.degree_by_size.get(size_of(request), degree) if self.degree_by_size else degree

    def _take(self, progress: Progress, idle: int, degree: int, service: int) -> GPUs:
        """Take GPUs of the first ``idle`` free ones: ``degree`` for the denoiser, then those of ControlNets."""
        if not service:
            gpus, self._free = tuple(self._free[:degree]), self._free[degree:]
            return gpus
        nets = (progress.request.addons or NO_ADDONS).controlnets
        # ControlNets run where they are.
        order = sorted(self._free[:idle], key=lambda gpu: -self._nets_there(gpu, nets))
        gpus = (*order[service : service + degree], *order[:service])
        self._free = [gpu for gpu in self._free if gpu not in gpus]
        return gpus

    def _nets_there(self, gpu: int, nets: Collection[str]) -> int:
        resident = self._run.cluster.group((gpu,)).resident
        return sum(asset.kind == "controlnet" and asset.name in nets for asset in resident)

    def _launch(self, progress: Progress) -> Launch:
        held, stage, degree = self._gpus_of[progress], progress.stage, self._degree(progress)
        gpus = held[: min(degree, stage.max_degree or degree)]
        service = self._view.service_gpus(progress, len(gpus)) if stage.denoises else 0
        return Launch(progress, gpus, progress.left, service=held[degree : degree + service])
