"""Estimates: what a scheduler believes of the cost of a stage. The machine takes the true cost (``estimates=``)."""

from dataclasses import dataclass, field

from conf.ranges import Positive
from sim.core.plan import Stage
from sim.core.request import Request
from sim.protocols import CostOf, Estimates, Run, StageCost


@dataclass(slots=True)
class Scaled(Estimates):
    """The true cost times a factor; a factor of 1 is perfect knowledge.

    Args:
        factor: estimated over true seconds, of every stage and parallel degree.
        by_size: WIDTHxHEIGHT -> the factor of that size, in place of ``factor``.
    """

    factor: Positive = 1.0
    by_size: dict[str, Positive] = field(default_factory=dict)
    _cost: CostOf = field(init=False, repr=False)
    _is_perfect: bool = field(init=False, repr=False)

    def bind(self, run: Run, cost: CostOf) -> None:
        self._cost = cost
        self._is_perfect = self.factor == 1.0 and not self.by_size

    def cost(self, request: Request, stage: Stage, degree: int) -> StageCost:
        true = self._cost(request, stage, degree)
        if self._is_perfect:
            return true
        factor = self.by_size.get(f"{request.width}x{request.height}", self.factor)
        return StageCost(true.first_s * factor, true.step_s * factor, true.last_s * factor, true.watts)
