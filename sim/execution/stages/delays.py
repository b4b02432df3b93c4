"""Delays of steps: LoRAs that are merged before a step, and ControlNet servers that answer late."""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from mezzotint.backends.base import Cost
from mezzotint.sim.core.clock import COMPLETION
from mezzotint.sim.core.progress import Attempt, Progress
from mezzotint.sim.execution.stages.addons import StageAddons
from mezzotint.sim.execution.stages.launches import LaunchState
from mezzotint.sim.protocols import Run

Due = tuple[LaunchState, int, float]
"""A launch, the steps of it that are behind, and the instant at which it would begin the next one."""


@dataclass(slots=True)
class Delays:
    """Delay the steps of launches, each as it begins. The policy decides nothing anew; the launch goes on later.

    LoRAs that arrived are merged at a step boundary. The GPUs are busy with that, so the attempt before is recorded. A
    step that waits for ControlNet servers is a longer step of its attempt.

    Args:
        attempts: each request in the system with its present attempt.
        close: records the attempt of a request.
        close_at: records the attempts at a boundary on the GPUs of a mask, without that of one request.
        end_at: has a launch end after so many of its steps.
        run_live: runs the step after so many of a launch once it begins; None if its length is known before.
    """

    run: Run
    addons: StageAddons
    attempts: dict[Progress, Attempt | None]
    close: Callable[[Progress], None]
    close_at: Callable[[int, Progress], None]
    end_at: Callable[[LaunchState, int, float], None]
    run_live: Callable[[LaunchState, int], None] | None = None

    def prepare_step(self, launch: LaunchState, steps: int) -> None:
        """Have the step after ``steps`` of ``launch`` wait for its LoRAs, then for ControlNet servers, if it must."""
        if launch.progress.request.loras_pending:
            self._at(self._merge, (launch, steps, launch.end_s(steps) if steps else launch.begin_s))
        else:
            self._prepare_call(launch, steps)

    def step_ran(self, launch: LaunchState, steps: int) -> None:
        """Prepare what follows the step after ``steps`` of ``launch``, which ran live."""
        if self.addons.calls_servers(launch.progress):
            self._call_servers((launch, steps, launch.step_begin_s(steps)))
        else:
            self.prepare_step(launch, steps + 1)

    def _prepare_call(self, launch: LaunchState, steps: int) -> None:
        if self.run_live is not None:
            # What it asks of its servers is measured as it runs.
            self.run_live(launch, steps)
        elif self.addons.calls_servers(launch.progress):
            self._at(self._call_servers, (launch, steps, launch.step_begin_s(steps)))
        elif launch.progress.request.loras_pending:
            self.prepare_step(launch, steps + 1)

    def _at(self, call: Callable[[Due], None], due: Due) -> None:
        if due[2] > self.run.clock._now:
            self.run.clock.at(due[2], COMPLETION, call, due)
        else:
            call(due)

    def _merge(self, due: Due) -> None:
        """Merge LoRAs that arrived, before the next step of a launch; without them, ask again after that step."""
        launch, steps, at_s = due
        # It was lost, or ends here: then its next launch merges them.
        if launch.ends_s == inf or launch.steps <= steps:
            return
        done = launch.done + steps
        assert launch.group is not None
        # A whole request encodes its text before its first step, and has no boundary between: what arrives meanwhile is
        # merged too (test_loras_that_arrive_during_text_encoding_are_merged_before_the_first_step).
        first_step_s = at_s if done else at_s + launch.cost.first_s
        cost = self.addons.boundary(launch.progress, launch.group, done, first_step_s)
        if cost.seconds:
            self._delay(launch, steps, at_s, cost)
            # On a shared link the wait may have grown meanwhile.
            self.prepare_step(launch, steps)
        else:
            self._prepare_call(launch, steps)

    def _call_servers(self, due: Due) -> None:
        """Call ControlNet servers for the next step of a launch, which lasts until they have answered."""
        launch, steps, at_s = due
        if launch.ends_s == inf or launch.steps <= steps:
            return
        assert launch.group is not None
        wait_s = self.addons.wait_s(launch.progress.request, launch.group, at_s)
        if wait_s:
            launch.wait(steps, wait_s)
            self.end_at(launch, launch.steps, launch.end_s(launch.steps))
        self.prepare_step(launch, steps + 1)

    def _delay(self, launch: LaunchState, steps: int, from_s: float, cost: Cost) -> None:
        """Keep the GPUs of ``launch`` busy with something else from ``from_s`` on, before its next step."""
        progress, attempt, group, done = launch.progress, launch.attempt, launch.group, launch.done + steps
        assert group is not None
        until_s = from_s + cost.seconds
        if done > attempt.done:
            attempt.until_s, attempt.steps = from_s, done - attempt.done
            self.close(progress)
            attempt = Attempt(group, progress.index, done, until_s, attempt.cost, attempt.estimate)
            self.attempts[progress] = attempt
        self.close_at(launch.mask, progress)
        request, record = progress.request, self.run.cluster.record_busy
        request.energy_j += record(group, from_s, until_s, "boundary", cost.joules, 1, request.row, request.model or "")
        launch.begin_s += cost.seconds
        launch.delay(attempt, steps, until_s)
        self.end_at(launch, launch.steps, launch.end_s(launch.steps))
