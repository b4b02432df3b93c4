"""A fixed parallel degree: first come, first served on any idle GPUs (``group_policy=fixed-degree``)."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import chain

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import NO_ADDONS, Request
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
    _by_request: bool = field(init=False, repr=False)
    _gpus_of: dict[Progress, tuple[GPUs, GPUs]] = field(init=False, default_factory=dict, repr=False)
    """The GPUs of the denoiser of each request, and those of its ControlNets."""
    _free: list[int] = field(init=False, repr=False)
    """GPUs that no request holds, the longest idle first; those that are away among them."""
    _run: Run = field(init=False, repr=False)
    _view: StageView = field(init=False, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._run, self._view, gpus = run, view, len(view.claimed)
        self._free, self._by_request = list(range(gpus)), bool(self.degree_by_size or self.degree_by_controlnets)
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
        self._release(progress)

    def decide(self, now_s: float) -> list[Launch]:
        ready, queue, claimed = [], self._queue, self._view.claimed
        for progress in self._between_stages:
            if any(claimed[gpu] for gpu in chain(*self._gpus_of[progress])):
                # One of its GPUs is away.
                self._release(progress)
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
            degree = self._degree(queue[0].request) if self._by_request else self.degree or len(claimed)
            service = 0 if queue[0].request.addons is None else self._view.service_gpus(queue[0], degree)
            needed = degree + service
            if needed > idle:
                if needed <= len(claimed):
                    break
                why = f"it takes {needed} GPUs, {service} of them for ControlNets, and the cluster has {len(claimed)}"
                self._view.discard(queue.popleft(), why)
                continue
            progress = queue.popleft()
            if service:
                self._take(progress, idle, degree, service)
            else:  # as most requests
                self._gpus_of[progress], self._free = (tuple(self._free[:degree]), ()), self._free[degree:]
            idle -= needed
            ready.append(progress)
        launches = []
        for progress in ready:
            stage, (gpus, chosen) = progress.stage, self._gpus_of[progress]
            gpus = gpus[: stage.max_degree or None]
            if chosen:
                chosen = chosen[: self._view.service_gpus(progress, len(gpus))] if stage.denoises else ()
            launches.append(Launch(progress, gpus, progress.left, service=chosen))
        return launches

    def _degree(self, request: Request) -> int:
        """Return the GPUs of the denoiser of ``request``."""
        degree = self.degree or len(self._view.claimed)
        if self.degree_by_controlnets:
            nets = len((request.addons or NO_ADDONS).controlnets)
            degree = self.degree_by_controlnets[min(nets, len(self.degree_by_controlnets) - 1)]
        return self.degree_by_size.get(size_of(request), degree)

    def _take(self, progress: Progress, idle: int, degree: int, service: int) -> None:
        """Take GPUs of the first ``idle`` free ones: ``degree`` for the denoiser, ``service`` for ControlNets."""
        nets = (progress.request.addons or NO_ADDONS).controlnets
        # ControlNets run where they are.
        order = sorted(self._free[:idle], key=lambda gpu: -self._nets_there(gpu, nets))
        taken = order[: service + degree]
        self._gpus_of[progress] = tuple(taken[service:]), tuple(taken[:service])
        self._free = [gpu for gpu in self._free if gpu not in taken]

    def _release(self, progress: Progress) -> None:
        self._free += chain(*self._gpus_of.pop(progress))

    def _nets_there(self, gpu: int, nets: Collection[str]) -> int:
        resident = self._run.cluster.group((gpu,)).resident
        return sum(asset.kind == "controlnet" and asset.name in nets for asset in resident)
