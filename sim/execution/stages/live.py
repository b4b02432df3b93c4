"""Launches on a live backend: each step runs as it begins, and the seconds that it took are its length."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from mezzotint.backends.base import Work, WorkFailed
from mezzotint.sim.core.clock import DISPATCH, Clock
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import TEXT_ENCODER, VAE, WHOLE, Stage
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import Request
from mezzotint.sim.execution.stages.costs import StageCosts
from mezzotint.sim.execution.stages.delays import Delays
from mezzotint.sim.execution.stages.launches import LaunchState
from mezzotint.sim.protocols import CostOf, Estimates, Run, StageCost

INSTEAD = "add backend=profiled"


@dataclass(slots=True)
class LiveCosts(StageCosts):
    """Measured costs of stages. In a stage that runs, each step to come counts as the last one.

    Its steps are unequal (StageCost.ends), with a second as the mean.
    """

    _works: dict[int, Work] = field(init=False, default_factory=dict, repr=False)
    """By row of the trace, the requests on the device."""
    _took: dict[int, dict[str, StageCost]] = field(init=False, default_factory=dict, repr=False)
    """By row, and component of the stage."""

    def cost(
        self, request: Request, stage: Stage, degree: int, others: Sequence[Request] = (), *, as_usual: bool = False
    ) -> StageCost:
        return self._took[request.row][stage.component]

    def begin(self, progress: Progress, done: int) -> None:
        """Run what is before the first step of the stage of ``progress``, if ``done`` of its steps is none.

        Raises WorkFailed.
        """
        request, stage = progress.request, progress.stage
        if done:
            return
        if not progress.index:
            self._works[request.row], self._took[request.row] = self.run.work(request), {}
        encode_s = 0.0
        if stage.component in (WHOLE, TEXT_ENCODER):
            encode_s = self.backend.begin((self._works[request.row],)).seconds
        ends = tuple(map(float, range(stage.steps + 1))) if stage.denoises else ()
        took = StageCost(encode_s, float(stage.denoises), 0.0, self.gpu.energy_j(1.0), ends)
        self._took[request.row][stage.component] = took

    def run_step(self, progress: Progress, done: int) -> None:
        """Run a step of ``progress`` after ``done`` of its stage, and what is after the last. Raises WorkFailed."""
        request, stage, backend = progress.request, progress.stage, self.backend
        work, took = self._works[request.row], self._took[request.row]
        if stage.denoises:
            work.loras = request.loras_now
            step_s = backend.steps((work,)).seconds
            if self.addons is not None:
                step_s += self.addons.extra_s(work, 1)
            behind = took[stage.component].ends[: done + 1]
            end_s = behind[-1] + step_s
            # Steps to come take some time in any case: else the launch would end before they run.
            ahead = (end_s + (step_s or 1.0) * count for count in range(stage.steps - done))
            took[stage.component] = replace(took[stage.component], step_s=1.0, ends=(*behind, *ahead))
        if done + 1 == stage.steps and stage.component in (WHOLE, VAE):
            took[stage.component] = replace(took[stage.component], last_s=backend.end((work,)).seconds)
            self.run.keep_artifact(request, work)

    def forget(self, row: int) -> None:
        """Free what the request in ``row`` has on the device; it leaves."""
        self._works.pop(row, None)
        self._took.pop(row, None)


@dataclass(slots=True)
class LiveSteps:
    """Runs launches on a live backend a step at a time, so that one that is interrupted has run no step more.

    Args:
        policy: name of the group policy, for messages.
        end_at: has a launch end after so many of its steps.
        delays: what may delay a step; None if nothing does.

    Attributes:
        failed: requests whose last step could not be run, and why not.
    """

    clock: Clock
    costs: LiveCosts
    policy: str
    end_at: Callable[[LaunchState, int, float], None]
    delays: Delays | None
    failed: dict[Progress, str] = field(init=False, default_factory=dict)

    def begin(self, launch: LaunchState) -> None:
        """Run the first step of ``launch``, which starts, unless it may be delayed: then only what is before it.

        Raises ConfigError for several GPUs or a batch.
        """
        launches = f"group_policy: {self.policy} launches {launch.progress!r}"
        if len(launch.gpus) > 1:
            raise ConfigError(
                f"{launches} on {len(launch.gpus)} GPUs, and a live backend runs each on one; give every group one GPU "
                f"(such as group_policy.degree=1), or {INSTEAD}"
            )
        if launch.batch:
            raise ConfigError(
                f"{launches} in a batch of {1 + len(launch.batch)}, and groups of GPUs run no batch live; choose "
                f"max_batch=1 in group_policy and executor.stages, executor=continuous-batching, or {INSTEAD}"
            )
        self._run(launch, self.costs.begin, 0)
        if self.delays is None or not self.delays.addons.may_delay(launch.progress):
            self._run(launch, self.costs.run_step, 0)

    def go_on(self, launch: LaunchState, steps: int) -> None:
        """Run the step after ``steps`` of ``launch`` once it begins."""
        if launch.steps > steps:
            # DISPATCH: after the turns of the instant, in which the end of another launch may interrupt it there.
            self.clock.at(launch.step_begin_s(steps), DISPATCH, self._next, (launch, steps))

    def _next(self, due: tuple[LaunchState, int]) -> None:
        launch, steps = due
        if launch.ends_s == inf or launch.steps <= steps:
            return  # it was lost, or ended here
        self._run(launch, self.costs.run_step, steps)
        progress = launch.progress
        launch.cost = self.costs.cost(progress.request, progress.stage, 1)
        launch.attempt.cost = launch.cost
        self.end_at(launch, launch.steps, launch.end_s(launch.steps))
        if self.delays is None:
            self.go_on(launch, steps + 1)
        else:
            self.delays.step_ran(launch, steps)

    def _run(self, launch: LaunchState, part: Callable[[Progress, int], None], steps: int) -> None:
        """Run ``part`` of ``launch`` after ``steps`` of its steps; if it fails, the launch ends there."""
        if launch.progress in self.failed:
            return
        try:
            part(launch.progress, launch.progress.done + steps)
        except WorkFailed as failure:
            self.failed[launch.progress] = str(failure)
            launch.steps = steps


@dataclass(slots=True)
class NoEstimates(Estimates):
    """Nothing is believed: a live backend knows what a stage takes once it has run.

    Args:
        policy: name of the group policy, for messages.

    Raises ConfigError if the policy asks.
    """

    policy: str

    def bind(self, run: Run, cost: CostOf) -> None:
        """Take nothing."""

    def cost(self, request: Request, stage: Stage, degree: int, others: Sequence[Request] = ()) -> StageCost:
        raise ConfigError(
            f"estimates: found none beside a live backend, and the group policy ({self.policy}) asks what a stage will "
            f"take, which is measured only as it runs; add estimates=learnt or table, or {INSTEAD}"
        )
