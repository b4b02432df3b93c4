"""The view of a group policy (mezzotint.sim.protocols.StageView): the claims of GPUs, and estimated costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NoReturn

from mezzotint.sim.core.culprit import caller, class_name, is_ours
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.plan import Stage
from mezzotint.sim.core.progress import Progress, requests_of
from mezzotint.sim.core.request import Request
from mezzotint.sim.execution.stages.costs import StageCosts
from mezzotint.sim.execution.stages.launches import LaunchState
from mezzotint.sim.protocols import Estimates, StageCost


class Claims(list[int]):
    """Launches that hold each GPU, which policies may read and not change; reading is as fast as a list's."""

    __slots__ = ()

    def add(self, gpus: Sequence[int], count: int) -> None:
        """Count ``count`` more launches on each of ``gpus``, for the executor alone."""
        for gpu in gpus:
            list.__setitem__(self, gpu, self[gpu] + count)

    def idle(self) -> list[int]:
        """Return the GPUs that no launch holds, in ascending order."""
        return [gpu for gpu, count in enumerate(self) if not count]

    def _refuse(self, *_: object) -> NoReturn:
        raise SimulationError(
            f"{caller()} changes StageView.claimed; a group policy claims GPUs by the launches that it returns"
        )

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = clear = sort = reverse = _refuse  # type: ignore[assignment]


@dataclass(slots=True)
class StageEstimates:
    """Parallel degrees and estimated costs of stages, each computed once where it cannot change.

    Args:
        estimates: what is believed; None for the true costs.
        gpus: number of GPUs that run stages.
        steps_behind: a running request -> the steps of its launch that ended by now.
    """

    costs: StageCosts
    estimates: Estimates | None
    gpus: int
    steps_behind: Callable[[Progress], int]
    are_exact: bool = field(init=False, default=True)
    are_fixed: bool = field(init=False, default=True)
    learns: bool = field(init=False, default=False)
    _estimate: Callable[..., StageCost] = field(init=False, repr=False)
    _known: dict[Progress, dict[int, StageCost]] = field(init=False, default_factory=dict, repr=False)
    """Of requests in the system, the costs of the present stage by degree, if asked for and not subject to change."""
    _degrees: dict[tuple[str | None, int], Sequence[int]] = field(init=False, default_factory=dict, repr=False)
    """The degrees by model and greatest degree."""

    def __post_init__(self) -> None:
        estimates, self._estimate = self.estimates, self.costs.cost
        if estimates is not None:
            self.are_exact, self.are_fixed = estimates.are_exact, estimates.are_fixed
            self.learns = type(estimates).observed is not Estimates.observed
            if not self.are_exact:
                self._estimate = estimates.cost if is_ours(class_name(estimates)) else self._checked_estimate

    def _checked_estimate(
        self, request: Request, stage: Stage, degree: int, others: Sequence[Request] = ()
    ) -> StageCost:
        """Return the estimate of a class from outside the package. Raises SimulationError unless its steps fit."""
        assert self.estimates is not None
        cost = self.estimates.cost(request, stage, degree, others)
        if cost.ends and not (len(cost.ends) > stage.steps and all(low <= high for low, high in pairwise(cost.ends))):
            raise SimulationError(
                f"{class_name(self.estimates)} returned the ends {cost.ends!r:.100} from cost for the request in row "
                f"{request.row}; expected 0 and the end of each step, rising, or none where steps are equal"
            )
        return cost

    def enter_stage(self, progress: Progress) -> None:
        """Take note that ``progress`` is at another stage."""
        self._known[progress] = {}

    def forget(self, progress: Progress) -> None:
        """Take note that the request of ``progress`` ended."""
        del self._known[progress]

    def observed(self, launch: LaunchState, seconds: float) -> None:
        """Tell the estimates what the steps of ``launch`` really took."""
        assert self.estimates is not None
        progress, others, degree = launch.progress, requests_of(launch.batch), len(launch.gpus)
        self.estimates.observed(progress.request, progress.stage, degree, launch.steps, seconds, others)

    def degrees(self, progress: Progress) -> Sequence[int]:
        request = progress.request
        key = model, max_degree = request.model, self.costs.max_degree(request, progress.stage, self.gpus)
        degrees = self._degrees.get(key)
        if degrees is None:
            # The step on one GPU is in every profile; on more GPUs only where it was measured.
            measured = {1, *self.costs.backend.group_sizes(model), *self.costs.speedup}
            degrees = self._degrees[key] = tuple(sorted(degree for degree in measured if degree <= max_degree))
        return degrees

    def cost(
        self, progress: Progress, degree: int, stage: Stage | None = None, others: Sequence[Progress] = ()
    ) -> StageCost:
        # Batches and other stages are asked for rarely. Of the present stage, policies ask at every decision.
        if others or (stage is not None and stage is not progress.stage):
            return self._estimate(progress.request, stage or progress.stage, degree, requests_of(others))
        known = self._known.get(progress)
        cost = None if known is None else known.get(degree)
        if cost is None:
            cost = self._estimate(progress.request, progress.stage, degree)
            # Inexact estimates change with each observation, so they are asked for anew.
            if self.are_exact and known is not None:
                known[degree] = cost
        return cost

    def remaining_s(self, progress: Progress, degree: int) -> float:
        stage, left = progress.stage, progress.left
        if progress.running:
            left -= self.steps_behind(progress)
        known = self._known.get(progress)
        cost = None if known is None else known.get(degree)
        if cost is None:
            # A policy compares whole requests by one degree; a stage that cannot be that wide runs on as many GPUs as
            # it may.
            is_allowed = degree <= self.degrees(progress)[-1]
            cost = self.cost(progress, degree if is_allowed else self.costs.max_degree(progress.request, stage, degree))
        seconds = cost.seconds(stage.steps - left, left, stage.steps)
        if progress.index + 1 < len(progress.stages):
            for later in progress.stages[progress.index + 1 :]:
                cost = self._estimate(progress.request, later, self.costs.max_degree(progress.request, later, degree))
                seconds += cost.seconds(0, later.steps, later.steps)
        return seconds


@dataclass(frozen=True, slots=True)
class View:
    """The executor as its group policy sees it (mezzotint.sim.protocols.StageView): nothing in it can be set."""

    waiting: Mapping[Progress, None]
    claimed: Sequence[int]
    estimates_are_exact: bool
    idle: Callable[[], list[int]]
    degrees: Callable[[Progress], Sequence[int]]
    cost: Callable[..., StageCost]
    service_gpus: Callable[[Progress, int], int]
    remaining_s: Callable[[Progress, int], float]
    interrupt: Callable[[Progress], None]
    withdraw: Callable[[Progress], None]
    ask_again: Callable[[], None]
    place: Callable[[Sequence[int], Sequence[str]], None]
    discard: Callable[[Progress, str], None]
    decide_at: Callable[[float], None]
    of_kind: Callable[[Gpu], "View"]
