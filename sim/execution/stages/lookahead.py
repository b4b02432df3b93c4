"""Lookahead: many steps of a request run as one launch while the decision on it stands.

The rule of a group policy holds at every boundary. A policy that can tell when it would decide the same again says so
(``GroupPolicy.stands``), and the launch runs on up to the first boundary that may bring another decision. Once there is
a reason to decide anew, it ends at its next boundary, and runs on again if the reason goes before that. The results are
those of a decision at every boundary: a policy whose decisions never stand gives the same run
(test_lookahead_runs_as_a_decision_at_every_step).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from mezzotint.sim.core.clock import Clock
from mezzotint.sim.execution.stages.launches import LaunchState
from mezzotint.sim.protocols import GroupPolicy, Rank, Stand

OVER = Stand(idle=-1)
"""Of a decision that stands no longer: there are always more idle GPUs."""


@dataclass(slots=True)
class Lookahead:
    """The launches whose decisions stand.

    Args:
        claimed: launches that hold each GPU.
        end_at: has a launch that starts or runs end after so many of its steps.
        end_next: has it end at its next boundary.
        standing: the launches that would be decided anew at boundaries before their end.
    """

    clock: Clock
    policy: GroupPolicy
    claimed: list[int]
    end_at: Callable[[LaunchState, int, float], None]
    end_next: Callable[[LaunchState], None]
    standing: dict[LaunchState, None]
    _state: tuple[Rank, int] = field(init=False, default=((), 0), repr=False)
    """Rank of the first request that waits and number of idle GPUs, at the last review; one follows every start."""

    def start(self, launch: LaunchState) -> None:
        """Run ``launch``, which starts, for as long as its decision stands."""
        stand = self.policy.stands(launch.progress, launch.gpus, launch.begin_s)
        # Else it was decided for a request that has lost its latent since, and ends where it was decided to.
        ends_at_boundary = launch.steps == min(launch.every, launch.progress.left)
        if stand.steps > launch.steps and ends_at_boundary:
            launch.stand, launch.standing_steps = stand, _steps(launch, stand)
            if launch.standing_steps > launch.steps:
                self.standing[launch] = None
                launch.is_cut = self.policy.first_waiting() < stand.rank or self.claimed.count(0) > stand.idle
                if not launch.is_cut:
                    launch.steps = launch.standing_steps

    def review(self) -> None:
        """After a decision: interrupt the launches that have a reason to be decided anew; let the others run on."""
        if self.standing:
            state = first, idle = self.policy.first_waiting(), self.claimed.count(0)
            if state != self._state:
                self._state = state
                for launch in self.standing:
                    stand = launch.stand
                    is_cut = first < stand.rank or idle > stand.idle
                    if is_cut != launch.is_cut:
                        launch.is_cut = is_cut
                        if is_cut:
                            self.end_next(launch)
                        else:
                            self.end_at(launch, launch.standing_steps, launch.end_s(launch.standing_steps))

    def ask_again(self) -> None:
        """Ask anew how long each decision stands, and interrupt the launches whose decision may be another one now."""
        for launch in self.standing:
            if launch.stand is OVER:
                continue
            launch.stand = stand = self.policy.stands(launch.progress, launch.gpus, launch.begin_s)
            launch.standing_steps = steps = _steps(launch, stand)
            ends_s = launch.end_s(steps)
            if steps <= launch.every or ends_s <= self.clock._now:
                self._end(launch)
            elif not launch.is_cut and steps != launch.steps:
                self.end_at(launch, steps, ends_s)

    def yield_gpus(self, needed: int) -> None:
        """End the launches on the GPUs ``needed``, one bit each, at their next boundaries, come what may."""
        for launch in self.standing:
            if launch.mask & needed:
                self._end(launch)

    def _end(self, launch: LaunchState) -> None:
        launch.stand, launch.is_cut = OVER, True
        self.end_next(launch)

    def forget(self, launch: LaunchState) -> None:
        """Take note that ``launch`` ended."""
        self.standing.pop(launch, None)


def _steps(launch: LaunchState, stand: Stand) -> int:
    """Return the steps of ``launch`` up to the first boundary at which its decision may not stand."""
    every, left = launch.every, launch.progress.left
    steps = min(stand.steps, left)
    if steps > every and stand.until_s < inf:
        within = launch.steps_behind(stand.until_s)
        boundary = -(-within // every) * every
        if launch.end_s(min(boundary, left)) < stand.until_s:
            boundary += every
        steps = min(steps, boundary)
    return min(left, max(steps, every))
