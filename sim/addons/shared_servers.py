"""ControlNet servers shared by all workers (SwiftDiffusion, 4.1): each has a GPU of its own and a queue."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter

from mezzotint.backends.base import Asset, Cost, WorkFailed
from mezzotint.sim.addons.assets import check_addon_backend, requested_addons
from mezzotint.sim.addons.service_gpus import STEP_PARTS, lengthen, load_controlnet, step_parts
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import ControlNetPlacement, Loads, RequestColumn, Run, Worker


@dataclass(slots=True)
class SharedServers(ControlNetPlacement):
    """Run ControlNets on GPUs that the allocation sets aside (``allocation=controlnet-servers``).

    At every step each GPU of a worker calls a server for each of its ControlNets, runs its encoder, and waits for the
    results before its decoder. A server is a FCFS queue. If several servers hold a ControlNet, the call goes to the one
    that is free first. An absent ControlNet is loaded onto the server with the most free memory, and evicts the ones
    called longest ago if it must.

    Args:
        placement: ControlNets on each server at the start, in the order of the servers.
    """

    placement: list[list[str]] = field(default_factory=list)
    _run: Run = field(init=False, repr=False)
    _faster: Callable[[str], float] = field(init=False, repr=False)
    _wait: RequestColumn = field(init=False, repr=False)
    _placed: bool = field(init=False, default=False, repr=False)
    _in_use: dict[int, list[Asset]] = field(init=False, default_factory=dict, repr=False)
    """The ControlNets of each request that calls servers, by trace row."""

    def bind(self, run: Run, faster: Callable[[str], float]) -> None:
        self._run, self._faster = run, faster
        self._wait = run.add_column("server_wait_s", default=0.0)
        check_addon_backend(run, *STEP_PARTS)
        remedy = "choose controlnet_placement=inline"
        check_one_kind(run.cluster.kinds, "controlnet_placement", "ControlNet servers and workers are of", remedy)
        servers = len(run.cluster.servers)
        if run.workload.addons is not None and not servers:
            raise ConfigError("controlnet_placement: no GPU serves ControlNets; add allocation=controlnet-servers")
        if len(self.placement) > servers:
            raise ConfigError(
                f"controlnet_placement.placement: found ControlNets for {len(self.placement)} servers, expected "
                f"at most {servers} (allocation.servers)"
            )

    def _place(self, request: Request) -> None:
        """Load the initial ``placement``, at no cost: it was there before the clock started."""
        self._placed = True
        cluster, model = self._run.cluster, request.model or ""
        for server, names in zip(cluster.servers, self.placement, strict=False):
            for name in names:
                net = Asset("controlnet", name, model, self._run.workload.addon_bytes.get(name))
                load_controlnet(self._run, server, net, request)

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request]) -> Loads:
        request.remote_controlnets = True
        if not self._placed:
            self._place(request)
        run, now_s = self._run, self._run.clock._now
        waits: list[float] = []
        nets = self._in_use[request.row] = requested_addons(run, request, "controlnet")
        for net in nets:
            if any(net in server.resident for server in run.cluster.servers):
                continue
            server, cost = self._load(net, request)
            from_s = max(server.busy_until_s, now_s)
            run.cluster.record_busy(server, from_s, from_s + cost.seconds, "controlnet", cost.joules)
            waits.append(from_s + cost.seconds - now_s)
        return [("controlnet", Cost(max(waits)))] if waits else []

    def _load(self, net: Asset, request: Request) -> tuple[Worker, Cost]:
        """Load ``net`` onto the emptiest server on which it fits beside the ControlNets in use; evict others, LRU."""
        used_bytes = {server: sum(server.resident.values()) for server in self._run.cluster.servers}
        in_use = {used for nets in self._in_use.values() for used in nets}
        for server in sorted(used_bytes, key=lambda server: (used_bytes[server], server.id)):
            with suppress(WorkFailed):
                cost = load_controlnet(self._run, server, net, request, in_use)
                assert cost is not None
                return server, cost
        raise WorkFailed(
            f"the ControlNet {net.name} fits on none of the {len(used_bytes)} servers beside the ControlNets in use; "
            "raise allocation.servers, or choose another cluster="
        )

    def step(self, worker: Worker, active: Sequence[Request], plain: Cost, now_s: float) -> Cost:
        run = self._run
        nets = [net for request in active for net in requested_addons(run, request, "controlnet")]
        if not nets:
            return plain
        parts = step_parts(worker.backend, run.work(active[0]), len(worker.gpus), self._faster)
        now_s, done_s, standalone_s = max(now_s, run.clock._now), 0.0, parts.controlnet_s
        for net in nets * len(worker.gpus):
            holders = [server for server in run.cluster.servers if net in server.resident]
            server = min(holders, key=attrgetter("busy_until_s"))
            run.cluster.admit(server, net, 0)  # marks it as most recently used
            from_s = max(server.busy_until_s, now_s)  # calls come in the order of the clock: this is its whole queue
            run.cluster.record_busy(server, from_s, from_s + parts.controlnet_s, "controlnet")
            done_s = max(done_s, from_s + parts.controlnet_s - now_s)
        for request in active:
            self._wait[request.row] += max(done_s - max(standalone_s, parts.encoder_s), 0.0)
        return lengthen(plain, max(done_s - parts.encoder_s, 0.0) + len(nets) * parts.receive_s)

    def stable_steps(self, worker: Worker, active: Sequence[Request]) -> int | None:
        # Between two steps, other workers may call the same servers.
        return 1 if any(request.addons is not None and request.addons.controlnets for request in active) else None

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> None:
        self._in_use.pop(request.row, None)


def refuse_feature_cache(placement: object) -> None:
    """Raise ConfigError if ``placement`` has shared servers: a feature cache is not modelled beside them."""
    if isinstance(placement, SharedServers):
        raise ConfigError(
            "feature_cache: found controlnet_placement=shared, and how rarely steps that reuse features call the "
            "ControlNet servers is not modelled; add feature_cache=none or controlnet_placement=service"
        )
