"""Pools of GPUs by component: text encoder, denoiser and VAE on GPUs of their own, or together on every GPU."""

from bisect import insort
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import DENOISER, TEXT_ENCODER, VAE
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView

COMPONENTS = TEXT_ENCODER, DENOISER, VAE


@dataclass(slots=True)
class Pool:
    """GPUs that run some components, and the requests that wait for them.

    Attributes:
        components: their names; empty for all.
        gpus: its GPUs; ``idle`` are those without work, ascending.
        queue: the requests that wait, first come first served.
    """

    components: tuple[str, ...]
    gpus: range
    idle: list[int] = field(init=False)
    queue: deque[Progress] = field(init=False, default_factory=deque)

    def __post_init__(self) -> None:
        self.idle = list(self.gpus)

    def queued(self, now_s: float) -> int:
        """Return the number of requests that wait, for a gauge."""
        return len(self.queue)

    def busy(self, now_s: float) -> int:
        """Return the number of GPUs at work or claimed, for a gauge."""
        return len(self.gpus) - len(self.idle)


@dataclass(slots=True)
class Pools(GroupPolicy):
    """Each component runs on its own pool of GPUs, first come first served, a whole stage in one launch.

    A request whose next stage runs on the same pool goes on at once, ahead of the queue.

    Args:
        pools: component -> GPUs of its pool, or another component, whose pool it shares. Empty: all components run on
            every GPU.
        degrees: component -> parallel degree; 1 where none is named or the stage allows no more.

    Raises ConfigError for pools that are not the cluster, and for a component without a pool.

    Source: LightX2V's and vLLM-Omni's stages on GPUs of their own; DisagFusion (arXiv 2605.25550), pools of 1:6:1.
    """

    pools: Mapping[str, Count | str] = field(default_factory=dict)
    degrees: Mapping[str, Count] = field(default_factory=dict)
    _pools: list[Pool] = field(init=False, default_factory=list, repr=False)
    _of_component: dict[str, Pool] = field(init=False, default_factory=dict, repr=False)
    _of_gpu: list[Pool] = field(init=False, default_factory=list, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        gpus = len(view.claimed)
        for components, count in self._members(gpus):
            pool = Pool(components, range(len(self._of_gpu), len(self._of_gpu) + count))
            self._pools.append(pool)
            self._of_gpu += [pool] * count
            self._of_component |= dict.fromkeys(components, pool)
            view.place(pool.gpus, components or COMPONENTS)
            if components:
                name = "+".join(components)
                run.gauge(f"queued_{name}", pool.queued)
                run.gauge(f"busy_{name}", pool.busy)
        if len(self._of_gpu) != gpus:
            raise ConfigError(
                f"group_policy.pools: found {len(self._of_gpu)} GPUs in pools of a cluster of {gpus}; give every "
                "GPU to a pool, or set cluster.count"
            )
        for component, degree in self.degrees.items():
            if component in (self._of_component or COMPONENTS) and degree > len(self._pool(component).gpus):
                raise ConfigError(
                    f"group_policy.degrees.{component}: found {degree} in a pool of "
                    f"{len(self._pool(component).gpus)} GPUs; lower it, or enlarge the pool in group_policy.pools"
                )

    def _members(self, gpus: int) -> list[tuple[tuple[str, ...], int]]:
        """Return the components and the number of GPUs of each pool."""
        if not self.pools:
            return [((), gpus)]
        members: dict[str, list[str]] = {name: [name] for name, count in self.pools.items() if isinstance(count, int)}
        for name, shared in self.pools.items():
            if isinstance(shared, str):
                if shared not in members:
                    raise ConfigError(
                        f"group_policy.pools.{name}: found {shared}, expected a number of GPUs or a component with one"
                    )
                members[shared].append(name)
        return [(tuple(names), int(self.pools[first])) for first, names in members.items()]

    def _pool(self, component: str) -> Pool:
        if not self.pools:
            return self._pools[0]
        try:
            return self._of_component[component]
        except KeyError:
            raise ConfigError(
                f"group_policy.pools: found none for {component}, which the plan of a request names; add it (executor."
                "stages=disaggregated makes stages of text-encoder, denoiser and vae)"
            ) from None

    def arrived(self, progress: Progress, now_s: float) -> None:
        pools = [self._pool(stage.component) for stage in progress.stages]
        pools[0].queue.append(progress)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        assert progress.group is not None
        # All GPUs of a group are of one pool.
        freed = self._of_gpu[progress.group.gpus[0]]
        for gpu in progress.group.gpus:
            # Ascending, so that the lowest numbers are taken first, as by the other policies.
            insort(freed.idle, gpu)
        if not progress.left:
            return
        pool = self._pool(progress.stage.component)
        if pool is freed:
            pool.queue.appendleft(progress)
        else:
            pool.queue.append(progress)

    def restarted(self, progress: Progress, now_s: float) -> None:
        for pool in self._pools:
            if progress in pool.queue:
                pool.queue.remove(progress)
        self._pool(progress.stage.component).queue.append(progress)

    def decide(self, now_s: float) -> list[Launch]:
        """Start what fits, the last stages first: a hand-over then precedes the next request on its old GPUs."""
        launches = []
        for pool in reversed(self._pools):
            while pool.queue and (gpus := self._take(pool)):
                progress = pool.queue.popleft()
                launches.append(Launch(progress, gpus, progress.left))
        return launches

    def _take(self, pool: Pool) -> tuple[int, ...]:
        """Take GPUs for the head of the queue: those that it ran on if they fit, else the lowest; none if too few."""
        progress, idle = pool.queue[0], pool.idle
        stage, last = progress.stage, progress.group
        degree = self.degrees.get(stage.component, 1)
        degree = min(degree, stage.max_degree or degree)
        if degree > len(idle):
            return ()
        kept = () if last is None else last.gpus[:degree]
        gpus = kept if len(kept) == degree and set(kept) <= set(idle) else tuple(idle[:degree])
        for gpu in gpus:
            idle.remove(gpu)
        return gpus
