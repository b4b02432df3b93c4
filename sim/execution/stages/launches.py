"""Launches from the decision to their end, and the order in which those of one instant take their turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

from mezzotint.sim.core.clock import Clock, Entry
from mezzotint.sim.core.progress import Attempt, Progress
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols import NEVER, StageCost, Stand

Turn = tuple[Any, ...]
"""Place of a launch among those of one instant; the least is the first."""

LAST: Turn = (inf,)

NEARLY = 1e-6
"""Part of a step that is above the rounding of instants."""

UNKNOWN = StageCost(0.0, 0.0, 0.0, nan)
"""Cost of a launch that has not begun its first step."""


@dataclass(slots=True, eq=False)
class LaunchState:
    """A launch from the decision to its end.

    Attributes:
        mask: its GPUs and those of its ControlNets, one bit each.
        needed: the GPUs that must be idle for its start, those of a move among them.
        steps: steps that it runs; fewer after an interruption.
        every: steps from one boundary to the next, at which the policy may decide anew.
        stamp: its place among launches whose last steps begin at one instant.
        dispatched_s: instant at which it started, or was queued if it has not.
        earliest_s: instant before which its work cannot begin.
        cost: true cost of its stage; UNKNOWN before its first step, also while its latent moves.
        batch: the other requests of its batch.
        service: the GPUs of its ControlNets, of those that run stages.
        joins: True if requests join and leave its batch (Stage.max_batch), so that it goes on in other launches.
        begin_s: instant at which its work begins, or the move.
        steps_from_s: instant from which its steps are counted, after the text encoding that is part of its stage.
        goes_on: True if it was decided in the turn of its own request, whose last launch ended then.
        ends_s: instant at which it ends, or the move before it; infinity before.
        calls: the clock's calls at instants at which it may end; one at another instant than ``ends_s`` does nothing.
        boundary, boundary_s: steps and instant of its first boundary that was not past when it was last asked for; at
            infinity before it starts.
        attempt: the attempt of which it is a part; unset before its first step.
        done: steps of its stage that were behind before it.
        stand: for how long its decision stands; ``standing_steps`` are its steps then.
        is_cut: True if it ends at its next boundary, since there is a reason to decide anew.
        group: its GPUs; ``moving`` those of the move, while it lasts.
        moves: the requests whose latents move before it, and the seconds of each.
    """

    progress: Progress
    gpus: tuple[int, ...]
    mask: int
    needed: int
    steps: int
    every: int
    batch: tuple[Progress, ...] = ()
    service: tuple[int, ...] = ()
    joins: bool = False
    stamp: int = 0
    dispatched_s: float = 0.0
    earliest_s: float = 0.0
    cost: StageCost = UNKNOWN
    begin_s: float = 0.0
    steps_from_s: float = 0.0
    ends_s: float = inf
    calls: dict[float, Entry] = field(default_factory=dict)
    boundary: int = 0
    boundary_s: float = inf
    group: Worker | None = None
    moving: Worker | None = None
    moves: Sequence[tuple[Progress, float]] = ()
    is_moved: bool = False
    goes_on: bool = False
    attempt: Attempt = field(init=False, repr=False)
    done: int = 0
    stand: Stand = NEVER
    standing_steps: int = 0
    is_cut: bool = False

    def requests(self) -> tuple[Progress, ...]:
        """Return all requests that it runs."""
        return (self.progress, *self.batch)

    def end_s(self, steps: int) -> float:
        """Return the instant at which ``steps`` of its steps end; it runs.

        Counted from the first of the launches that follow each other, each decided in the turn of the one before: so
        the instant does not depend on how many launches they are.
        """
        cost, progress, attempt = self.cost, self.progress, self.attempt
        if self.batch:
            return attempt.counted_s + cost.batch_s(self.requests(), steps)
        count = self.done - attempt.counted_done + steps
        return attempt.counted_s + cost.seconds(attempt.counted_done, count, progress.stage.steps)

    def steps_behind(self, now_s: float) -> int:
        """Return how many of its steps ended by now. The last one ends with it."""
        cost, progress = self.cost, self.progress
        # Before its first step, while it loads, its cost is UNKNOWN
        # (test_remaining_seconds_fall_with_each_step_of_a_request_that_runs).
        if not cost.step_s:
            return 0
        attempt, left, seconds = self.attempt, progress.left, now_s - self.steps_from_s
        if cost.ends:
            behind = cost.steps_in(seconds, attempt.counted_done, progress.stage.steps)
        else:
            behind = seconds / cost.step_s
        offset = attempt.counted_done - self.done
        behind += offset
        # What ended before a delay is behind, though time is counted from the end of the delay.
        if behind < offset:
            behind = offset
        steps = int(behind)
        if NEARLY < behind - steps < 1.0 - NEARLY and steps < left:
            return steps
        # An instant is compared with the end of a step as it is computed for the clock; ``behind`` rounds.
        steps = min(max(0, round(behind)), left)
        if steps and steps > offset and self.end_s(steps) > now_s:
            return steps - 1
        if steps < left and self.end_s(steps + 1) <= now_s:
            return steps + 1
        return steps

    def boundary_at(self, now_s: float) -> bool:
        """Return True if it ends or passes a boundary now, and find the next one that is not past; it runs."""
        if self.boundary_s < now_s:
            every, left = self.every, self.progress.left
            steps = min(self.boundary + every, left)
            ends_s = self.end_s(steps)
            if ends_s < now_s:
                steps = min(-(-self.steps_behind(now_s) // every) * every, left)
                ends_s = self.end_s(steps)
                if ends_s < now_s:
                    steps = min(steps + every, left)
                    ends_s = self.end_s(steps)
            self.boundary, self.boundary_s = steps, ends_s
        return self.boundary_s == now_s

    def delay(self, attempt: Attempt, steps: int, until_s: float) -> None:
        """Begin the step after ``steps`` of its steps at ``until_s``, as the first of ``attempt``."""
        self.attempt = attempt
        attempt.from_s = attempt.until_s = attempt.counted_s = self.steps_from_s = until_s
        if not attempt.counted_done:
            self.steps_from_s += self.cost.first_s
        self._pass_boundary(steps)

    def wait(self, steps: int, seconds: float) -> None:
        """Lengthen the step after ``steps`` of its steps by ``seconds``."""
        attempt, done = self.attempt, self.done + steps
        if done > attempt.counted_done:
            attempt.counted_s = self.steps_from_s = self.end_s(steps)
            attempt.counted_done = done
        attempt.counted_s += seconds
        self.steps_from_s += seconds
        attempt.wait_s += seconds
        self._pass_boundary(steps)

    def _pass_boundary(self, steps: int) -> None:
        """Have an interruption, from now on, end it after the step that begins after ``steps`` at the earliest."""
        self.boundary = min((steps // self.every + 1) * self.every, self.progress.left)
        self.boundary_s = self.end_s(self.boundary)

    def boundary_before(self, steps: int) -> int:
        """Return the steps up to the last boundary before ``steps``."""
        return (steps - 1) // self.every * self.every

    def last_step(self, steps: int) -> tuple[float, float]:
        """Return when the last of ``steps`` began, and when the launch was dispatched before it; it runs.

        It is dispatched at its start, and anew at each boundary. At its first one a delay counts: a load, a move, text
        encoding.
        """
        boundary = self.boundary_before(steps)
        return self.step_begin_s(steps - 1), self.step_begin_s(boundary) if boundary else self.dispatched_s

    def step_begin_s(self, steps: int) -> float:
        """Return the instant at which the step after ``steps`` of them begins."""
        if steps or self.done > self.attempt.counted_done:
            return self.end_s(steps)
        return self.steps_from_s


@dataclass(slots=True, eq=False)
class Past:
    """The order of two launches whose last steps began together: as at the boundary before, and so on; then by stamp.

    Instants are sums of steps, so two launches may be at one boundary together, and an ulp apart at the one before.
    """

    launch: LaunchState
    behind: int
    stamp: int

    def __lt__(self, other: "Past") -> bool:
        own_behind, other_behind = self.launch.boundary_before(self.behind), other.launch.boundary_before(other.behind)
        while own_behind > 0 and other_behind > 0:
            own, others = self.launch.last_step(own_behind), other.launch.last_step(other_behind)
            if own != others:
                return own < others
            own_behind, other_behind = own_behind - self.launch.every, other_behind - other.launch.every
        return self.stamp < other.stamp


@dataclass(slots=True)
class Turns:
    """The order of one instant: which launch at a boundary comes first, and which launch starts first.

    A launch of many steps runs as if the policy decided anew at each of its boundaries. Such a decision would end the
    launch, and queue it again behind what was decided before. So these laws hold:

    1. The launches at a boundary take turns. The one whose last step (or move) began first goes first. Of these the one
       dispatched first: a launch is dispatched when it starts, and anew at each boundary that it passes. Of these the
       one that went first at the boundary before (`Past`), then the one with the lower stamp.
    2. A launch gets the next stamp when it is queued. One that passes a boundary gets the next stamp in its turn: after
       what earlier turns queue, before what later turns, and what comes after all turns, queue.
    3. The turns of an instant are fixed before its first stamp.
    4. Queued launches start in the order of their stamps. One that waited keeps its stamp, so it goes before all that
       pass now.

    An instant at which A ends, B passes a boundary and C ends. Their last steps began at 1, 2 and 3 s::

        COMPLETION  turn of A   A ends, its request waits; the policy queues X      X: stamp 7
                    turn of B   B passes                                            B: stamp 8
                    turn of C   C ends; the policy queues Y                         Y: stamp 9
        INSERTION   answers
        ARRIVAL     a request arrives; the policy queues Z                          Z: stamp 10
        DISPATCH    W, which waited since stamp 4, then X, Y, Z start, each if its GPUs are idle

    Stamps are given only where they may change an order: at an instant at which a launch is queued, or one that waited
    starts, or one that was delayed reaches its first boundary. At all others the turns are those of the last stamps.

    Attributes:
        standing: the launches that run on over boundaries while their decision stands (`Lookahead`).
    """

    clock: Clock
    standing: dict[LaunchState, None] = field(default_factory=dict)
    _taking: LaunchState | None = field(init=False, default=None, repr=False)
    """The launch whose turn it is."""
    _stamps: int = field(init=False, default=0, repr=False)
    _at_s: float = field(init=False, default=-inf, repr=False)
    """The instant of what follows."""
    _turns: dict[LaunchState, Turn] = field(init=False, default_factory=dict, repr=False)
    """The turns that were asked for."""
    _unstamped: list[LaunchState] | None = field(init=False, default=None, repr=False)
    """The launches that pass a boundary and have no new stamp yet, the last turn first; None before the first stamp."""

    def queue(self, launch: LaunchState) -> None:
        """Stamp ``launch``, which is queued now."""
        if self.standing:
            self.pass_boundaries()
        self._turns.pop(launch, None)  # that of its move
        launch.dispatched_s = self.clock._now
        self._stamp(launch)

    def _stamp(self, launch: LaunchState) -> None:
        launch.stamp = self._stamps
        self._stamps += 1

    def pass_boundaries(self, _: object = None) -> None:
        """Stamp the launches at a boundary of this instant whose turn comes before the present one."""
        self._begin_instant()
        unstamped = self._unstamped
        if unstamped is None:
            unstamped = self._unstamped = sorted(self._at_boundary(), key=self.of, reverse=True)
        present = self.present if unstamped else LAST
        while unstamped and self._turns[unstamped[-1]] < present:
            self._stamp(unstamped.pop())

    def _begin_instant(self) -> None:
        if self._at_s != self.clock._now:
            self._at_s, self._unstamped = self.clock._now, None
            self._turns.clear()

    @property
    def present(self) -> Turn:
        """The turn that is being taken; LAST between two instants."""
        return LAST if self._taking is None else self.of(self._taking)

    def take(self, launch: LaunchState) -> None:
        """Begin the turn of ``launch``."""
        self._taking = launch
        if launch in self.standing:  # its turn is that of the boundary, and after its end it stands no longer
            self.of(launch)

    def end(self) -> None:
        """End the turns of this instant: what happens in it later comes after all boundaries."""
        self._taking = None
        if self._at_s == self.clock._now and self._unstamped:
            self.pass_boundaries()

    def _at_boundary(self) -> list[LaunchState]:
        """Return the standing launches that pass a boundary at this instant, or end at it."""
        now_s = self.clock._now
        return [launch for launch in self.standing if launch.boundary_s <= now_s and launch.boundary_at(now_s)]

    def passing_later(self) -> list[LaunchState]:
        """Return the launches whose turn to pass a boundary at this instant is yet to come."""
        now_s = self.clock._now
        return [each for each in self._at_boundary() if each.ends_s > now_s and self.of(each) > self.present]

    def of(self, launch: LaunchState) -> Turn:
        """Return the turn of ``launch``, which ends or passes a boundary at this instant."""
        self._begin_instant()
        turn = self._turns.get(launch)
        if turn is None:
            turn = self._turns[launch] = self._turn(launch)
        return turn

    def _turn(self, launch: LaunchState) -> Turn:
        # A move, and a stage without steps, count as one step.
        if not launch.cost.step_s:
            return launch.begin_s, launch.dispatched_s, Past(launch, 1, launch.stamp)
        behind = launch.boundary if launch.boundary_s == self._at_s else launch.steps
        begin_s, dispatched_s = launch.last_step(behind)
        if launch not in self.standing:  # it passes no boundaries
            return begin_s, launch.dispatched_s, Past(launch, 1, launch.stamp)
        return begin_s, dispatched_s, Past(launch, behind, launch.stamp)
