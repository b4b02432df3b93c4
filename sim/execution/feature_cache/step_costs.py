"""Courses of steps that differ: sums known at every step, or found by difference of sums over whole requests."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from backends.base import Cost, total_j
from sim.protocols.execution import TOLERANCE


@dataclass(slots=True)
class PerStepCosts:
    """Steps whose costs are known one by one; ``spared`` is, for each request, the share of each step that it
    reused."""

    costs: Sequence[Cost]
    spared: Sequence[Sequence[float]]
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
        return [sum(shares[:count]) for shares in self.spared]


@dataclass(slots=True)
class MixedStepCosts:
    """Each request of the batch spares a share of its weight in a full step, which depends on how far it is. Sums over
    steps are differences of running sums, so that a step_costs of any length costs a look-up for each request.

    Args:
        full: one step that reuses nothing.
        extra_s: what the reuse itself takes, at every step.
        rows: for each request: the running sum of its shares over its whole run, at which step of it the step_costs begins,
            and its weight; the weights add up to 1.
        count: steps of the step_costs.
    """

    full: Cost
    extra_s: float
    rows: Sequence[tuple[Sequence[float], int, float]]
    count: int

    @property
    def longest_s(self) -> float:
        """A step that spares nothing."""
        return self.full.seconds + self.extra_s

    def seconds(self, count: int) -> float:
        spared = 0.0
        for sums, at, weight in self.rows:
            spared += weight * (sums[at + count] - sums[at])
        return self.full.seconds * (count - spared) + self.extra_s * count

    def joules(self, count: int) -> float | None:
        """At the power of a full step."""
        if self.full.joules is None or self.full.seconds <= 0.0:
            return self.full.joules
        return self.full.joules / self.full.seconds * self.seconds(count)

    def steps_by(self, elapsed_s: float) -> int:
        sought_s = elapsed_s - TOLERANCE * self.full.seconds
        return bisect_left(range(self.count), sought_s, key=self.seconds)

    def reused(self, count: int) -> Sequence[float]:
        return [sums[at + count] - sums[at] for sums, at, _ in self.rows]
