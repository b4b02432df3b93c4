"""Add-ons of stages: ControlNets inline, on service GPUs or on shared servers, and LoRAs in the denoiser's weights."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isnan

from mezzotint.backends.base import FREE, Asset, Cost, Work, WorkFailed, weights_of
from mezzotint.sim.addons.assets import activation_bytes, on_gpus, requested_addons
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.addons.service_gpus import ServiceGpus, assign_gpus, load_side_by_side, step_parts
from mezzotint.sim.addons.shared_servers import SharedServers
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import Stage
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import Request
from mezzotint.sim.execution.stages.account import record_apart
from mezzotint.sim.protocols import ControlNetPlacement, Loads, LoraLoading, RequestColumn, Run, Worker

CONTROLNET = "controlnet"
"""Component of a service GPU's work, in attempts.parquet, and kind of its busy time."""


@dataclass(slots=True, eq=False)
class Service:
    """The service GPUs that a launch holds, or launches that follow each other.

    Attributes:
        assigned: each ControlNet with its service GPUs.
        from_s: instant at which the group first began to prepare; infinity before.
    """

    assigned: list[tuple[Asset, list[Worker]]]
    from_s: float = inf

    @property
    def gpus(self) -> list[Worker]:
        return [gpu for _, gpus in self.assigned for gpu in gpus]


@dataclass(slots=True)
class StageAddons:
    """Place the ControlNets and LoRAs of a denoiser's launches (SwiftDiffusion, 4.1, on groups that change).

    Inline, each GPU of the group holds the ControlNets and runs its share of them, as much faster as the denoiser is on
    the group. With ``service`` a launch on d GPUs holds d service GPUs for each of its ControlNets, from its start to
    its end: those that the allocation sets aside, else others that its policy chose. While too few of those set aside
    are idle it waits, on its own idle GPUs. Launches take them in the order in which they first found too few, so that
    none waits for ever. A service GPU keeps its ControlNets, and evicts the least
    recently used ones for others; absent ones are loaded before the launch's first step, all at once.

    On shared servers, a launch calls them at every step, and the step lasts until they have answered. While its
    ControlNets fit on none beside those in use, a launch waits on its own idle GPUs, as above.

    LoRAs enter the weights on every GPU of the group, as ``lora_loading`` says: before the first step, one after
    another, or at the step boundary at which their files have arrived. Without ``keep_resident`` of either, a request's
    add-ons leave the GPUs of its last launch with it.

    Args:
        controlnet_placement: inline, on service GPUs, or on shared servers.
        faster: model -> speedup of its denoiser and ControlNets over plain kernels.
        chooses_service_gpus: True if the group policy does (GroupPolicy).

    Raises ConfigError for other placements, and without a service GPU.
    """

    run: Run
    controlnet_placement: ControlNetPlacement | ServiceGpus
    lora_loading: LoraLoading
    faster: Callable[[str], float]
    chooses_service_gpus: bool
    is_service: bool = field(init=False)
    is_shared: bool = field(init=False)
    _placement: ControlNetPlacement = field(init=False, repr=False)
    """That of ControlNets inline or on shared servers."""
    _wait: RequestColumn = field(init=False, repr=False)
    _short_since_s: dict[Progress, float] = field(init=False, default_factory=dict, repr=False)
    """Launches that found too few idle service GPUs, in the order in which they may take them."""
    _services: dict[Progress, Service] = field(init=False, default_factory=dict, repr=False)
    _on_servers: dict[Progress, Loads] = field(init=False, default_factory=dict, repr=False)
    """Launches whose ControlNets are on shared servers, with the loads that they still wait for."""

    def __post_init__(self) -> None:
        run, placement = self.run, self.controlnet_placement
        self.is_service = isinstance(placement, ServiceGpus)
        self.is_shared = isinstance(placement, SharedServers)
        if not isinstance(placement, ServiceGpus | InlineControlNets | SharedServers):
            raise ConfigError(
                f"controlnet_placement: found {class_name(placement)}, and executor=stages runs ControlNets inline, on "
                "service GPUs or on shared servers; add controlnet_placement=inline, service or shared"
            )
        self.chooses_service_gpus = self.chooses_service_gpus and self.is_service and not run.cluster.servers
        if self.is_service and not run.cluster.servers and not self.chooses_service_gpus:
            raise ConfigError(
                "controlnet_placement=service: this group policy takes GPUs that the allocation sets aside, and found "
                "none; add allocation=controlnet-servers, or choose group_policy=fixed-degree"
            )
        placement.bind(run, self.faster)
        self._placement = InlineControlNets() if isinstance(placement, ServiceGpus) else placement
        # Nothing to interrupt: a launch without its LoRAs asks at every step.
        self.lora_loading.bind(run, lambda _: None)
        if self.is_service:
            self._wait = run.add_column("server_wait_s", default=0.0)
        elif not self.is_shared:
            run.assume("inline ControlNets on several GPUs", "as much faster as the denoiser", "assumed")

    @property
    def is_remote(self) -> bool:
        """True if ControlNets run on other GPUs than those of the group."""
        return self.is_service or self.is_shared

    def refusal(self, request: Request) -> str:
        """Return why the add-ons of ``request`` can run on no group; empty if they can."""
        run, servers = self.run, self.run.cluster.servers
        nets, loras = (requested_addons(run, request, kind) for kind in ("controlnet", "lora"))
        if self.is_service and not self.chooses_service_gpus and len(nets) > len(servers):
            return (
                f"its {len(nets)} ControlNets need as many service GPUs, found {len(servers)}; raise allocation.servers"
            )
        worker = run.cluster.group((0,))
        model = request.model or ""
        # Merged in place, they take no bytes beyond the weights'.
        merged = loras if isinstance(self.lora_loading, SyncLoading) else ()
        on_group = [weights_of(model), *merged, *(() if self.is_remote else nets)]
        beside = [weights_of(model)] if self.chooses_service_gpus else []
        on_service = [("a service GPU", [*beside, net]) for net in nets if self.is_remote]
        for where, assets in (("its GPU", on_group), *on_service):
            needed = sum(worker.backend.bytes(asset) or 0 for asset in assets) + activation_bytes(worker, request)
            memory_bytes = worker.gpu.memory_bytes
            if len(assets) > (where == "its GPU") and memory_bytes is not None and needed > memory_bytes:
                names = ", ".join(asset.name for asset in assets)
                return (
                    f"{names} and its activations take {needed / 1e9:.1f} GB of the {memory_bytes / 1e9:.1f} GB of "
                    f"{where}; choose another cluster= or addons=ignore"
                )
        if self.is_shared and not self._fit_on_servers(request, nets):
            return (
                f"its {len(nets)} ControlNets do not fit together on {len(servers)} servers; raise allocation.servers"
            )
        return ""

    def _fit_on_servers(self, request: Request, nets: Sequence[Asset]) -> bool:
        """Return True if the servers hold ``nets`` together, each put where most memory is free."""
        server = self.run.cluster.servers[0]
        if server.gpu.memory_bytes is None:
            return True
        free = [server.gpu.memory_bytes - activation_bytes(server, request)] * len(self.run.cluster.servers)
        for net in nets:
            free[free.index(max(free))] -= server.backend.bytes(net) or 0
        return min(free) >= 0

    def max_degree(self, request: Request, stage: Stage, gpus: int) -> int:
        """Return the greatest parallel degree up to ``gpus`` for which there are enough service GPUs."""
        nets = self._count(request) if stage.denoises else 0
        if self.chooses_service_gpus:
            return max(gpus // (1 + nets), 1)
        return min(gpus, len(self.run.cluster.servers) // nets) if nets else gpus

    def chosen_gpus(self, request: Request, degree: int) -> int:
        """Return how many GPUs the group policy chooses for the ControlNets of ``request`` on ``degree`` GPUs."""
        return self._count(request) * degree if self.chooses_service_gpus else 0

    def extra_s(self, work: Work, degree: int) -> float:
        """Return the seconds that ControlNets on other GPUs add to a step of ``work`` on ``degree`` GPUs, unqueued."""
        if not work.remote_controlnets:
            return 0.0
        parts = step_parts(self.run.backend, work, degree, self.faster)
        return max(parts.controlnet_s - parts.encoder_s, 0.0) + len(work.remote_controlnets) * parts.receive_s

    def reserve(self, progress: Progress, group: Worker, chosen: tuple[int, ...]) -> bool:
        """Take the service GPUs of the next launch of ``progress`` on ``group``; return False if too few are idle.

        These are ``chosen`` by the group policy, and idle, or set aside. A launch that follows another one on
        ``group`` keeps those set aside.

        Raises ConfigError if there will never be enough.
        """
        if self.is_shared:
            return self._reserve_on_servers(progress, group)
        request, degree, now_s = progress.request, len(group.gpus), self.run.clock._now
        needed = self._count(request) * degree if progress.stage.denoises else 0
        if not needed or progress in self._services:
            return True
        nets = requested_addons(self.run, request, "controlnet")
        if self.chooses_service_gpus:
            self._take(progress, nets, [self.run.cluster.group((gpu,)) for gpu in chosen], degree)
            return True
        servers = self.run.cluster.servers
        if needed > len(servers):
            raise ConfigError(
                f"allocation.servers: the request in row {request.row} was launched on {degree} GPUs, where its "
                f"{needed // degree} ControlNets need {needed} service GPUs, and found {len(servers)}; raise it, or "
                "lower the degree of the group policy"
            )
        idle = [server for server in servers if not server.running]
        if next(iter(self._short_since_s), progress) is not progress or len(idle) < needed:
            self._short_since_s.setdefault(progress, now_s)
            return False
        self._wait[request.row] += now_s - self._short_since_s.pop(progress, now_s)
        self._take(progress, nets, idle, degree)
        return True

    def _take(self, progress: Progress, nets: Sequence[Asset], gpus: Sequence[Worker], degree: int) -> None:
        """Take as many of ``gpus`` as ``nets`` need beside ``degree`` GPUs of the denoiser of ``progress``."""
        service = self._services[progress] = Service(assign_gpus(nets, gpus, degree))
        for server in service.gpus:
            self.run.cluster.occupy(server)

    def _reserve_on_servers(self, progress: Progress, group: Worker) -> bool:
        """Load the ControlNets of ``progress`` onto shared servers; return False if they fit on none now."""
        request = progress.request
        if not self.calls_servers(progress) or progress in self._on_servers:
            return True
        if next(iter(self._short_since_s), progress) is progress:
            with suppress(WorkFailed):
                self._on_servers[progress] = self._placement.load_addons(group, request, ())
                self._short_since_s.pop(progress, None)
                return True
            self._placement.request_left(group, request, ())
        self._short_since_s.setdefault(progress, self.run.clock._now)
        return False

    def calls_servers(self, progress: Progress) -> bool:
        """Return True if every step of the present stage of ``progress`` calls shared servers."""
        addons = progress.request.addons
        return self.is_shared and progress.stage.denoises and addons is not None and bool(addons.controlnets)

    def may_delay(self, progress: Progress) -> bool:
        """Return True if the steps of ``progress`` may take longer than their cost: LoRAs are due, or servers busy.

        On a live backend, any may.
        """
        if self.run.backend.live:
            return progress.stage.denoises
        return progress.request.loras_pending or self.calls_servers(progress)

    def wait_s(self, request: Request, group: Worker, now_s: float) -> float:
        """Call the servers for a step of ``request`` on ``group``; return what it waits beyond its cost."""
        step = self._placement.step(group, [request], Cost(0.0), now_s)
        return max(step.seconds - self.extra_s(self.run.work(request), len(group.gpus)), 0.0)

    def load(self, progress: Progress, group: Worker, now_s: float) -> Loads:
        """Load the absent add-ons of ``progress``, whose ``group`` prepares from ``now_s`` on; return kinds and costs.

        They follow one another. GPUs side by side load at once, and the slowest counts.
        """
        run, request = self.run, progress.request
        loads: Loads = []
        if progress in self._on_servers:
            loads += self._on_servers[progress]
            self._on_servers[progress] = []  # once
        service = self._services.get(progress)
        if service is not None:
            service.from_s = min(service.from_s, now_s)
            longest = load_side_by_side(run, service.assigned, request)
            loads += [(kind, Cost(cost.seconds)) for kind, cost in longest]  # meanwhile all GPUs of ``group`` wait
        workers = [run.cluster.group((gpu,)) for gpu in group.gpus]
        parts = (self.lora_loading,) if self.is_remote else (self._placement, self.lora_loading)
        for part in parts:
            by_gpu = [part.load_addons(worker, request, ()) for worker in workers]
            slowest = max(by_gpu, key=lambda loads: sum(cost.seconds for _, cost in loads))
            loads += [(kind, on_gpus(len(group.gpus), cost)) for kind, cost in slowest]
        return loads

    def boundary(self, progress: Progress, group: Worker, done: int, now_s: float) -> Cost:
        """Return the cost of waiting for LoRAs and merging them on ``group``, after ``done`` steps of ``progress``."""
        progress.request.steps_left = progress.stage.steps - done
        return self.lora_loading.boundary(group, [progress.request], now_s)

    def lose(self, requests: Sequence[Request], worker: Worker) -> None:
        """Forget ``requests``, which were lost with ``worker`` and may begin anew."""
        for request in requests:
            self.lora_loading.request_left(worker, request, ())
        for progress in [progress for progress in self._short_since_s if progress.request in requests]:
            del self._short_since_s[progress]

    def free(self, progress: Progress, group: Worker, watts: float, is_last: bool, now_s: float) -> tuple[float, Cost]:
        """Free what launches of ``progress`` on ``group`` reserved, of which the last ended.

        Args:
            watts: of each service GPU, as of each GPU of ``group``; NaN where it is not known.
            is_last: True if the request has no denoising steps left, so that its add-ons may leave ``group``.

        Returns:
            The GPU seconds of its service GPUs, which are recorded, and the cost of restoring the weights of a GPU of
            ``group``.
        """
        cluster, request = self.run.cluster, progress.request
        gpu_s = self.end_service(progress, watts, is_last, now_s)
        if self._on_servers.pop(progress, None) is not None:
            self._placement.request_left(group, request, ())
        if not is_last:
            self.lora_loading.request_paused(request)
            return gpu_s, FREE
        restoring = []
        for worker in [cluster.group((gpu,)) for gpu in group.gpus]:
            if not self.is_remote:
                self._placement.request_left(worker, request, ())
            restoring.append(self.lora_loading.request_left(worker, request, ()))
        # All GPUs at once, and the slowest counts.
        return gpu_s, max(restoring, key=lambda cost: cost.seconds)

    def end_service(self, progress: Progress, watts: float, is_last: bool, now_s: float) -> float:
        """Free the service GPUs of ``progress``, if any, as of `free`; return their GPU seconds, which are recorded."""
        service = self._services.pop(progress, None)
        if service is None:
            return 0.0
        request, from_s = progress.request, min(service.from_s, now_s)  # it may fail before it begins
        seconds = now_s - from_s
        for server in service.gpus:
            drawn_j = None if isnan(watts) else watts * seconds
            request.energy_j += record_apart(self.run, progress, server, CONTROLNET, CONTROLNET, from_s, now_s, drawn_j)
            self.run.cluster.vacate(server)
        if is_last and isinstance(self.controlnet_placement, ServiceGpus):
            self.controlnet_placement.evict_all(service.gpus)
        return seconds * len(service.gpus)

    def _count(self, request: Request) -> int:
        """Return the ControlNets of ``request`` that run on service GPUs."""
        return len(request.addons.controlnets) if self.is_service and request.addons is not None else 0
