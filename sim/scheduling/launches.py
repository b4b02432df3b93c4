"""Launches from the decision to their end, and the order in which those of one instant take their turns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter

from mezzotint.sim.core.clock import Clock, Entry
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols import StageCost
from mezzotint.sim.protocols.execution import TOLERANCE

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
        number: its place among launches whose last steps begin at one instant.
        number_s: instant at which it got its number.
        numbered_s: instant at which it got another one.
        former_number, former_s: number and ``number_s`` before ``numbered_s``, which count at that instant.
        queued_s: instant at which it was queued.
        earliest_s: instant before which its work cannot begin.
        cost: true cost of its stage; None before its first step, also while its latent moves.
        batch: the other requests of its batch.
        begin_s: instant at which its work begins, or the move.
        steps_from_s: instant of its first step, after the text encoding that is part of its stage.
        due: the clock's call at the end of its steps, or of the move; None before.
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
    number: int = 0
    number_s: float = 0.0
    numbered_s: float = -1.0
    former_number: int = 0
    former_s: float = 0.0
    queued_s: float = 0.0
    earliest_s: float = 0.0
    cost: StageCost | None = None
    begin_s: float = 0.0
    steps_from_s: float = 0.0
    due: Entry | None = None
    group: Worker | None = None
    moving: Worker | None = None
    moves: Sequence[tuple[Progress, float]] = ()
    is_moved: bool = False

    def requests(self) -> tuple[Progress, ...]:
        """Return all requests that it runs."""
        return (self.progress, *self.batch)

    def end_s(self, cost: StageCost, steps: int) -> float:
        """Return the instant at which ``steps`` steps of ``cost`` end."""
        progress = self.progress
        if self.batch:
            return self.begin_s + cost.batch_s(self.requests(), steps)
        return self.begin_s + cost.seconds(progress.done, steps, progress.stage.steps)

    def steps_behind(self, now_s: float) -> float:
        """Return the steps up to now; it runs."""
        assert self.cost is not None
        step_s = self.cost.step_s
        if self.cost.ends:
            progress = self.progress
            return self.cost.steps_in(now_s - self.steps_from_s, progress.done, progress.stage.steps)
        return (now_s - self.steps_from_s) / step_s if step_s else self.steps

    def last_step_s(self, now_s: float) -> float:
        """Return the seconds of its step that ends now; it runs, and its steps are unequal."""
        assert self.cost is not None
        last = min(max(round(self.steps_behind(now_s)), 1), self.steps) - 1
        return self.cost.one_step_s(self.progress.done + last, self.progress.stage.steps)


@dataclass(slots=True)
class Turns:
    """The order in which launches end, or pass a boundary, at one instant.

    A launch of several steps runs as if the policy decided at each of its boundaries. Such a decision would end it, and
    start it anew behind those that were decided before, so each launch has a number, and gets a new one there.

    Attributes:
        launches: the launches that were decided and have not ended.
        present: the turn that is being taken; LAST between two instants.
    """

    clock: Clock
    launches: dict[Progress, Running]
    present: Turn = LAST
    _numbers: int = field(init=False, default=0, repr=False)

    def queue(self, launch: Running) -> None:
        """Number ``launch``, which is queued now, after what was decided before and before what will be."""
        launch.number, launch.queued_s = self._numbers, self.clock._now
        launch.number_s = launch.queued_s
        self._numbers += 1

    def _passing(self) -> list[Running]:
        """Return the launches that pass a boundary at this instant without a decision.

        A decision at every step would end and start them anew, in the order of the instant.
        """
        now_s, passing = self.clock._now, []
        for each in self.launches.values():
            # What is due now ends, or has ended: it passes nothing.
            if each.cost is not None and each.due is not None and each.due[0] > now_s:
                behind = each.steps_behind(now_s)
                boundary = round(behind / each.every) * each.every
                # A launch begins at no boundary of its own, and instants are sums of steps, which round.
                if boundary > 0 and abs(behind - boundary) <= TOLERANCE:
                    passing.append(each)
        return passing

    def passing_later(self) -> list[Running]:
        """Return the launches whose turn to pass a boundary at this instant is yet to come, in their order."""
        # Strictly later: the launch whose turn it is has its own place.
        later = [each for each in self._passing() if self.of(each) > self.present]
        return sorted(later, key=self.of)

    def as_queued(self, now_s: float) -> list[Running]:
        """Return the launches queued at this instant, and those passing a boundary as if they were, in their order."""
        places = [
            ((each.begin_s if each.due else now_s, each.number), each) for each in self.launches.values() if each.queued_s == now_s
        ]
        number = 0
        for each in sorted(self._passing(), key=self.of):
            # Passing launches keep their own order, and each goes behind what was decided before it.
            number = max(number, each.number)
            places.append(((now_s, number), each))
        return [each for _, each in sorted(places, key=itemgetter(0))]

    def number_after(self, launches: Iterable[Running]) -> None:
        """Number ``launches`` anew, in this order, after all others."""
        now_s = self.clock._now
        for each in launches:
            # All turns of an instant are taken by the numbers from before it, however often it gets new ones.
            if each.numbered_s != now_s:
                each.former_number, each.former_s, each.numbered_s = each.number, each.number_s, now_s
            each.number, each.number_s = self._numbers, now_s
            self._numbers += 1

    def of(self, launch: Running) -> Turn:
        """Return the place of ``launch`` among those that end, or pass a boundary, at this instant.

        The begin of its last step counts, then when its number was given, as a decision at every boundary gives it.
        """
        now_s, cost, number, number_s = self.clock._now, launch.cost, launch.number, launch.number_s
        # A number given at this instant is for the next boundary.
        if launch.numbered_s == now_s:
            number, number_s = launch.former_number, launch.former_s
        if cost is None:  # it moves, or has not started
            begin_s = launch.begin_s or launch.queued_s
            step_s = now_s - begin_s
        else:
            if cost.ends:
                # With unequal steps policies launch single steps, so its number is one step old.
                return now_s - launch.last_step_s(now_s), -1.0, number
            step_s = cost.step_s
            begin_s = now_s - step_s
        # It took no time: it was numbered at this very instant.
        if not step_s:
            return begin_s, 0.0, number
        if cost is not None and launch.every == 1 and launch.begin_s <= number_s:
            return begin_s, -1.0, number  # for speed: no load and no move delayed it
        # In its own steps: of two launches whose last steps began together, the one decided longer ago goes first.
        # Rounded, since instants are sums of steps.
        steps_ago = round((now_s - number_s) / step_s, 6)
        if steps_ago > launch.every and cost is not None:
            behind = round(launch.steps_behind(now_s))
            if behind > launch.every:
                # A decision at every boundary would have numbered it at the last one
                # (test_tie_falls_as_with_a_decision_at_every_boundary).
                steps_ago = min(steps_ago, (behind - 1) % launch.every + 1)
        return begin_s, -steps_ago, number
