"""TetriServe: rounds of fixed length, each packed so that the most requests can still be in time (arXiv 2510.01565)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Literal

import numpy as np

from mezzotint.settings.ranges import Count, SomeSeconds
from mezzotint.sim.core.clock import DISPATCH
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import Plan, whole_stage
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.workload import check_equal_steps
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageCost, StageView
from mezzotint.sim.scheduling.group_policies.urgency import Queue

SURVIVES = 1 << 20
"""Value of a request that can still be in time, in units of a request that runs: survivors count first."""

NONE = -(1 << 60)
"""Sum of values of no choice, below all others."""

LATE = "no parallel degree meets its deadline any more"


@dataclass(slots=True, eq=False)
class Costs:
    """Estimated costs of the present stage of a request.

    Attributes:
        index: index of the stage in the plan.
        by_degree: cost by parallel degree, ascending.
        frontier: (degree, seconds of a step, steps in a round) of the efficient degrees on which a step fits into one.
        fastest_s: seconds of a step on the fastest degree.
        later_s: seconds of the later stages, each on its fastest degree.
        any_cost: cost on the lowest degree; what comes before and after the steps is the same on all.
        is_late: True once no degree meets the deadline.
    """

    index: int
    by_degree: dict[int, StageCost]
    frontier: list[tuple[int, float, int]]
    fastest_s: float
    later_s: float
    any_cost: StageCost
    is_late: bool = False


def frontier(step_s: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the Pareto front of (degree, seconds of a step) in seconds and GPU-seconds, ascending by degree."""
    efficient: list[tuple[int, float]] = []
    for degree, seconds in step_s:
        if efficient and seconds >= efficient[-1][1]:
            continue
        # Faster than all before and no dearer than the last one, which it dominates.
        while efficient and degree * seconds <= efficient[-1][0] * efficient[-1][1]:
            efficient.pop()
        efficient.append((degree, seconds))
    return efficient


def needed_s(rounds: int, steps: int, step_s: float, count: int, round_s: float) -> float:
    """Return the seconds of ``rounds`` and of ``steps`` after them, ``count`` a round; the last step ends the last."""
    full = (steps - 1) // count
    return (rounds + full) * round_s + (steps - full * count) * step_s


def least_gpu_seconds(
    steps: int, budget_s: float, round_s: float, degrees: Sequence[tuple[int, float, int]]
) -> list[tuple[int, int]]:
    """Return the (steps, degree) pairs of the least GPU-seconds that run ``steps`` within ``budget_s``.

    Two degrees are enough for the paper's figure 6: as many rounds as the budget allows on the narrower and the rest on
    the wider, or as few as it asks for on the wider and the rest on the narrower. A round holds whole steps, and the
    last one ends with its last step. The pairs are ascending by degree; the list is empty if the budget is too short
    for the fastest degree.

    Args:
        round_s: seconds of a round.
        degrees: (degree, seconds of a step, steps in a round) of a ``frontier``.
    """
    cheapest: list[tuple[int, int]] = []
    min_cost = inf
    narrower: list[tuple[int, float, int]] = []
    for degree, seconds, count in degrees:
        if needed_s(0, steps, seconds, count, round_s) > budget_s:
            narrower.append((degree, seconds, count))
            continue
        cost = steps * degree * seconds
        if cost < min_cost:
            min_cost, cheapest = cost, [(steps, degree)]
        for other, other_s, other_count in narrower:
            rounds = min((steps - 1) // other_count, int(budget_s / round_s))
            while rounds and needed_s(rounds, steps - rounds * other_count, seconds, count, round_s) > budget_s:
                rounds -= 1
            first = rounds * other_count
            cost = first * other * other_s + (steps - first) * degree * seconds
            if rounds and cost < min_cost:
                min_cost, cheapest = cost, [(first, other), (steps - first, degree)]
            for rounds in range(1, ceil(steps / count)):
                rest = steps - rounds * count
                if needed_s(rounds, rest, other_s, other_count, round_s) <= budget_s:
                    cost = (steps - rest) * degree * seconds + rest * other * other_s
                    if cost < min_cost:
                        min_cost, cheapest = cost, [(rest, other), (steps - rest, degree)]
                    break
        if not narrower:
            break
    return cheapest


def pack(options: Sequence[Sequence[tuple[int, int]]], gpus: int) -> list[int]:
    """Return the index of each request's chosen option: the greatest sum of values on at most ``gpus`` GPUs.

    Of equal sums, the fewest GPUs count, then the earlier options (algorithm 1 of the paper, a group knapsack).

    Args:
        options: (GPUs, value) of each option of each request; the first takes no GPU.
    """
    best, free = [], gpus
    for offers in options:
        index, (width, value) = 0, offers[0]
        for other in range(1, len(offers)):
            other_width, other_value = offers[other]
            if other_value > value or (other_value == value and other_width < width):
                index, width, value = other, other_width, other_value
        free -= width
        if free < 0:
            break
        best.append(index)
    else:
        return best
    # No choice takes exactly so many GPUs, whatever is added to it.
    sums = [0] + [NONE] * gpus
    picks: list[list[int]] = []
    for offers in options:
        kept = offers[0][1]
        after, pick = [total + kept for total in sums], [0] * (gpus + 1)
        for index in range(1, len(offers)):
            width, value = offers[index]
            for taken in range(width, gpus + 1):
                total = sums[taken - width] + value
                if total > after[taken]:
                    after[taken], pick[taken] = total, index
        sums = after
        picks.append(pick)
    # Of equal sums the fewest GPUs: what is left serves late requests and widens others.
    taken = max(range(gpus + 1), key=lambda count: (sums[count], -count))
    chosen = []
    for offers, pick in zip(reversed(options), reversed(picks), strict=True):
        chosen.append(pick[taken])
        taken -= offers[pick[taken]][0]
    return chosen[::-1]


def whole_steps(step_s: float, left: int, round_s: float) -> int:
    """Return how many of ``left`` steps of ``step_s`` fit into ``round_s``."""
    # One more than the division says, which may round down; the loop takes back what does not fit.
    count = min(left, int(round_s / step_s) + 1) if step_s > 0.0 else left
    while count and step_s * count > round_s:
        count -= 1
    return count


def fitting(cost: StageCost, done: int, steps: int, left: int, round_s: float) -> int:
    """Return how many of the ``left`` of ``steps`` fit into ``round_s``, with ``done`` behind."""
    count = whole_steps(cost.step_s, left, round_s)
    if done and done + count < steps:  # neither the text encoder nor the VAE
        return count
    while count and cost.seconds(done, count, steps) > round_s:
        count -= 1
    return count


@dataclass(slots=True)
class TetriServe(GroupPolicy):
    """Decide once a round which requests run, on how many GPUs, for how many steps; nothing changes within a round.

    1. Each request gets the pairs (steps, degree) of the least GPU-seconds that meet its deadline in whole rounds.
    2. A group knapsack chooses at most one pair a request, so that most requests can still be in time after the round.
       Of equal choices it takes the one that runs more requests, then the one with fewer GPUs. The paper leaves ties
       open.
    3. A request that cannot be in time gets one GPU of those left, the earliest deadline first.
    4. ``scale_up``: GPUs still idle widen the request whose step gains most, one degree at a time; those of step 3 are
       the last.
    5. ``max_batch``: a request without a GPU joins a batch of its size and model if the batch then runs more steps in
       all, and all that can be in time still can after the round. This is the paper's selective continuous batching
       of identical small requests. It prints no rule.
    6. ``placement``: a request keeps the GPUs of its last round where it can.

    Text encoder and VAE may outlast a round, and so may a late request's step; their GPUs then miss the next one.
    A pair whose request ends within the round survives if that end is in time; the paper's formula asks for the end of
    the round.

    A round holds whole steps, so GPUs idle for what its length is above a multiple of a step. The paper fits the length
    to the steps of all sizes and prints no rule; ``granularity`` looks at the slowest size alone.

    Args:
        granularity: steps in a round of the slowest size in the trace, on its fastest degree.
        round_s: seconds of a round, in place of ``granularity``.
        late: ``run`` what cannot be in time, or ``drop`` it.
        max_batch: requests of a batch; 1 runs each alone. The profile must have the batches.
    """

    granularity: Count = 5
    round_s: SomeSeconds | None = None
    placement: bool = True
    scale_up: bool = True
    late: Literal["run", "drop"] = "run"
    max_batch: Count = 1
    follows_gpus: bool = field(init=False, default=True, repr=False)
    needs_equal_steps: bool = field(init=False, default=True, repr=False)
    _run: Run = field(init=False, repr=False)
    _view: StageView = field(init=False, repr=False)
    _length_s: float = field(init=False, default=0.0)
    """Seconds of a round; 0 before the first arrival."""
    _next_s: float = field(init=False, default=-inf)
    """Instant of the next round, or of the last if no request was left."""
    _is_due: bool = field(init=False, default=False)
    _opened_s: float = field(init=False, default=-inf)
    """Instant of a round to be decided: after all other events of the instant."""
    _known_costs: dict[Progress, Costs] = field(init=False, default_factory=dict, repr=False)
    _waiting: Queue = field(init=False, default_factory=Queue, repr=False)
    """Requests at a boundary that may still be in time."""
    _late: Queue = field(init=False, default_factory=Queue, repr=False)
    """The others at a boundary."""

    def bind(self, run: Run, view: StageView) -> None:
        self._run, self._view = run, view
        check_equal_steps(
            run.workload,
            run.models.values(),
            run.cluster.kinds.values(),
            "group_policy=tetriserve",
            "choose group_policy=rounds or another, or a profile without step_shares",
        )

    # -- rounds ------------------------------------------------------------------------------------------------------

    def arrived(self, progress: Progress, now_s: float) -> None:
        if not self._length_s:
            self._length_s = self.round_s or self._derived_round_s()
            self._run.assume("seconds of a round", self._length_s, "group_policy.granularity")
        self._known_costs[progress] = self._costs(progress)
        self._waiting.add(progress)
        if not self._is_due:
            if self._next_s == -inf:
                self._next_s = now_s
            rounds = ceil((now_s - self._next_s) / self._length_s)
            self._open_at(max(now_s, self._next_s + rounds * self._length_s))

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        if progress not in self._view.waiting:
            return
        costs = self._known_costs[progress]
        if costs.index != progress.index:
            costs = self._known_costs[progress] = self._costs(progress)
        (self._late if costs.is_late else self._waiting).add(progress)

    def restarted(self, progress: Progress, now_s: float) -> None:
        is_late = self._known_costs[progress].is_late
        costs = self._known_costs[progress] = self._costs(progress)
        costs.is_late = is_late

    def ended(self, progress: Progress, now_s: float) -> None:
        del self._known_costs[progress]

    def _open_at(self, time_s: float) -> None:
        self._next_s, self._is_due = time_s, True
        # The round is opened first, then decided: calls of one instant and order run as scheduled
        # (test_without_deadlines_nothing_is_late_and_every_step_runs_once).
        self._run.clock.at(time_s, DISPATCH, self._open, time_s)
        self._view.decide_at(time_s)

    def _open(self, now_s: float) -> None:
        self._opened_s, self._is_due = now_s, False
        if self._known_costs:
            self._open_at(now_s + self._length_s)

    def _derived_round_s(self) -> float:
        """Return ``granularity`` steps of the slowest size of the trace, each on its fastest degree, in seconds."""
        run, view, workload = self._run, self._view, self._run.workload
        plan = Plan(next(iter(run.models.values())).name)
        served = slice(workload.preload, workload.preload + workload.rows)
        sizes = np.stack([workload.width[served], workload.height[served]])
        slowest_s = 0.0
        for row in np.unique(sizes, axis=1, return_index=True)[1]:
            request = run.request(workload.preload + int(row), 0.0)
            run.assign(request, plan)
            progress = Progress(request, 0, whole_stage(request.steps))
            step_s = min(view.cost(progress, degree).step_s for degree in view.degrees(progress))
            slowest_s = max(slowest_s, step_s)
        return self.granularity * slowest_s

    def _costs(self, progress: Progress) -> Costs:
        view, stage = self._view, progress.stage
        by_degree = {degree: view.cost(progress, degree) for degree in view.degrees(progress)}
        later_s = 0.0
        if progress.index + 1 < len(progress.stages):
            later_s = min(
                view.remaining_s(progress, degree) - cost.seconds(progress.done, progress.left, stage.steps)
                for degree, cost in by_degree.items()
            )
        step_s = [(degree, cost.step_s) for degree, cost in by_degree.items()]
        fastest_s = min(seconds for _, seconds in step_s)
        if fastest_s > self._length_s:
            raise ConfigError(
                f"group_policy.round_s: found {self._length_s:g} s, and a step of {progress!r} takes {fastest_s:g} s "
                "on the fastest degree; raise it, or leave it null"
            )
        candidates = [(degree, seconds) for degree, seconds in step_s if seconds <= self._length_s]
        degrees = [
            (degree, seconds, whole_steps(seconds, stage.steps, self._length_s))
            for degree, seconds in frontier(candidates)
        ]
        return Costs(progress.index, by_degree, degrees, fastest_s, later_s, next(iter(by_degree.values())))

    # -- the decision ------------------------------------------------------------------------------------------------

    def decide(self, now_s: float) -> list[Launch]:
        if now_s != self._opened_s:
            return []
        self._opened_s = -inf
        idle = self._view.idle()
        options = self._options(now_s)
        chosen: dict[Progress, tuple[int, int]] = {}
        free = len(idle)
        if free:
            picks = pack([widths for _, widths, _ in options], free)
            for (progress, widths, counts), pick in zip(options, picks, strict=True):
                if pick:
                    chosen[progress] = widths[pick][0], counts[pick]
                    self._waiting.leave(progress)
                    free -= widths[pick][0]
            in_time = list(chosen)
            free = self._add_late(chosen, free)
            if self.scale_up and free:
                # First those that can be in time; late requests get what they leave.
                free = self._widen(in_time, chosen, free)
                self._widen(list(chosen), chosen, free)
        batches = self._join(chosen, now_s) if self.max_batch > 1 else {}
        groups = self._place(chosen, idle)
        return [
            Launch(progress, groups[progress], steps, batch=tuple(batches[progress][1:]) if batches else ())
            for progress, (_, steps) in chosen.items()
        ]

    def _options(self, now_s: float) -> list[tuple[Progress, list[tuple[int, int]], list[int]]]:
        """Return the requests that can be in time by urgency, each with its (GPUs, value) options and their steps.

        Late requests move to their own queue, or are dropped.
        """
        length_s, after_s = self._length_s, now_s + self._length_s
        in_time = []
        for _, progress in list(self._waiting):
            costs, deadline_s = self._known_costs[progress], progress.request.deadline_s
            steps, stage_left = progress.stage.steps, progress.left
            done, any_cost = steps - stage_left, costs.any_cost
            besides_s = any_cost.last_s + costs.later_s
            begin_s = 0.0 if done else any_cost.first_s
            budget_s = deadline_s - now_s - besides_s - begin_s
            pairs = least_gpu_seconds(stage_left, budget_s, length_s, costs.frontier)
            if not pairs:
                self._waiting.leave(progress)
                if self.late == "drop":
                    del self._known_costs[progress]
                    self._view.discard(progress, LATE)
                else:
                    costs.is_late = True
                    self._late.add(progress)
                continue
            fastest_s = costs.fastest_s
            survives = after_s + begin_s + stage_left * fastest_s + besides_s <= deadline_s
            options, counts = [(0, SURVIVES * survives)], [0]
            for pair_steps, degree in pairs:
                cost = costs.by_degree[degree]
                count = max(1, fitting(cost, done, steps, pair_steps, length_s))
                if count == stage_left:
                    end_s = now_s + cost.seconds(done, count, steps) if not costs.later_s else after_s + costs.later_s
                else:
                    end_s = after_s + (stage_left - count) * fastest_s + besides_s
                options.append((degree, SURVIVES * (end_s <= deadline_s) + 1))
                counts.append(count)
            in_time.append((progress, options, counts))
        return in_time

    def _add_late(self, chosen: dict[Progress, tuple[int, int]], free: int) -> int:
        """Give GPUs to the requests that cannot be in time; return the number of GPUs left.

        No request overtakes one that needs more GPUs than are left. If nothing runs, the others are away, and it takes
        those that are left.
        """
        while free and self._late:
            progress = self._late[0][1]
            degree, steps = self._best_effort(progress)
            if degree > free:
                if chosen or len(self._late) + len(self._waiting) < len(self._known_costs):
                    break
                degree, steps = max(each for each in self._known_costs[progress].by_degree if each <= free), 1
            # Only now: a request that does not fit stays the first of the late ones.
            del self._late[0]
            chosen[progress] = degree, steps
            free -= degree
        return free

    def _best_effort(self, progress: Progress) -> tuple[int, int]:
        """Return the GPUs and steps of a request that cannot be in time: one GPU, and the steps that fit into a round.

        If no step fits, ``scale_up`` takes the smallest degree on which one does; else one step outlasts the round.
        """
        by_degree, steps = self._known_costs[progress].by_degree, progress.stage.steps
        for degree, cost in by_degree.items():
            count = fitting(cost, progress.done, steps, progress.left, self._length_s)
            if count or not self.scale_up:
                return degree, max(1, count)
        return next(iter(by_degree)), 1

    def _widen(self, among: Sequence[Progress], chosen: dict[Progress, tuple[int, int]], free: int) -> int:
        """Widen the request of ``among`` whose step gains most by its next degree; return the number of GPUs left."""
        while free:
            best_gain, widened = 1.0, None
            for progress in among:
                degree, count = chosen[progress]
                by_degree = self._known_costs[progress].by_degree
                wider = next((option for option in by_degree if option > degree), 0)
                if not wider or wider - degree > free or not by_degree[wider].step_s:
                    continue
                gain = by_degree[degree].step_s / by_degree[wider].step_s
                if gain <= best_gain:
                    continue
                steps, behind = progress.stage.steps, progress.done
                more = fitting(by_degree[wider], behind, steps, progress.left, self._length_s)
                if more >= count:
                    best_gain, widened = gain, (progress, wider, more)
            if widened is None:
                break
            progress, wider, more = widened
            free -= wider - chosen[progress][0]
            chosen[progress] = wider, more
        return free

    def _join(self, chosen: dict[Progress, tuple[int, int]], now_s: float) -> dict[Progress, list[Progress]]:
        """Have requests without GPUs join those of ``chosen``; return the batch of each, and set its steps anew."""
        batches = {progress: [progress] for progress in chosen}
        open_batches: dict[object, list[Progress]] = {}
        for progress in chosen:
            if progress.batch_key is not None:
                open_batches.setdefault(progress.batch_key, []).append(progress)
        # A late request fails for the batch's sake alone, so another of its size with the same steps left fails, too.
        refused: set[tuple[object, ...]] = set()
        joined: set[Progress] = set()
        for joining in [progress for _, progress in (*self._waiting, *self._late)]:
            if not open_batches:
                break
            key, is_late = joining.batch_key, self._known_costs[joining].is_late
            for progress in open_batches.get(key, ()):
                batch = batches[progress]
                size = joining.request.width, joining.request.height
                key_of_late = progress, len(batch), size, joining.left, bool(joining.done)
                if is_late and key_of_late in refused:
                    continue
                steps = self._steps_with(joining, batch, chosen[progress], now_s)
                if not steps:
                    if is_late:
                        refused.add(key_of_late)
                    continue
                batch.append(joining)
                joined.add(joining)
                chosen[progress] = chosen[progress][0], steps
                if len(batch) == self.max_batch:
                    open_batches[key].remove(progress)
                    if not open_batches[key]:
                        del open_batches[key]
                break
        if joined:
            for queue in (self._waiting, self._late):
                queue[:] = [entry for entry in queue if entry[1] not in joined]
        return batches

    def _steps_with(self, joining: Progress, batch: Sequence[Progress], running: tuple[int, int], now_s: float) -> int:
        """Return the steps of ``batch`` in this round if ``joining`` joins it; 0 if it may not.

        Args:
            running: (GPUs, steps) of ``batch`` without it.
        """
        degree, count = running
        members = [*batch, joining]
        cost, steps = self._view.cost(batch[0], degree, others=members[1:]), min(member.left for member in members)
        if cost.step_s > 0.0:
            steps = min(steps, int(self._length_s / cost.step_s))
        while steps and cost.batch_s(members, steps) > self._length_s:
            steps -= 1
        runs_more = steps * len(members) > count * len(batch)
        return steps if runs_more and all(self._can_be_in_time(member, steps, now_s) for member in members) else 0

    def _can_be_in_time(self, progress: Progress, steps: int, now_s: float) -> bool:
        """Return True if ``progress`` can be in time after ``steps`` in this round, or is late already."""
        costs, left = self._known_costs[progress], progress.left - steps
        if costs.is_late:
            return True
        last_s = costs.any_cost.last_s
        after_s = now_s + self._length_s
        if left or costs.later_s:
            after_s += left * costs.fastest_s + (last_s if left else 0.0) + costs.later_s
        return after_s <= progress.request.deadline_s

    def _place(self, chosen: dict[Progress, tuple[int, int]], idle: list[int]) -> dict[Progress, tuple[int, ...]]:
        """Return the GPUs of each request of ``chosen``: those of its last round if it keeps them, else the lowest."""
        free, groups = dict.fromkeys(idle), dict[Progress, tuple[int, ...]]()
        last = {progress: progress.last_gpus if self.placement else () for progress in chosen}
        for progress, gpus in last.items():
            if len(gpus) == chosen[progress][0] and all(gpu in free for gpu in gpus):
                groups[progress] = gpus
                for gpu in gpus:
                    del free[gpu]
        for progress, (degree, _) in chosen.items():
            if progress not in groups:
                kept = [gpu for gpu in last[progress] if gpu in free]
                groups[progress] = tuple(sorted([*kept, *(gpu for gpu in free if gpu not in kept)][:degree]))
                for gpu in groups[progress]:
                    del free[gpu]
        return groups
