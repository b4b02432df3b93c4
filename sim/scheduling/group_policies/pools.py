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
from mezzotint.sim.scheduling.group_policies.urgency import take

COMPONENTS = TEXT_ENCODER, DENOISER, VAE

RULE = "a rule of ours: an engine's processes share a GPU kernel by kernel"
"""Source of the order of stages on a GPU with a batch."""


@dataclass(slots=True, eq=False)
class Batch:
    """The requests that share the steps of a stage on some GPUs, until the last one leaves.

    Attributes:
        gpus: its GPUs; nothing else runs there, but stages that wait at a boundary of the batch.
        key: what its requests have in common (Progress.batch_key).
        members: its requests, those that join at its next boundary among them, and the index of the stage in each plan.
        is_launched: True from the decision on its next launch to the end of that launch.
        is_lent: True while another stage runs on its GPUs.
    """

    gpus: tuple[int, ...]
    key: object
    members: dict[Progress, int] = field(init=False, default_factory=dict)
    is_launched: bool = field(init=False, default=False)
    is_lent: bool = field(init=False, default=False)


@dataclass(slots=True)
class Pool:
    """GPUs that run some components, and the requests that wait for them.

    Attributes:
        components: their names; empty for all.
        gpus: its GPUs; ``idle`` are those without work and batch, ascending.
        queue: the requests that wait, first come first served.
        joining: the requests that wait to join a batch, first come first served.
    """

    components: tuple[str, ...]
    gpus: range
    idle: list[int] = field(init=False)
    queue: deque[Progress] = field(init=False, default_factory=deque)
    joining: deque[Progress] = field(init=False, default_factory=deque)
    batches: list[Batch] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.idle = list(self.gpus)

    def queued(self, now_s: float) -> int:
        """Return the number of requests that wait, for a gauge."""
        return len(self.queue) + len(self.joining)

    def busy(self, now_s: float) -> int:
        """Return the number of GPUs at work or claimed, for a gauge."""
        return len(self.gpus) - len(self.idle)

    def free(self, gpus: tuple[int, ...]) -> None:
        """Take note that a stage ended on ``gpus``, which go back to the batch that lent them."""
        for batch in self.batches:
            if batch.is_lent and not set(gpus).isdisjoint(batch.gpus):
                batch.is_lent = False
                return
        for gpu in gpus:
            # Ascending, so that the lowest numbers are taken first, as by the other policies.
            insort(self.idle, gpu)


@dataclass(slots=True)
class Pools(GroupPolicy):
    """Each component runs on its own pool of GPUs, first come first served, a whole stage in one launch.

    A request whose next stage runs on the same pool goes on at once, ahead of the queue.

    Requests share the steps of a stage that allows it (Stage.max_batch, as of ``executor.stages``). A request takes
    idle GPUs for a batch of its own, else it joins the smallest batch of its model and size with a place, at its next
    boundary; it leaves after its last step. At a boundary of a batch, stages that run alone go first where the pool has
    no idle GPU for them, and the batch waits.

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
    _batch_of: dict[Progress, Batch] = field(init=False, default_factory=dict, repr=False)
    _run: Run = field(init=False, repr=False)
    _view: StageView = field(init=False, repr=False)
    batches_stages: bool = field(init=False, default=True, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._run, self._view = run, view
        gpus = len(view.claimed)
        members = self._members(gpus)
        placed = sum(count for _, count in members)
        if placed != gpus:
            raise ConfigError(
                f"group_policy.pools: found {placed} GPUs in pools of a cluster of {gpus}; give every GPU to a pool, "
                "or set cluster.count"
            )
        for components, count in members:
            pool = Pool(components, range(len(self._of_gpu), len(self._of_gpu) + count))
            self._pools.append(pool)
            self._of_gpu += [pool] * count
            self._of_component |= dict.fromkeys(components, pool)
            view.place(pool.gpus, components or COMPONENTS)
            if components:
                name = "+".join(components)
                run.gauge(f"queued_{name}", pool.queued)
                run.gauge(f"busy_{name}", pool.busy)
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
        for stage in progress.stages:
            self._pool(stage.component)
        self._queue(progress)

    def _queue(self, progress: Progress, freed: Pool | None = None) -> None:
        """Queue ``progress`` for its stage; its last one ended on GPUs of the pool ``freed``."""
        pool = self._pool(progress.stage.component)
        if progress.stage.max_batch > 1:
            pool.joining.append(progress)
        elif pool is freed:
            pool.queue.appendleft(progress)
        else:
            pool.queue.append(progress)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        batch = self._batch_of.get(progress)
        if batch is None:
            gpus = progress.last_gpus
            self._of_gpu[gpus[0]].free(gpus)
        else:
            gpus, batch.is_launched = batch.gpus, False
            if progress.left and batch.members[progress] == progress.index:
                return
            self._leave(batch, progress)
        if progress.left:
            self._queue(progress, self._of_gpu[gpus[0]])  # all GPUs of a group are of one pool

    def _leave(self, batch: Batch, progress: Progress) -> None:
        """Take ``progress`` out of ``batch``, whose GPUs are free once nobody is left."""
        del batch.members[progress], self._batch_of[progress]
        if not batch.members:
            pool = self._of_gpu[batch.gpus[0]]
            pool.batches.remove(batch)
            if not batch.is_lent:
                pool.free(batch.gpus)

    def restarted(self, progress: Progress, now_s: float) -> None:
        if progress in self._batch_of:
            self._leave(self._batch_of[progress], progress)
        for pool in self._pools:
            for queue in (pool.queue, pool.joining):
                if progress in queue:
                    queue.remove(progress)
        self._queue(progress)

    def decide(self, now_s: float) -> list[Launch]:
        """Start what fits, the last stages first: a hand-over then precedes the next request on its old GPUs."""
        launches = []
        for pool in reversed(self._pools):
            while pool.queue and (pool.idle or pool.batches):
                gpus = self._take(pool, pool.queue[0]) or self._lent(pool)
                if not gpus:
                    break
                progress = pool.queue.popleft()
                launches.append(Launch(progress, gpus, progress.left))
            if pool.joining or pool.batches:
                launches += self._batches(pool)
        return launches

    def _lent(self, pool: Pool) -> tuple[int, ...]:
        """Return the GPUs of a batch at a boundary, for the head of the queue; none if there is no such batch.

        Raises ConfigError if they are too few.
        """
        component, degree = pool.queue[0].stage.component, self._degree(pool.queue[0])
        for batch in pool.batches:
            if degree > len(batch.gpus):
                raise ConfigError(
                    f"group_policy.degrees.{component}: found {degree} in a pool in which batches hold "
                    f"{len(batch.gpus)} GPUs each; lower it, or give {component} a pool of its own"
                )
            if not batch.is_launched and not batch.is_lent:
                rule = "stages that run alone go first, at the next step boundary of the batch"
                self._run.assume("turns on GPUs that a batch shares with other stages", rule, RULE)
                batch.is_lent = True
                return batch.gpus[:degree]
        return ()

    def _batches(self, pool: Pool) -> list[Launch]:
        """Have requests join batches, and launch those at a boundary up to where the first of their requests leaves."""
        while pool.joining and (batch := self._joined(pool)):
            progress = pool.joining.popleft()
            if batch.is_launched:
                first = next(iter(batch.members))
                # What has not started takes the request along: those that come at one instant begin together
                # (test_requests_that_come_together_share_all_steps).
                self._view.withdraw(first)
                if batch.is_launched:
                    self._view.interrupt(first)
            batch.members[progress], self._batch_of[progress] = progress.index, batch
        # The smallest give way, to as many stages as wait.
        for batch in sorted(pool.batches, key=_size)[: len(pool.queue)]:
            if batch.is_launched:
                self._view.interrupt(next(iter(batch.members)))
        return [self._launch(batch) for batch in pool.batches if not (batch.is_launched or batch.is_lent)]

    def _launch(self, batch: Batch) -> Launch:
        """Launch ``batch`` up to the end of the first of its requests."""
        batch.is_launched = True
        first, *others = batch.members
        steps = min(progress.left for progress in batch.members)
        # Its next step is decided during the last one.
        return Launch(first, batch.gpus, steps, ahead=first.done > 0, batch=tuple(others))

    def _joined(self, pool: Pool) -> Batch | None:
        """Return the batch that the head of ``joining`` joins; None if none has a place."""
        progress = pool.joining[0]
        key, max_batch = progress.batch_key, progress.stage.max_batch
        if gpus := self._take(pool, progress):
            pool.batches.append(Batch(gpus, key))
            return pool.batches[-1]
        # A request without a key runs alone.
        fitting = (batch for batch in pool.batches if batch.key == key is not None and _size(batch) < max_batch)
        return min(fitting, key=_size, default=None)

    def _degree(self, progress: Progress) -> int:
        stage = progress.stage
        degree = self.degrees.get(stage.component, 1)
        return min(degree, stage.max_degree or degree)

    def _take(self, pool: Pool, progress: Progress) -> tuple[int, ...]:
        """Take GPUs for ``progress``: those that it ran on if they fit, else the lowest; none if too few."""
        degree = self._degree(progress)
        return () if degree > len(pool.idle) else take(degree, pool.idle, progress.last_gpus[:degree])


def _size(batch: Batch) -> int:
    return len(batch.members)
