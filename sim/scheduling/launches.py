"""Launches from the decision to their end, and the order in which those of one instant take their turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from mezzotint.sim.core.clock import Clock, Entry
from mezzotint.sim.core.progress import Attempt, Progress
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols import StageCost

Turn = tuple[float, float, int]
"""Place of a launch among those of one instant; the least is the first."""

LAST: Turn = inf, 0.0, 0


@dataclass(slots=True, eq=False)
class Running:
    """A launch from the decision to its end.

    Attributes:
        mask: its GPUs, one bit each.
        needed: the GPUs that must be idle for its start, those of a move among them.
        steps: steps that it runs; fewer after an interruption.
        every: steps from one boundary to the next.
        stamp: its place among launches whose last steps begin at one instant.
        queued_s: instant at which it was queued.
        dispatched_s: instant at which it started, or was queued if it has not.
        earliest_s: instant before which its work cannot begin.
        cost: true cost of its stage; None before its first step, also while its latent moves.
        batch: the other requests of its batch.
        begin_s: instant at which its work begins, or the move.
        steps_from_s: instant from which its steps are counted, after the text encoding that is part of its stage.
        goes_on: True if it was decided in the turn of its own request, whose last launch ended then.
        due: the clock's call at the end of its steps, or of the move; None before.
        attempt: the attempt of which it is a part; None before its first step.
        group: its GPUs; ``moving`` those of the move, while it lasts.
        moves: the requests whose latents move before it, and the seconds of each.
    """

    progress: Progress
    gpus: tuple[int, ...]
    mask: int
    needed: int
    steps: int
    every: int
    yields: bool
    batch: tuple[Progress, ...] = ()
    stamp: int = 0
    queued_s: float = 0.0
    dispatched_s: float = 0.0
    earliest_s: float = 0.0
    cost: StageCost | None = None
    begin_s: float = 0.0
    steps_from_s: float = 0.0
    due: Entry | None = None
    group: Worker | None = None
    moving: Worker | None = None
    moves: Sequence[tuple[Progress, float]] = ()
    is_moved: bool = False
    goes_on: bool = False
    attempt: Attempt | None = None

    def requests(self) -> tuple[Progress, ...]:
        """Return all requests that it runs."""
        return (self.progress, *self.batch)

    def end_s(self, steps: int) -> float:
        """Return the instant at which ``steps`` of its steps end; it runs.

        Counted from the first of the launches that follow each other, each decided in the turn of the one before: so
        the instant does not depend on how many launches they are.
        """
        cost, progress, attempt = self.cost, self.progress, self.attempt
        assert cost is not None
        assert attempt is not None
        if self.batch:
            return attempt.counted_s + cost.batch_s(self.requests(), steps)
        count = progress.done - attempt.counted_done + steps
        return attempt.counted_s + cost.seconds(attempt.counted_done, count, progress.stage.steps)

    def steps_behind(self, now_s: float) -> int:
        """Return how many of its steps ended by now; it runs. The last one ends with it."""
        cost, progress, attempt = self.cost, self.progress, self.attempt
        assert cost is not None
        assert attempt is not None
        if not cost.step_s:
            return 0
        behind = cost.steps_in(now_s - self.steps_from_s, attempt.counted_done, progress.stage.steps)
        steps = min(max(0, round(behind) - progress.done + attempt.counted_done), self.steps)
        # ``behind`` rounds; an instant is compared with the end of a step as it is computed for the clock.
        if steps and self.end_s(steps) > now_s:
            return steps - 1
        if steps < self.steps and self.end_s(steps + 1) <= now_s:
            return steps + 1
        return steps

    def last_step_s(self, now_s: float) -> float:
        """Return the seconds of its step that ends now; it runs, and its steps are unequal."""
        assert self.cost is not None
        last = max(self.steps_behind(now_s), 1) - 1
        return self.cost.steps_s(self.progress.done + last, 1, self.progress.stage.steps)


@dataclass(slots=True)
class Turns:
    """The order of one instant: which launch at a boundary comes first, and which launch starts first.

    A launch of many steps runs as if the policy decided anew at each of its boundaries. Such a decision would end the
    launch, and queue it again behind what was decided before. So these laws hold:

    1. The launches at a boundary take turns. The one whose last step (or move) began first goes first; of these the one
       dispatched the most steps ago; of these the one with the lowest stamp. A launch is dispatched when it starts, and
       anew at each boundary.
    2. A launch gets the next stamp when it is queued. One that passes a boundary gets the next stamp in its turn: after
       what earlier turns queue, before what later turns, and what comes after all turns, queue.
    3. The turns of an instant are fixed at its first stamp.
    4. Queued launches start in the order of their stamps. One that waited keeps its stamp, so it goes before all that
       pass now.

    Stamps are given only where they may change an order: at an instant at which a launch is queued, or one that waited
    starts, or one that was delayed reaches its first boundary. At all others the turns are those of the last stamps.

    Attributes:
        launches: the launches that were decided and have not ended.
        present: the turn that is being taken; LAST between two instants.
    """

    clock: Clock
    launches: dict[Progress, Running]
    present: Turn = LAST
    _stamps: int = field(init=False, default=0, repr=False)
    _fixed_s: float = field(init=False, default=-inf, repr=False)
    """The instant whose turns are fixed."""
    _fixed: dict[Running, Turn] = field(init=False, default_factory=dict, repr=False)
    """Its turns, of the launches that were at a boundary at its first stamp."""
    _unstamped: list[Running] = field(init=False, default_factory=list, repr=False)
    """Those of them without a new stamp, the last turn first."""

    def queue(self, launch: Running) -> None:
        """Stamp ``launch``, which is queued now."""
        self.pass_boundaries()
        launch.queued_s = launch.dispatched_s = self.clock._now
        self._stamp(launch)

    def _stamp(self, launch: Running) -> None:
        launch.stamp = self._stamps
        self._stamps += 1

    def pass_boundaries(self, _: object = None) -> None:
        """Stamp the launches at a boundary of this instant whose turn comes before the present one."""
        now_s, present = self.clock._now, self.present
        if self._fixed_s != now_s:
            fixed = {launch: self.of(launch) for launch in self._at_boundary()}
            self._fixed_s, self._fixed = now_s, fixed
            self._unstamped = sorted(fixed, key=fixed.__getitem__, reverse=True)
        unstamped = self._unstamped
        while unstamped and self._fixed[unstamped[-1]] < present:
            self._stamp(unstamped.pop())

    def end(self) -> None:
        """End the turns of this instant: what happens in it later comes after all boundaries."""
        self.present = LAST
        if self._fixed_s == self.clock._now:
            self.pass_boundaries()

    def _at_boundary(self) -> list[Running]:
        """Return the running launches that end or pass a boundary at this instant."""
        now_s, found = self.clock._now, []
        for launch in self.launches.values():
            due = launch.due
            if launch.cost is not None and due is not None:
                behind = launch.steps_behind(now_s)
                # A launch begins at no boundary of its own.
                is_passing = behind and not behind % launch.every and launch.end_s(behind) == now_s
                if is_passing or due[0] == now_s:
                    found.append(launch)
        return found

    def passing_later(self) -> list[Running]:
        """Return the launches whose turn to pass a boundary at this instant is yet to come."""
        now_s = self.clock._now
        return [
            launch
            for launch in self._at_boundary()
            if launch.due is not None and launch.due[0] > now_s and self.of(launch) > self.present
        ]

    def of(self, launch: Running) -> Turn:
        """Return the turn of ``launch``, which ends or passes a boundary at this instant."""
        now_s, cost = self.clock._now, launch.cost
        if self._fixed_s == now_s and launch in self._fixed:
            return self._fixed[launch]
        if cost is None or not cost.step_s:
            # A move, and a stage without steps, count as one step.
            begin_s, behind = launch.begin_s, 1
        else:
            begin_s = now_s - (launch.last_step_s(now_s) if cost.ends else cost.step_s)
            behind = max(1, launch.steps_behind(now_s))
        if behind > launch.every:
            return begin_s, float(-((behind - 1) % launch.every + 1)), launch.stamp
        # At its first boundary, with all that delayed its work: a load, a move, text encoding. Rounded, since instants
        # are sums of steps.
        steps_ago = (now_s - launch.dispatched_s) / (now_s - begin_s) if now_s > begin_s else 0.0
        return begin_s, -round(steps_ago, 6), launch.stamp
