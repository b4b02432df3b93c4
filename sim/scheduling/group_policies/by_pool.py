"""One group policy for each pool of GPUs of one kind and role: several kinds and roles on groups that change."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields

from mezzotint.backends.base import BackendError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.model import in_role
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageCost, StageView


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The GPUs of one kind whose role is one model, as the policy of the pool sees the run (StageView).

    GPUs of other pools count as held by others.

    Args:
        view: what is seen of all pools, with the costs of the kind ``gpu``.
        model: None serves every model.
        workers: all GPUs that run stages.
    """

    view: StageView
    policy: GroupPolicy
    run: Run
    gpu: Gpu
    model: str | None
    workers: Sequence[Worker]
    requests: dict[Progress, float] = field(init=False, default_factory=dict)
    """The requests of the pool in the system, with their estimated seconds on one GPU."""
    estimates_are_exact: bool = field(init=False)
    cost: Callable[..., StageCost] = field(init=False)
    service_gpus: Callable[[Progress, int], int] = field(init=False)
    remaining_s: Callable[[Progress, int], float] = field(init=False)
    interrupt: Callable[[Progress], None] = field(init=False)
    withdraw: Callable[[Progress], None] = field(init=False)
    place: Callable[[Sequence[int], Sequence[str]], None] = field(init=False)
    discard: Callable[[Progress, str], None] = field(init=False)
    decide_at: Callable[[float], None] = field(init=False)
    of_kind: Callable[[Gpu], StageView] = field(init=False)

    def __post_init__(self) -> None:
        for shared in fields(self):
            if not shared.init and shared.name != "requests":
                object.__setattr__(self, shared.name, getattr(self.view, shared.name))  # frozen for its policy

    def has(self, gpu: int) -> bool:
        """Return True if the GPU is of this pool now."""
        worker = self.workers[gpu]
        is_of_kind = worker.gpu == self.gpu
        return is_of_kind and (self.model is None or in_role(self.run.models, worker.role).name == self.model)

    @property
    def gpus(self) -> int:
        """Number of GPUs of this pool now."""
        return sum(map(self.has, range(len(self.workers))))

    @property
    def waiting(self) -> Mapping[Progress, None]:
        return {progress: None for progress in self.view.waiting if progress in self.requests}

    @property
    def claimed(self) -> Sequence[int]:
        return [count + (not self.has(gpu)) for gpu, count in enumerate(self.view.claimed)]

    def idle(self) -> list[int]:
        return [gpu for gpu in self.view.idle() if self.has(gpu)]

    def degrees(self, progress: Progress) -> Sequence[int]:
        gpus = max(1, self.gpus)
        return [degree for degree in self.view.degrees(progress) if degree <= gpus]

    def ask_again(self) -> None:
        """Do nothing: `ByPool` decides at every boundary."""


@dataclass(slots=True)
class ByPool(GroupPolicy):
    """Run each request on the GPUs of one pool, as a policy of this pool alone decides.

    A request goes to a pool of its model. Of several kinds it takes the one that would finish it first, by estimates on
    one GPU, if the requests of a pool shared its GPUs evenly; of equal ones the first kind of the cluster. It stays
    there.

    A GPU that is ordered to another role takes no launch more. It loads once the launch on it has ended, at the
    boundary that its policy chose: the next step, or the end of the request. Requests that were to follow wait again.

    Args:
        policy: the policy of each pool, each with its own state. It must take GPUs by ``StageView.idle`` alone
            (``GroupPolicy.follows_gpus``).
        by_role: True to serve a request on GPUs whose role is its model; False on every GPU of a kind.
    """

    policy: GroupPolicy
    by_role: bool = True
    decides_before_release: bool = field(init=False)
    acts_on_answers: bool = field(init=False)
    needs_equal_steps: bool = field(init=False)
    batches_stages: bool = field(init=False)
    chooses_service_gpus: bool = field(init=False)
    max_batch: int = field(init=False)
    follows_gpus: bool = field(init=False, default=True, repr=False)
    _pools: list[Pool] = field(init=False, default_factory=list, repr=False)
    _pool_of: dict[Progress, Pool] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.decides_before_release = self.policy.decides_before_release
        self.acts_on_answers = self.policy.acts_on_answers
        self.needs_equal_steps = self.policy.needs_equal_steps
        self.batches_stages = self.policy.batches_stages
        self.chooses_service_gpus = self.policy.chooses_service_gpus
        self.max_batch = self.policy.max_batch

    def bind(self, run: Run, view: StageView) -> None:
        workers = [run.cluster.group((gpu,)) for gpu in range(len(view.claimed))]
        models = dict.fromkeys(model.name for model in run.models.values()) if self.by_role else {None: None}
        for gpu in run.cluster.kinds:
            for model in models:
                pool = Pool(view.of_kind(gpu), deepcopy(self.policy), run, gpu, model, workers)
                pool.policy.bind(run, pool)
                self._pools.append(pool)
        if len(run.cluster.kinds) > 1:
            run.assume("kind of GPU of a request", "the one that would finish it first", "a rule of ours; no paper has")

    def arrived(self, progress: Progress, now_s: float) -> None:
        pools = [pool for pool in self._pools if pool.model in (None, progress.request.model)]
        pool, seconds = _first_to_finish(pools, progress) if len(pools) > 1 else (pools[0], 0.0)
        pool.requests[progress] = seconds
        self._pool_of[progress] = pool
        pool.policy.arrived(progress, now_s)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        self._pool_of[progress].policy.at_boundary(progress, now_s)

    def ended(self, progress: Progress, now_s: float) -> None:
        pool = self._pool_of.pop(progress)
        pool.policy.ended(progress, now_s)
        del pool.requests[progress]

    def restarted(self, progress: Progress, now_s: float) -> None:
        self._pool_of[progress].policy.restarted(progress, now_s)

    def decide(self, now_s: float) -> Iterator[Launch]:
        for pool in self._pools:
            yield from pool.policy.decide(now_s)


def _first_to_finish(pools: Sequence[Pool], progress: Progress) -> tuple[Pool, float]:
    """Return the pool that would finish ``progress`` first, and its estimated seconds there on one GPU.

    Raises BackendError if no kind of GPU has times of it.
    """
    best, first_s, seconds = pools[0], float("inf"), 0.0
    error: BackendError | None = None
    for pool in pools:
        try:
            alone_s = pool.view.remaining_s(progress, 1)
        except BackendError as unknown:
            error = unknown
            continue
        gpus = pool.gpus
        finish_s = (sum(pool.requests.values()) + alone_s) / gpus if gpus else float("inf")
        if finish_s < first_s:
            best, first_s, seconds = pool, finish_s, alone_s
    if not seconds and error is not None:
        raise error
    return best, seconds
