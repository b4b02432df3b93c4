"""Estimates: what a scheduler believes of the cost of a stage. The machine takes the true cost (``estimates=``)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import nan

from mezzotint.backends.base import size_text
from mezzotint.settings.ranges import Count, Positive, SomeSeconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import Stage
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import CostOf, Estimates, Run, StageCost


@dataclass(slots=True)
class Scaled(Estimates):
    """The true cost times a factor; a factor of 1 is perfect knowledge.

    Args:
        factor: estimated over true seconds, of every stage and parallel degree.
        by_size: WIDTHxHEIGHT, of a video WIDTHxHEIGHTxFRAMES -> the factor of that size, in place of ``factor``.

    Raises ConfigError for a live backend, which knows the true cost of a stage once it has run.
    """

    factor: Positive = 1.0
    by_size: dict[str, Positive] = field(default_factory=dict)
    are_exact: bool = field(init=False, default=False, repr=False)
    are_fixed: bool = field(init=False, default=True, repr=False)
    _cost: CostOf = field(init=False, repr=False)

    def bind(self, run: Run, cost: CostOf) -> None:
        if run.backend.live:
            raise ConfigError(
                "estimates: found true costs beside a live backend, which measures them only as stages run; choose "
                "estimates=learnt or table, or add backend=profiled"
            )
        self._cost = cost
        self.are_exact = self.factor == 1.0 and not self.by_size

    def cost(self, request: Request, stage: Stage, degree: int, others: Sequence[Request] = ()) -> StageCost:
        true = self._cost(request, stage, degree, others)
        # The shape of the steps is right, their length is not
        # (test_wrong_estimate_is_wrong_by_its_factor_at_every_step).
        return true.times(self.by_size.get(size_of(request), self.factor))


@dataclass(slots=True)
class EstimateTable(Estimates):
    """Seconds of a whole request by its size and parallel degree, from a table.

    The steps share them evenly, also where the profile has ``step_shares``: text encoding and decoding are believed to
    take no time of their own. A request for several images, with other guidance or input images takes as many times the
    seconds of the table as its stage really takes those of a usual request.

    Args:
        seconds: WIDTHxHEIGHT, of a video WIDTHxHEIGHTxFRAMES -> seconds of a request at any parallel degree, or a
            mapping of parallel degrees to seconds.
    """

    seconds: dict[str, Positive | dict[Count, Positive]] | None = None
    are_fixed: bool = field(init=False, default=True, repr=False)
    _seconds: dict[str, float | dict[int, float]] = field(init=False, default_factory=dict, repr=False)
    _cost: CostOf = field(init=False, repr=False)

    def bind(self, run: Run, cost: CostOf) -> None:
        self._cost = cost
        self._seconds = dict(self.seconds or {})
        if not self._seconds:
            raise ConfigError(
                "estimates.seconds: found no size; give seconds by size, such as "
                "estimates.seconds={1024x1024: {1: 4.2, 2: 2.5}}"
            )

    def cost(self, request: Request, stage: Stage, degree: int, others: Sequence[Request] = ()) -> StageCost:
        if others:
            raise ConfigError(
                f"estimates.seconds: a batch of {1 + len(others)} was asked for, and the table has requests alone; "
                "choose estimates=perfect, or max_batch=1 in group_policy and executor.stages"
            )
        entry = self._seconds.get(size_of(request))
        seconds = entry.get(degree) if isinstance(entry, dict) else entry
        if seconds is None:
            lacks = "" if entry is None else f" on {degree} GPUs"
            known = ", ".join(self._seconds if entry is None or not isinstance(entry, dict) else map(str, entry))
            raise ConfigError(
                f"estimates.seconds: found no {size_of(request)}{lacks} (found: {known}); add it, or choose "
                "estimates=perfect"
            )
        if request.sampling is not None and stage.denoises:
            steps = request.steps
            asked = self._cost(request, stage, degree).seconds(0, steps, steps)
            seconds *= asked / self._cost(request, stage, degree, as_usual=True).seconds(0, steps, steps)
        return StageCost(0.0, seconds / request.steps if stage.denoises else 0.0, 0.0, nan)


@dataclass(slots=True)
class Learnt(Estimates):
    """The mean of what was observed so far, by sizes of the batch, images, guidance and parallel degree, and a prior.

    Each component has its own mean of seconds per step, in which the prior counts as ``prior_steps`` steps.

    Args:
        prior_s: seconds of a step that are believed before any was observed.
        prior_steps: observed steps that the prior weighs as much as.
    """

    prior_s: SomeSeconds = 1.0
    prior_steps: Positive = 1.0
    _observed: dict[tuple[object, ...], tuple[float, float]] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, cost: CostOf) -> None:
        run.assume("seconds of a step before any was observed", self.prior_s, "estimates.prior_s")

    def cost(self, request: Request, stage: Stage, degree: int, others: Sequence[Request] = ()) -> StageCost:
        steps, seconds = self._mean(_observation(request, stage, degree, others))
        return StageCost(0.0, seconds / steps, 0.0, nan)

    def observed(
        self, request: Request, stage: Stage, degree: int, steps: int, seconds: float, others: Sequence[Request] = ()
    ) -> None:
        # With the prior, which is counted once: the first sum starts from it.
        key = _observation(request, stage, degree, others)
        before, so_far_s = self._mean(key)
        self._observed[key] = before + steps, so_far_s + seconds

    def _mean(self, key: tuple[object, ...]) -> tuple[float, float]:
        """Return steps and seconds so far of an `_observation`, with those of the prior."""
        return self._observed.get(key, (self.prior_steps, self.prior_steps * self.prior_s))


def _observation(request: Request, stage: Stage, degree: int, others: Sequence[Request]) -> tuple[object, ...]:
    # The mean is one of a step: how many of them the strength leaves is no matter.
    sampling = None if request.sampling is None else request.sampling._replace(strength=None)
    sizes = tuple(sorted(map(size_of, (request, *others))))
    return request.model, sizes, stage.component, degree, sampling


def size_of(request: Request) -> str:
    """Return the size of a request as settings name it."""
    return size_text(request.width, request.height, request.frames)
