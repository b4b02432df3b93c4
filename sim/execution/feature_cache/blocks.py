"""Blocks that take what they made a step before: patch by patch, or for whole batches (PatchedServe, section 5)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from backends.base import Cost
from conf.ranges import Count
from sim.core.request import Request
from sim.execution.feature_cache.likeness import Assumed, Measured
from sim.execution.feature_cache.overhead import Overhead
from sim.execution.feature_cache.step_costs import MixedStepCosts, PerStepCosts
from sim.protocols import Run, StepCosts

Step = Callable[[Sequence[Request]], Cost]


def reused(alike: Sequence[float], most: int) -> list[float]:
    """The share that is reused at each step, where what is alike is reused, yet at most ``most`` steps in a row.

    Whether a block is alike is taken as independent from step to step; how many times in a row it was reused is a chain
    of ``most`` + 1 states. Where the share s does not change, it settles at E / (1 + E) with E = s + s^2 + ... +
    s^most.

    Args:
        alike: of each step, the share that may be reused.
        most: steps in a row; PatchedServe's N is one more ("cannot skip the same block for N consecutive steps").
    """
    in_a_row = [1.0] + [0.0] * most
    shares = []
    for share in alike:
        moved = [share * before for before in in_a_row[:most]]
        shares.append(sum(moved))
        in_a_row = [1.0 - shares[-1], *moved]
    return shares


@dataclass(slots=True)
class PatchLevel:
    """Every patch takes the output of a block over from the step before where its input is alike (PatchedServe, 5.1).

    A step of a batch takes (1 - s) of its full seconds, s the share of patch-blocks reused, over the pixels of its
    requests, and what looking for it costs.

    Args:
        likeness: how much is alike.
        overhead: what looking for it costs.
        consecutive: steps in a row at most in which a patch reuses a block.
    """

    likeness: Assumed | Measured
    overhead: Overhead
    consecutive: Count = 2
    _sums: dict[tuple[str, int, int, int, int], list[float]] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        self.likeness.bind(run)
        self.overhead.bind(run)
        _assume(run, self.consecutive)

    def step_costs(self, active: Sequence[Request], count: int, step: Step) -> StepCosts:
        pixels = sum(request.width * request.height for request in active)
        rows = [
            (self._summed(each), each.steps - each.skipped - each.steps_left, each.width * each.height / pixels)
            for each in active
        ]
        return MixedStepCosts(step(active), self.overhead.seconds(active), rows, count)

    def _summed(self, request: Request) -> list[float]:
        model = request.model or ""
        key = (model, request.width, request.height, request.steps, request.skipped)
        sums = self._sums.get(key)
        if sums is None:
            alike = self.likeness.patches(*key[:4])[request.skipped :]
            sums = self._sums[key] = [0.0, *accumulate(reused([0.0, *alike[1:]], self.consecutive))]
        return sums


@dataclass(slots=True)
class WholeImage:
    """A block is left out where all patches of all images of the batch are alike, and else computed for all of them:
    block caching without patches, as PatchedServe compares itself with it (8.2).

    Requests are alike independently of each other. How many times in a row a block was left out counts from the last
    change of the batch, since who joins has nothing to reuse. Arguments as of PatchLevel.
    """

    likeness: Assumed | Measured
    overhead: Overhead
    consecutive: Count = 2
    _alike: dict[tuple[str, int, int, int], Sequence[float]] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        self.likeness.bind(run)
        self.overhead.bind(run)
        _assume(run, self.consecutive)

    def step_costs(self, active: Sequence[Request], count: int, step: Step) -> StepCosts:
        together = [1.0] * count
        for request in active:
            key = (request.model or "", request.width, request.height, request.steps)
            alike = self._alike.get(key)
            if alike is None:
                alike = self._alike[key] = self.likeness.images(*key)
            at = request.steps - request.steps_left
            mine = list(alike[at : at + count])
            if at == request.skipped:
                mine[0] = 0.0
            together = [one * other for one, other in zip(together, mine, strict=True)]
        shares = reused(together, self.consecutive)
        full, extra_s = step(active), self.overhead.seconds(active)
        power_w = None if full.joules is None or full.seconds <= 0.0 else full.joules / full.seconds
        took = [full.seconds * (1.0 - share) + extra_s for share in shares]
        costs = [Cost(seconds, None if power_w is None else power_w * seconds) for seconds in took]
        return PerStepCosts(costs, [shares] * len(active))


def _assume(run: Run, consecutive: int) -> None:
    run.assume(
        "steps in a row in which a block is reused, at most", consecutive, "assumed; PatchedServe does not print N"
    )
