"""Block caching: a block reuses its output of the step before, by patch or by whole batch (PatchedServe, section 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from mezzotint.backends.base import Cost
from mezzotint.settings.ranges import Count
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.workload import serves_videos
from mezzotint.sim.execution.feature_cache.feature_similarity import AssumedFeatureSimilarity
from mezzotint.sim.execution.feature_cache.overhead import Overhead
from mezzotint.sim.execution.feature_cache.step_costs import MixedStepCosts, PerStepCosts
from mezzotint.sim.protocols import Run, StepCosts

Step = Callable[[Sequence[Request]], Cost]


def reused_shares(similar: Sequence[float], max_in_a_row: int) -> list[float]:
    """Return the share reused at each step, if a similar block is reused, but at most ``max_in_a_row`` steps in a row.

    Similarity is taken as independent from step to step. The number of reuses in a row is then a Markov chain of
    ``max_in_a_row`` + 1 states. For a constant share s it settles at E / (1 + E), E = s + s^2 + ... + s^max_in_a_row.

    Args:
        similar: similar share at each step.
        max_in_a_row: PatchedServe's N less one ("cannot skip the same block for N consecutive steps").
    """
    in_a_row = [1.0] + [0.0] * max_in_a_row
    shares = []
    for share in similar:
        one_more = [share * before for before in in_a_row[:max_in_a_row]]
        shares.append(sum(one_more))
        in_a_row = [1.0 - shares[-1], *one_more]
    return shares


@dataclass(slots=True)
class BlockCaching:
    """A block whose input is similar to that of the step before reuses its output.

    Args:
        likeness: feature similarity, the shares of similar (patch, block) pairs.
        overhead: cost of comparing, masking and filling in.
        consecutive: maximum number of steps in a row in which a block is reused.
    """

    likeness: AssumedFeatureSimilarity
    overhead: Overhead
    consecutive: Count = 2

    def bind(self, run: Run) -> None:
        self.likeness.bind(run)
        self.overhead.bind(run)
        if serves_videos(run.workload, run.models):
            raise ConfigError(
                "feature_cache: found videos, and the similarity of blocks is that of images; choose "
                "feature_cache=none, or one that skips whole steps"
            )
        what = "steps in a row in which a block is reused, at most"
        run.assume(what, self.consecutive, "assumed; PatchedServe does not print N")


@dataclass(slots=True)
class PatchLevel(BlockCaching):
    """Each patch reuses the output of a block if its input is similar to that of the step before (PatchedServe, 5.1).

    A step of a batch takes (1 - s) of its full seconds plus the overhead. The share s of patch-blocks reused is
    weighted by the pixels of the requests. Arguments as of `BlockCaching`.
    """

    _sums: dict[tuple[str, int, int, int, int], list[float]] = field(init=False, default_factory=dict, repr=False)

    def step_costs(self, active: Sequence[Request], count: int, step: Step) -> StepCosts:
        pixels = sum(request.width * request.height for request in active)
        rows = [
            (
                self._reused_sums(request),
                request.steps - request.skipped - request.steps_left,
                request.width * request.height / pixels,
            )
            for request in active
        ]
        return MixedStepCosts(step(active), self.overhead.seconds(active), rows, count)

    def _reused_sums(self, request: Request) -> list[float]:
        model = request.model or ""
        key = (model, request.width, request.height, request.steps, request.skipped)
        sums = self._sums.get(key)
        if sums is None:
            similar = self.likeness.patch_shares(*key[:4])[request.skipped :]
            sums = self._sums[key] = [0.0, *accumulate(reused_shares([0.0, *similar[1:]], self.consecutive))]
        return sums


@dataclass(slots=True)
class WholeImage(BlockCaching):
    """A block is reused only if all patches of all images of the batch are similar: block caching without patches.

    PatchedServe compares itself with it (8.2). Requests are similar independently of each other. Reuses in a row count
    from the last change of the batch, since a request that joins has nothing to reuse. Arguments as of `BlockCaching`.
    """

    _similar: dict[tuple[str, int, int, int], Sequence[float]] = field(init=False, default_factory=dict, repr=False)

    def step_costs(self, active: Sequence[Request], count: int, step: Step) -> StepCosts:
        similar_in_all = [1.0] * count
        for request in active:
            key = (request.model or "", request.width, request.height, request.steps)
            similar = self._similar.get(key)
            if similar is None:
                similar = self._similar[key] = self.likeness.image_shares(*key)
            step_index = request.steps - request.steps_left
            similar_ahead = list(similar[step_index : step_index + count])
            if step_index == request.skipped:
                similar_ahead[0] = 0.0
            similar_in_all = [one * other for one, other in zip(similar_in_all, similar_ahead, strict=True)]
        shares = reused_shares(similar_in_all, self.consecutive)
        full, extra_s = step(active), self.overhead.seconds(active)
        power_w = None if full.joules is None or full.seconds <= 0.0 else full.joules / full.seconds
        steps_s = [full.seconds * (1.0 - share) + extra_s for share in shares]
        costs = [Cost(step_s, None if power_w is None else power_w * step_s) for step_s in steps_s]
        return PerStepCosts(costs, [shares] * len(active))
