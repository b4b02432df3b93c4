"""First come, first served on worker groups: a request's GPUs are allocated and released together."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.clock import DISPATCH
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.core.request import FAILED, NO_ADDONS, Request
from mezzotint.sim.core.worker import LOADING
from mezzotint.sim.protocols import Run, Scheduler, Worker


@dataclass(slots=True)
class WorkerGroups(Scheduler):
    """The oldest request waits until enough GPUs are idle for its group; no request overtakes it.

    A group has ``denoisers`` GPUs for the denoiser and as many for each ControlNet (SwiftDiffusion, 1; Katz, 2). With
    ``sizes`` all GPUs of a group step the denoiser, as in DistriFusion. An idle group of the right size is preferred,
    then the idle GPUs that hold the most of the request's ControlNets. GPUs with different models first load one. A
    request that needs more GPUs than the cluster has fails.

    Args:
        denoisers: GPUs that step the denoiser together.
        sizes: GPUs of a group by number of ControlNets, the last for more; empty derives them from ``denoisers``.
    """

    denoisers: Count = 1
    sizes: list[Count] = field(default_factory=list)
    _run: Run = field(init=False, repr=False)
    _waiting: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _forming: tuple[Request, Worker] | None = field(init=False, default=None, repr=False)
    """The queue head for which the last group was formed, and that group, which may be loading."""

    def bind(self, run: Run) -> None:
        self._run = run
        check_one_kind(run.cluster.kinds, "scheduler=groups", "a group's GPUs are of", "choose another scheduler=")
        available, min_size = run.cluster.gpus - len(run.cluster.servers), min(self.sizes, default=self.denoisers)
        if min_size > available:
            key = f"scheduler.sizes={self.sizes}" if self.sizes else f"scheduler.denoisers={self.denoisers}"
            raise ConfigError(
                f"cluster.count: found {available} GPUs for requests, and each takes {min_size} or more ({key}); raise "
                "cluster.count, or lower the other"
            )

    def _group_size(self, request: Request) -> tuple[int, int]:
        """Return the number of GPUs that ``request`` needs, and how many of them step its denoiser."""
        nets = len((request.addons or NO_ADDONS).controlnets)
        if self.sizes:
            size = self.sizes[min(nets, len(self.sizes) - 1)]
            return size, size
        return self.denoisers * (1 + nets), self.denoisers

    def offer(self, request: Request, now_s: float) -> Worker | None:
        gpus, denoisers = self._group_size(request)
        available = self._run.cluster.gpus - len(self._run.cluster.servers)
        if gpus > available:
            nets = len((request.addons or NO_ADDONS).controlnets)
            needs = f"with {nets} ControlNets it takes {gpus} GPUs, {denoisers} of them for the denoiser"
            self._run.end(request, FAILED, f"{needs}; found {available}; raise cluster.count")
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
        head = self._waiting[0]
        if (len(worker.gpus), worker.denoisers) == self._group_size(head):
            if len(self._waiting) > 1:
                # The idle GPUs, too few for this head, may be enough for the next one.
                self._run.clock.at(now_s, DISPATCH, self._pull_idle)
            return self._waiting.popleft()
        idle = [other for other in self._run.cluster.idle() if other is not worker]
        group = self._assemble(head, now_s, [worker, *idle])
        if group is not None and group.has_capacity:
            self._run.pull(group)
        return None

    def _pull_idle(self, _: None) -> None:
        worker = next(self._run.cluster.idle(), None)
        if worker is not None:
            self._run.pull(worker)

    def _assemble(self, request: Request, now_s: float, idle: Sequence[Worker]) -> Worker | None:
        """Return a worker for ``request`` out of ``idle`` ones; None if they are too few or its group is loading."""
        gpus, denoisers = self._group_size(request)
        cluster = self._run.cluster
        fitting = [worker for worker in idle if (len(worker.gpus), worker.denoisers) == (gpus, denoisers)]
        if fitting:
            return max(fitting, key=lambda worker: self._resident_nets(worker, request))
        if sum(len(worker.gpus) for worker in idle) < gpus:
            return None
        # The request's group is loading: another would be formed in vain
        # (test_request_waiting_for_a_loading_group_gets_no_second_group).
        if self._forming is not None and self._forming[0] is request and self._forming[1].state == LOADING:
            return None
        singles = [worker for worker in idle if len(worker.gpus) == 1]
        # The smallest first, so that no more GPUs lose their group than the request needs
        # (test_smallest_groups_are_disbanded_first_and_no_more_than_needed).
        groups = (worker for worker in idle if len(worker.gpus) > 1)
        for group in sorted(groups, key=lambda group: len(group.gpus)):
            if len(singles) >= gpus:
                break
            members = set(group.gpus)
            cluster.disband(group, now_s)
            singles += [worker for worker in cluster.workers if len(worker.gpus) == 1 and worker.id in members]
        if gpus == 1:
            return max(singles, key=lambda worker: self._resident_nets(worker, request))
        chosen = sorted(singles, key=lambda worker: -self._resident_nets(worker, request))[:gpus]
        # ControlNets run where they are: those GPUs come first in ``chosen``.
        services, stepping = chosen[: gpus - denoisers], chosen[gpus - denoisers :]
        formed = cluster.form_group([*stepping, *services], chosen[0].role, now_s, denoisers)
        self._forming = request, formed
        return formed

    def _resident_nets(self, worker: Worker, request: Request) -> int:
        wanted = (request.addons or NO_ADDONS).controlnets
        members = [worker, *(self._run.cluster.service_gpus(worker) if len(worker.gpus) > 1 else ())]
        return sum(asset.kind == "controlnet" and asset.name in wanted for gpu in members for asset in gpu.resident)

    def __len__(self) -> int:
        return len(self._waiting)
