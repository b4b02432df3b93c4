"""Step costs that differ from step to step, under a feature cache."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from mezzotint.backends.base import Cost, total_j
from mezzotint.sim.protocols.execution import TOLERANCE


@dataclass(slots=True)
class PerStepCosts:
    """Step costs that are known one by one; ``reused_shares`` has, for each request, its reused share of each step."""

    costs: Sequence[Cost]
    reused_shares: Sequence[Sequence[float]]
    _ends: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self._ends = [0.0, *accumulate(cost.seconds for cost in self.costs)]

    @property
    def longest_s(self) -> float:
        return max(cost.seconds for cost in self.costs)

    def seconds(self, count: int) -> float:
        return self._ends[count]

    def joules(self, count: int) -> float | None:
        return total_j(self.costs[:count])

    def steps_by(self, elapsed_s: float) -> int:
        return bisect_left(self._ends, elapsed_s - TOLERANCE * self._ends[-1] / max(len(self.costs), 1))

    def reused(self, count: int) -> Sequence[float]:
        return [sum(shares[:count]) for shares in self.reused_shares]


@dataclass(slots=True)
class MixedStepCosts:
    """Step costs of a batch in which each request reuses a share of its part of a step, depending on its progress.

    Sums over steps are differences of running sums, so that any number of steps costs one look-up per request.

    Args:
        full: cost of a step that reuses nothing.
        extra_s: overhead of the cache at every step.
        rows: for each request, the running sum of its reused shares, its present step, and its weight in the batch; the
            weights add up to 1.
        count: number of steps.
    """

    full: Cost
    extra_s: float
    rows: Sequence[tuple[Sequence[float], int, float]]
    count: int

    @property
    def longest_s(self) -> float:
        return self.full.seconds + self.extra_s

    def seconds(self, count: int) -> float:
        reused = 0.0
        for sums, first, weight in self.rows:
            reused += weight * (sums[first + count] - sums[first])
        return self.full.seconds * (count - reused) + self.extra_s * count

    def joules(self, count: int) -> float | None:
        if self.full.joules is None or self.full.seconds <= 0.0:
            return self.full.joules
        return self.full.joules / self.full.seconds * self.seconds(count)  # reuse leaves the power of a step as it is

    def steps_by(self, elapsed_s: float) -> int:
        sought_s = elapsed_s - TOLERANCE * self.full.seconds
        return bisect_left(range(self.count), sought_s, key=self.seconds)

    def reused(self, count: int) -> Sequence[float]:
        return [sums[first + count] - sums[first] for sums, first, _ in self.rows]
