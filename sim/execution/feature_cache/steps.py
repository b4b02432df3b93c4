"""Step caching: whole steps are skipped, as by the caches of serving engines for diffusion transformers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mezzotint.backends.base import Cost, total
from mezzotint.settings.ranges import Share, Steps
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.execution.feature_cache.step_costs import PerStepCosts
from mezzotint.sim.protocols import Run, StepCosts


@dataclass(slots=True)
class StepCaching:
    """A fixed list of steps is computed; the others reuse the output of the last computed step at little cost.

    In a schedule of another length a step stands for the listed steps at the same fraction of the schedule. It is
    computed if one of them is. The first step that a request runs is always computed.

    Args:
        computed: indices of the steps computed in a run of ``of_steps``, from 0; at least one.
        of_steps: number of steps that the list was made for.
        reused_cost: cost of a reused step over that of a computed one.
        decides: ``request``: each request of a batch computes or reuses on its own and pays for its own. ``batch``: a
            step that one request computes is computed for all, as in engines with one decision per batch.
        source: source of the list, for the summary.
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
            first = wrong[0] if wrong else "none"
            raise ConfigError(f"feature_cache.computed: found {first}, expected steps from 0 to {self.of_steps - 1}")

    def bind(self, run: Run) -> None:
        run.assume("steps that are computed", f"{len(set(self.computed))} of {self.of_steps}", self.source)
        run.assume("seconds of a step that is reused, over one that is computed", self.reused_cost, self.source)

    def plan(self, steps: int, skipped: int = 0) -> list[bool]:
        """Return, for each step from ``skipped`` to ``steps``, True if it is computed."""
        plan = self._plans.get((steps, skipped))
        if plan is None:
            listed, of_steps = set(self.computed), self.of_steps
            plan = []
            for step in range(skipped, steps):
                first = step * of_steps // steps
                stands_for = range(first, max((step + 1) * of_steps // steps, first + 1))
                plan.append(step == skipped or not listed.isdisjoint(stands_for))
            self._plans[steps, skipped] = plan
        return plan

    def step_costs(self, active: Sequence[Request], count: int, step: Callable[[Sequence[Request]], Cost]) -> StepCosts:
        ahead = []
        for request in active:
            index = request.steps - request.skipped - request.steps_left
            ahead.append(self.plan(request.steps, request.skipped)[index : index + count])
        if self.decides == "batch":
            computed = [any(computing) for computing in zip(*ahead, strict=True)]
            ahead = [computed] * len(active)
        known: dict[tuple[bool, ...], Cost] = {}
        costs = []
        for computing in zip(*ahead, strict=True):
            cost = known.get(computing)
            if cost is None:
                cost = known[computing] = self._cost(active, computing, step)
            costs.append(cost)
        saved = 1.0 - self.reused_cost
        return PerStepCosts(costs, [[0.0 if computed else saved for computed in plan] for plan in ahead])

    def _cost(
        self, active: Sequence[Request], computing: Sequence[bool], step: Callable[[Sequence[Request]], Cost]
    ) -> Cost:
        groups = [
            ([r for r, computes in zip(active, computing, strict=True) if computes is wanted], share)
            for wanted, share in ((True, 1.0), (False, self.reused_cost))
        ]
        return total([step(group).times(share) for group, share in groups if group])
