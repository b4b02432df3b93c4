"""TridentServe: GPUs divided anew among the components by load, and a knapsack for each request's parallel degree."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf

import numpy as np

from mezzotint.backends.base import ComponentWeights
from mezzotint.settings.ranges import Count, Share, SomeSeconds, SomeShare
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import DENOISER, TEXT_ENCODER, VAE
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView
from mezzotint.sim.scheduling.group_policies.urgency import Options, take

ON_TIME = 1000.0
"""Reward of a request that meets its deadline (BIG_ON of efficient_ilp.py)."""

LATE = 500.0
"""Reward of a late request, less its seconds of lateness, and at least 1 (LATE_BASE of efficient_ilp.py)."""

PARTITIONS: tuple[tuple[tuple[str, ...], ...], ...] = (
    ((TEXT_ENCODER, DENOISER, VAE),),
    ((TEXT_ENCODER, VAE), (DENOISER,)),
    ((TEXT_ENCODER, DENOISER), (VAE,)),
    ((TEXT_ENCODER,), (DENOISER, VAE)),
    ((TEXT_ENCODER,), (DENOISER,), (VAE,)),
)
"""Every division of the components into pools, those with the fewest pools first."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A division of GPUs among pools of components.

    Attributes:
        pools: the components of each pool.
        gpus: the GPUs of each pool.
        load: GPU-seconds of the busiest pool for each of its GPUs.
    """

    pools: tuple[tuple[str, ...], ...]
    gpus: tuple[int, ...]
    load: float


def worth(left_s: float, limit_s: float) -> float:
    """Return the reward of a request with ``left_s`` seconds to run and ``limit_s`` until its deadline."""
    return ON_TIME if left_s <= limit_s else max(1.0, LATE - (left_s - limit_s))


def divide(loads: Sequence[float], gpus: int) -> tuple[int, ...]:
    """Return the GPUs of each pool, at least one, that make the greatest load of a GPU least; ``gpus`` in all."""
    counts = [1] * len(loads)
    for _ in range(gpus - len(loads)):
        counts[max(range(len(loads)), key=lambda pool: loads[pool] / counts[pool])] += 1
    return tuple(counts)


def pool_load(
    pool: Sequence[str],
    work_s: Mapping[str, float],
    runs: Mapping[str, float],
    weights: Mapping[str, ComponentWeights],
    memory_bytes: int | None,
) -> float:
    """Return the GPU-seconds of ``pool``: of its stages, and of loads if its components do not fit into the memory.

    Then each stage loads its component anew.

    Args:
        work_s: component -> GPU-seconds of its stages that arrived.
        runs: component -> number of these stages.
        weights: component -> bytes and load seconds of its weights, as far as they are known.
        memory_bytes: memory of a GPU; None holds everything.
    """
    load_s = sum(work_s.get(component, 0.0) for component in pool)
    weighed = {component: weights[component] for component in pool if component in weights}
    if len(pool) > 1 and memory_bytes is not None and sum(weight.bytes for weight in weighed.values()) > memory_bytes:
        load_s += sum(
            runs.get(component, 0.0) * weight.load_s
            for component, weight in weighed.items()
            if weight.bytes <= memory_bytes
        )
    return load_s


def best_placement(load_s: Callable[[Sequence[str]], float], gpus: int) -> Placement:
    """Return the placement whose busiest pool has the least load for each GPU; of equals the one with fewer pools.

    Args:
        load_s: GPU-seconds of a pool of components.
    """
    best: Placement | None = None
    for pools in PARTITIONS:
        if len(pools) > gpus:
            continue
        loads = [load_s(pool) for pool in pools]
        counts = divide(loads, gpus)
        load = max(part / count for part, count in zip(loads, counts, strict=True))
        # Partitions come with the fewest pools first; a gain within rounding is none.
        if best is None or load < best.load * (1 - 1e-9):
            best = Placement(pools, counts, load)
    assert best is not None
    return best


def knapsack(rewards: Sequence[Mapping[int, float]], gpus: int) -> list[int]:
    """Return the parallel degree of each request, 0 for none, with the greatest sum of rewards on ``gpus`` GPUs.

    An idle GPU costs a reward of 1 (efficient_ilp.py), so that of equal plans the one on more GPUs is taken. Of plans
    that are equal in that, too, the one that serves the first requests is taken.
    """
    if all(len(of_degree) == 1 and 1 in of_degree for of_degree in rewards):
        order = sorted(range(len(rewards)), key=lambda row: -rewards[row][1])  # stable: of equals the first
        served = set(order[:gpus])
        return [int(row in served) for row in range(len(rewards))]
    best = np.full(gpus + 1, -inf)
    best[0] = 0.0
    chosen = np.zeros((len(rewards), gpus + 1), np.int64)
    # From the last request to the first, so that ``chosen`` is read from the first on: of equal plans it serves that.
    for row, of_degree in reversed(list(enumerate(rewards))):
        with_request = best.copy()
        for degree, reward in of_degree.items():
            if degree <= gpus:
                # reward + degree: what an idle GPU costs is credited to those that work.
                on_degree = best[: gpus + 1 - degree] + (reward + degree)
                better = on_degree >= with_request[degree:]
                better &= on_degree > -inf
                with_request[degree:][better] = on_degree[better]
                chosen[row, degree:][better] = degree
        best = with_request
    used = int(best.argmax())
    degrees = []
    for degree_by_used in chosen:
        degrees.append(int(degree_by_used[used]))
        used -= degrees[-1]
    return degrees


@dataclass(slots=True)
class TridentServe(GroupPolicy):
    """An orchestrator divides the GPUs among the components, a dispatcher chooses the parallel degree of each stage.

    The division follows the work that arrived in the last period, as the scheduler estimates it. A GPU that changes its
    pool runs its launch to the end and loads what it lacks before the next one (adjust on dispatch). The dispatcher
    solves a knapsack over the idle GPUs of a pool: a request in time is worth 1000, a late one 500 less its lateness.

    Args:
        period_s: seconds between two divisions (assumed; the paper's is not known to us).
        min_gain: smallest share by which a new division must lower the greatest load of a GPU (assumed).
        min_efficiency: smallest speedup over one GPU for each GPU of a degree (EFF_TH of efficient_ilp.py).
        candidates: requests of a pool's queue that the dispatcher looks at, oldest first (assumed).

    Raises ConfigError for a stage besides text encoder, denoiser and VAE.

    Source: TridentServe (arXiv 2510.02838); PKU-DAIR/Hetu-DiT, f3b8327a, core/request_manager/efficient_ilp.py. Its
    windows of GPUs that fall idle later are left out: a request is dispatched to idle GPUs or waits.
    """

    period_s: SomeSeconds = 60.0
    min_gain: Share = 0.1
    min_efficiency: SomeShare = 0.8
    candidates: Count = 64
    _run: Run = field(init=False, repr=False)
    _view: StageView = field(init=False, repr=False)
    _waiting: dict[str, dict[Progress, Options]] = field(init=False, repr=False)
    """Component -> waiting request -> its options, of which 1 GPU is the first."""
    _pool_of_gpu: list[tuple[str, ...]] = field(init=False, default_factory=list, repr=False)
    _divided_s: float = field(init=False, default=-inf, repr=False)
    _work_s: dict[str, float] = field(init=False, default_factory=dict, repr=False)
    _runs: dict[str, float] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._run, self._view = run, view
        self._waiting = {TEXT_ENCODER: {}, DENOISER: {}, VAE: {}}
        run.assume("seconds between two divisions of GPUs among stages", self.period_s, "group_policy.period_s")
        for component in self._waiting:
            run.gauge(f"gpus_{component}", lambda _, component=component: self._gpus(component))  # type: ignore[misc]

    def _gpus(self, component: str) -> int:
        return sum(component in pool for pool in self._pool_of_gpu)

    def arrived(self, progress: Progress, now_s: float) -> None:
        for stage in progress.stages:
            if stage.component not in self._waiting:
                raise ConfigError(
                    f"group_policy=tridentserve: found a stage of {stage.component}, expected stages of text-encoder, "
                    "denoiser and vae; add executor.stages=disaggregated"
                )
            seconds = self._view.cost(progress, 1, stage).seconds(0, stage.steps, stage.steps)
            self._work_s[stage.component] = self._work_s.get(stage.component, 0.0) + seconds
            self._runs[stage.component] = self._runs.get(stage.component, 0.0) + 1.0
        self._waiting[progress.stage.component][progress] = self._options(progress)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        if progress.left:
            self._waiting[progress.stage.component][progress] = self._options(progress)

    def restarted(self, progress: Progress, now_s: float) -> None:
        for waiting in self._waiting.values():
            waiting.pop(progress, None)
        self.at_boundary(progress, now_s)

    def decide(self, now_s: float) -> list[Launch]:
        if now_s - self._divided_s >= self.period_s and self._work_s:
            self._divide(now_s)
        if not any(self._waiting.values()):
            return []
        idle: dict[tuple[str, ...], list[int]] = {}
        for gpu in self._view.idle():
            idle.setdefault(self._pool_of_gpu[gpu], []).append(gpu)
        launches: list[Launch] = []
        for pool, gpus in sorted(idle.items(), reverse=True):
            launches += self._dispatch(pool, gpus, now_s)
        return launches

    # -- placement -----------------------------------------------------------------------------------------------------

    def _divide(self, now_s: float) -> None:
        """Divide the GPUs by the work since the last division; a GPU keeps its pool if it may."""
        run, first = self._run, not self._pool_of_gpu
        (gpu,), model = run.cluster.kinds, next(iter(run.models.values())).name
        weights = {}
        for component in self._waiting:
            if (weight := run.backend.component_weights(component, model)) is not None:
                weights[component] = weight

        def load_s(pool: Sequence[str]) -> float:
            return pool_load(pool, self._work_s, self._runs, weights, gpu.memory_bytes)

        best = best_placement(load_s, len(self._view.claimed))
        present = (load_s(pool) / count for pool, count in Counter(self._pool_of_gpu).items())
        if first or best.load < max(present) * (1 - self.min_gain):
            left = dict(zip(best.pools, best.gpus, strict=True))
            placed: list[tuple[str, ...] | None] = [None] * len(self._view.claimed)
            for gpu_id, pool in enumerate(self._pool_of_gpu):
                # GPUs that keep their pool load nothing.
                if left.get(pool, 0):
                    placed[gpu_id], left[pool] = pool, left[pool] - 1
            free = [pool for pool, count in left.items() for _ in range(count)]
            self._pool_of_gpu = [pool or free.pop(0) for pool in placed]
            if first:
                for gpu_id, pool in enumerate(self._pool_of_gpu):
                    # Only before the first launch: later a GPU loads what its new pool lacks, and the run pays for it.
                    self._view.place((gpu_id,), pool)
            run.log_decision("divide", pools={"+".join(pool): n for pool, n in zip(best.pools, best.gpus, strict=True)})
        self._divided_s = now_s
        self._work_s.clear()
        self._runs.clear()

    # -- dispatch ------------------------------------------------------------------------------------------------------

    def _options(self, progress: Progress) -> Options:
        """Return each parallel degree that is efficient, with the seconds that are left of the request on it."""
        view, steps = self._view, progress.stage.steps
        alone_s = view.cost(progress, 1).seconds(progress.done, progress.left, steps)
        options = []
        for degree in view.degrees(progress):
            seconds = view.cost(progress, degree).seconds(progress.done, progress.left, steps)
            if degree == 1 or alone_s >= self.min_efficiency * degree * seconds:
                options.append((degree, view.remaining_s(progress, degree)))
        return options

    def _dispatch(self, pool: tuple[str, ...], idle: list[int], now_s: float) -> list[Launch]:
        """Launch stages of ``pool`` on its ``idle`` GPUs."""
        waiting = [item for component in pool for item in islice(self._waiting[component].items(), self.candidates)]
        if not waiting:
            return []
        waiting.sort(key=lambda item: item[0].submission_index)
        del waiting[self.candidates :]
        launches = []
        for (progress, _), degree in zip(waiting, self._choose(waiting, len(idle), now_s), strict=True):
            if degree:
                del self._waiting[progress.stage.component][progress]
                launches.append(Launch(progress, take(degree, idle, progress.last_gpus), progress.left))
        return launches

    def _choose(self, waiting: Sequence[tuple[Progress, Options]], gpus: int, now_s: float) -> list[int]:
        """Return the parallel degree of each request, 0 for none."""
        if gpus == 1:
            on_one = [worth(options[0][1], progress.request.deadline_s - now_s) for progress, options in waiting]
            best = on_one.index(max(on_one))  # of equals the first, as in the knapsack
            return [int(row == best) for row in range(len(waiting))]
        rewards = []
        for progress, options in waiting:
            limit_s = progress.request.deadline_s - now_s
            rewards.append({degree: worth(left_s, limit_s) for degree, left_s in options if degree <= gpus})
        return knapsack(rewards, gpus)
