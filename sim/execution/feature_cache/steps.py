"""Whole steps that are not computed: what the serving engines' caches of diffusion transformers do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from backends.base import Cost, total
from conf.ranges import Share, Steps
from sim.core.errors import ConfigError
from sim.core.request import Request
from sim.execution.feature_cache.step_costs import PerStepCosts
from sim.protocols import Run, StepCosts


@dataclass(slots=True)
class StepCaching:
    """Which steps are computed is known beforehand; the others take the last one's output and little time.

    In a schedule of another length a step stands for those that lie at its share of the way, and is computed where one
    of them is. The first step that a request runs is computed.

    Args:
        computed: the steps that were computed, from 0 on, of a run of ``of_steps``; one at least.
        reused_cost: what a step that is not computed takes, over one that is.
        decides: ``request``: who computes a step and who does not may share a batch, each pays for its own; ``batch``:
            one that any of them computes is computed for all, as engines do whose batches have one decision.
        source: where the list is from, for the summary.
    """

    computed: list[int]
    of_steps: Steps
    reused_cost: Share
    decides: Literal["request", "batch"] = "request"
    source: str = "a setting"
    _plans: dict[tuple[int, int], list[bool]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        wrong = [step for step in self.computed if not 0 <= step < self.of_steps]
        if wrong or not self.computed:
            found = wrong[0] if wrong else "none"
            raise ConfigError(f"feature_cache.computed: found {found}, expected steps from 0 to {self.of_steps - 1}")

    def bind(self, run: Run) -> None:
        said = f"{len(set(self.computed))} of {self.of_steps}"
        run.assume("steps that are computed", said, self.source)
        run.assume("seconds of a step that is reused, over one that is computed", self.reused_cost, self.source)

    def plan(self, steps: int, skipped: int = 0) -> list[bool]:
        """Whether each step from ``skipped`` on is computed, for a request of ``steps``."""
        found = self._plans.get((steps, skipped))
        if found is None:
            measured, there = set(self.computed), self.of_steps
            found = []
            for step in range(skipped, steps):
                first = step * there // steps
                stands_for = range(first, max((step + 1) * there // steps, first + 1))
                found.append(step == skipped or not measured.isdisjoint(stands_for))
            self._plans[steps, skipped] = found
        return found

    def step_costs(self, active: Sequence[Request], count: int, step: Callable[[Sequence[Request]], Cost]) -> StepCosts:
        ahead = []
        for request in active:
            at = request.steps - request.skipped - request.steps_left
            ahead.append(self.plan(request.steps, request.skipped)[at : at + count])
        if self.decides == "batch":
            together = [any(each) for each in zip(*ahead, strict=True)]
            ahead = [together] * len(active)
        known: dict[tuple[bool, ...], Cost] = {}
        costs = []
        for computing in zip(*ahead, strict=True):
            cost = known.get(computing)
            if cost is None:
                cost = known[computing] = self._cost(active, computing, step)
            costs.append(cost)
        spared = 1.0 - self.reused_cost
        return PerStepCosts(costs, [[0.0 if each else spared for each in mine] for mine in ahead])

    def _cost(
        self, active: Sequence[Request], computing: Sequence[bool], step: Callable[[Sequence[Request]], Cost]
    ) -> Cost:
        groups = [
            ([r for r, on in zip(active, computing, strict=True) if on is wanted], share)
            for wanted, share in ((True, 1.0), (False, self.reused_cost))
        ]
        return total([step(those).times(share) for those, share in groups if those])
