"""Rounds of fixed length: at each tick the GPUs are planned anew, within a round nothing changes (GF-DiT's port)."""

from dataclasses import dataclass, field
from math import ceil, floor, inf

from mezzotint.settings.ranges import Count, SomeSeconds
from mezzotint.sim.core.clock import DISPATCH, Clock
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView
from mezzotint.sim.protocols.execution import TOLERANCE
from mezzotint.sim.scheduling.group_policies.urgency import Options, Queue, take, widen

DEGREE_PENALTY = 1e-6
"""What a GPU of a request's group subtracts from the worth of running it: fewer GPUs are preferred."""


@dataclass(slots=True)
class Rounds(GroupPolicy):
    """Plan all requests at each tick of ``round_s``; a request that survives a deferral of one round may wait.

    At a tick, a request may run on the fewest GPUs that keep its deadline, or be deferred. To defer it is as good if it
    can still be in time on the fastest degree after the round. A knapsack over the GPUs chooses so that most survive.
    GPUs that are left go by deadline to the others: the fewest that keep the deadline, else one; the largest degree if
    the request is late anyway. With ``scale_up`` GPUs still left widen the most urgent request that gains, a degree at
    a time. A request that runs on in its group stops at the last boundary before the next tick.

    Args:
        round_s: seconds of a round; the first tick is the first arrival.
        scale_up: widen groups while GPUs are idle.
        degrees: parallel degrees; empty takes all that the profile has.

    Source: GF-DiT's port of TetriServe (arXiv 2606.13501). The paper's own algorithm differs (arXiv 2510.01565, 4.2).
    """

    round_s: SomeSeconds = 2.0
    scale_up: bool = True
    degrees: list[Count] = field(default_factory=list)
    follows_gpus: bool = field(init=False, default=True, repr=False)
    _view: StageView = field(init=False, repr=False)
    _clock: Clock = field(init=False, repr=False)
    _waiting: Queue = field(init=False, default_factory=Queue, repr=False)
    """The requests at a boundary."""
    _options: dict[Progress, Options] = field(init=False, default_factory=dict, repr=False)
    """By waiting request, its options; they do not change while it waits."""
    _in_time: dict[int, Progress] = field(init=False, default_factory=dict, repr=False)
    """The waiting requests that may still be in time, by submission index."""
    _in_system: int = field(init=False, default=0, repr=False)
    _first_s: float = field(init=False, default=-inf, repr=False)
    _tick_s: float = field(init=False, default=-inf, repr=False)
    _due_s: float = field(init=False, default=-inf, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view, self._clock = view, run.clock

    def arrived(self, progress: Progress, now_s: float) -> None:
        self._in_system += 1
        self._wait(progress)
        if self._first_s == -inf:
            self._first_s = now_s
        if self._tick_s < now_s:
            self._schedule(ceil((now_s - self._first_s) / self.round_s))

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        if progress.left:
            self._wait(progress)

    def ended(self, progress: Progress, now_s: float) -> None:
        self._in_system -= 1

    def _schedule(self, rounds: int) -> None:
        # From the first tick, not from the last: sums of rounds would drift away from the grid
        # (test_every_reference_table_is_equal_request_by_request).
        self._tick_s = self._first_s + rounds * self.round_s
        # First the tick, which opens the decision: calls of one instant and order run as scheduled
        # (test_work_begins_only_at_a_tick_and_ends_by_the_next_one).
        self._clock.at(self._tick_s, DISPATCH, self._tick, rounds)
        self._view.decide_at(self._tick_s)

    def _tick(self, rounds: int) -> None:
        self._due_s = self._tick_s
        if self._in_system:
            self._schedule(rounds + 1)

    def decide(self, now_s: float) -> list[Launch]:
        if now_s != self._due_s:
            return []
        self._due_s = -inf
        idle = self._view.idle()
        chosen = self._fill(self._knapsack(len(idle), now_s), len(idle), now_s)
        launches = []
        for progress, degree in chosen.items():
            cost, steps = self._view.cost(progress, degree), progress.left
            if cost.step_s:
                within = cost.steps_in(self._tick_s - now_s, progress.done, progress.stage.steps)
                steps = floor(within + TOLERANCE)
            launches.append(Launch(progress, take(degree, idle, progress.last_gpus), max(1, min(progress.left, steps))))
            self._waiting.leave(progress)
            del self._options[progress]
            self._in_time.pop(progress.submission_index, None)
        return launches

    def _wait(self, progress: Progress) -> None:
        self._waiting.add(progress)
        self._options[progress] = self._remaining(progress)
        self._in_time[progress.submission_index] = progress

    def _remaining(self, progress: Progress) -> Options:
        """Return the allowed degrees of ``progress``, ascending, each with the estimated seconds left on it."""
        degrees = self._view.degrees(progress)
        allowed = [degree for degree in degrees if not self.degrees or degree in self.degrees or degree == 1]
        return [(degree, self._view.remaining_s(progress, degree)) for degree in allowed]

    def _degree_in_time(self, progress: Progress, now_s: float) -> int:
        """Return the smallest degree that keeps the deadline of ``progress``; 0 if none does."""
        deadline_s = progress.request.deadline_s
        for degree, seconds in self._options[progress]:
            if now_s + seconds <= deadline_s:
                return degree
        return 0

    def _knapsack(self, gpus: int, now_s: float) -> dict[Progress, int]:
        """Choose the requests that must run in this round, each with its smallest degree."""
        worth: list[float] = [0.0, *(-inf for _ in range(gpus))]
        chosen: list[tuple[tuple[Progress, int], ...]] = [() for _ in worth]
        for index in sorted(self._in_time):
            progress = self._in_time[index]
            if not self._view.estimates_are_exact:
                self._options[progress] = self._remaining(progress)
            best_s = min(seconds for _, seconds in self._options[progress])
            if now_s + self.round_s + best_s <= progress.request.deadline_s:
                # Added to every choice, so that no choice depends on it.
                worth = [value + 1.0 for value in worth]  # deferred: always worth more than running it on any GPU
                continue
            degree = self._degree_in_time(progress, now_s)
            if not degree and self._view.estimates_are_exact:
                del self._in_time[index]  # and never again
            gain = 1.0 - DEGREE_PENALTY * degree
            if degree:
                # Downwards, so that a request is counted once (test_most_requests_survive_rather_than_the_first).
                for used in range(gpus, degree - 1, -1):
                    # >=: of ties the later request (test_every_reference_table_is_equal_request_by_request).
                    if worth[used - degree] + gain >= worth[used]:
                        worth[used] = worth[used - degree] + gain
                        chosen[used] = (*chosen[used - degree], (progress, degree))
        # The first maximum, which uses the fewest GPUs.
        return dict(chosen[worth.index(max(worth))])

    def _fill(self, chosen: dict[Progress, int], gpus: int, now_s: float) -> dict[Progress, int]:
        """Return the degrees of all requests that run in this round, by deadline."""
        free = gpus - sum(chosen.values())
        degrees: dict[Progress, int] = {}
        to_come = len(chosen)
        for _, progress in self._waiting:
            if not (free or to_come):
                break
            degree = chosen.get(progress, 0)
            if degree:
                to_come -= 1
            elif free:
                wanted = self._degree_in_time(progress, now_s) or self._options[progress][-1][0]
                degree = wanted if wanted <= free else 1
                free -= degree
            if degree:
                degrees[progress] = degree
        if self.scale_up:
            widen(
                degrees,
                free,
                lambda progress: [degree for degree, _ in self._options[progress]],
                lambda progress, degree: self._view.cost(progress, degree).step_s,
            )
        return degrees
