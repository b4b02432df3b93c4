"""Preemption of a class of requests at step boundaries while urgent ones are in the system (GF-DiT's clean EDF)."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache, reduce
from heapq import heappop, heappush
from math import inf
from operator import or_
from typing import Literal, NamedTuple

from mezzotint.settings.ranges import Count, Number, Seconds, Share
from mezzotint.sim.core.clock import Clock
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.protocols import NEVER, GroupPolicy, Launch, Run, StageView, Stand
from mezzotint.sim.scheduling.group_policies.fixed_groups import align_groups, size_of


class Group(NamedTuple):
    """A group of GPUs that may be chosen; ``mask`` has a bit for each GPU."""

    gpus: tuple[int, ...]
    mask: int
    degree: int


@cache
def group_of(gpus: tuple[int, ...]) -> Group:
    """Return the one group of ``gpus``: groups are compared by identity."""
    return Group(gpus, sum(1 << gpu for gpu in gpus), len(gpus))


class Candidate(NamedTuple):
    """A group for a request, with the GPUs that it claims and what it is worth."""

    worth: float
    claims: int
    group: Group


class CostClass(NamedTuple):
    """Key of requests that differ in their deadlines alone.

    Attributes:
        order: minus their priority.
        costs: by degree, as of `PreemptClass._costs`.
    """

    order: float
    is_preemptible: bool
    costs: tuple[tuple[int, tuple[float, float]], ...]


class WaitingWorth(NamedTuple):
    """The greatest worth of the requests that wait at a decision.

    Attributes:
        new: of those that never ran, by degree.
        stopped: of the others, by the mask of the GPUs of their last launch; filled on demand.
    """

    now_s: float
    new: dict[int, float]
    stopped: dict[int, float]


class Decision(NamedTuple):
    """The state after a decision: the idle GPUs, whether there was pressure, and when a pause becomes too long."""

    idle: int
    is_pressed: bool
    due_s: float


class Selection(NamedTuple):
    """Candidates of several requests without a common GPU, and the sum of their worth."""

    worth: float
    chosen: tuple[tuple[Progress, Candidate], ...]


ROUNDING = 1e-9
"""Difference between two sums of worth that may be one of rounding."""


MAX_SELECTIONS = 4096
"""Selections that are compared in the order of their requests; on 12 GPUs there are not more."""

MAX_SEARCHES = 10_000
"""Searches for groups whose results are kept."""


@dataclass(slots=True)
class PreemptClass(GroupPolicy):
    """Pack requests at a boundary into aligned groups by worth; a preemptible class gives way to an urgent one.

    There is pressure while an urgent request has steps left or too many of them were late. Under pressure a
    preemptible request at a boundary is paused (``give_way=pause``), or confined to few GPUs (``demote``) and paused
    only if no group is left for it. A request that was paused for ``starved_s`` takes any idle GPU first.

    The others take groups so that no GPU is taken twice and the sum of their worth is greatest. A group on which a
    request saves time is worth more, one on which it misses its deadline less; both count in standalone latencies. A
    request that changes its group claims both groups until the next boundary.

    The rule decides at every step. A decision stands until a faster group falls idle, a pause becomes too long, or
    waiting requests may be worth more on the GPUs. While a request runs, its worth on its group never falls; the worth
    of waiting requests never rises.

    With ``give_way=pause`` requests can be lost: once urgent requests were late, only more of them lower the debt, and
    without further events nothing decides again. Such requests end as failed.

    Args:
        urgent_sizes, preemptible_sizes: WIDTHxHEIGHT of the sizes of each class.
        give_way: ``pause`` or ``demote``.
        degrees: parallel degrees of the groups; empty takes all that the profile has.
        demoted_degrees: degrees of a preemptible request under pressure with ``demote``, the first preferred.
        late_share: share of the urgent requests that may be late before the pressure stays.
        starved_s: seconds of a pause after which a preemptible request takes an idle GPU first.
        max_aside_s: seconds of a pause after which it runs under pressure, too.
        move_s: estimated seconds of a move to another group.
        candidates: groups considered for a request, the best ones.
        priority_by_size: WIDTHxHEIGHT -> priority, of which the highest comes first; 0 for others.

    Source: GF-DiT's policy simulator (arXiv 2606.13501), clean_edf.
    """

    urgent_sizes: list[str]
    preemptible_sizes: list[str]
    give_way: Literal["pause", "demote"] = "demote"
    degrees: list[Count] = field(default_factory=list)
    demoted_degrees: list[Count] = field(default_factory=lambda: [1, 2])
    late_share: Share = 0.01
    starved_s: Seconds = 60.0
    max_aside_s: Seconds = 600.0
    move_s: Seconds = 0.003
    candidates: Count = 6
    priority_by_size: dict[str, Number] = field(default_factory=dict)
    decides_before_release: bool = field(init=False, default=True)
    acts_on_answers: bool = field(init=False, default=True)
    _view: StageView = field(init=False, repr=False)
    _clock: Clock = field(init=False, repr=False)
    _eligible: Callable[[Group | None, int, bool], tuple[Group, ...]] = field(init=False, repr=False)
    _groups: dict[int, list[Group]] = field(init=False, repr=False)
    """By degree, ascending."""
    _urgent: int = field(init=False, default=0, repr=False)
    _debt: float = field(init=False, default=0.0, repr=False)
    _order: dict[Progress, tuple[float, float, int]] = field(init=False, default_factory=dict, repr=False)
    _standalone_s: dict[Progress, float] = field(init=False, default_factory=dict, repr=False)
    _preemptible: set[Progress] = field(init=False, default_factory=set, repr=False)
    _paused_since_s: dict[Progress, float] = field(init=False, default_factory=dict, repr=False)
    _paused: list[tuple[float, int, Progress]] = field(init=False, default_factory=list, repr=False)
    """Heap of the requests in ``_paused_since_s``, the longest pause first; some were launched since."""
    _pausable: dict[Progress, None] = field(init=False, default_factory=dict, repr=False)
    """The preemptible requests at a boundary that are not paused; with ``demote`` only those that never ran."""
    _cost_class: dict[Progress, CostClass] = field(init=False, default_factory=dict, repr=False)
    _new: dict[CostClass, list[tuple[tuple[float, float, int], Progress]]] = field(
        init=False, default_factory=dict, repr=False
    )
    _stopped: dict[int, dict[Progress, None]] = field(init=False, default_factory=dict, repr=False)
    """The other requests at a boundary, by the GPUs of their last launch."""
    _known_costs: dict[Progress, tuple[tuple[int, int], dict[int, tuple[float, float]]]] = field(
        init=False, default_factory=dict, repr=False
    )
    _former_groups: dict[Progress, int] = field(init=False, default_factory=dict, repr=False)
    """By request that moved: mask of the GPUs of its former group, claimed until its next boundary."""
    _late_divisor: dict[Progress, float] = field(init=False, default_factory=dict, repr=False)
    """By running request: what divides its worth for being late, at all boundaries of its launch."""
    _waiting_worth: WaitingWorth | None = field(init=False, default=None, repr=False)
    """As of the last event; None until it is asked for."""
    _new_at_boundary: list[Progress] = field(init=False, default_factory=list, repr=False)
    """The requests that arrived or reached a boundary since the last decision."""
    _last_decision: Decision = field(init=False, default=Decision(0, False, inf), repr=False)
    _is_predictable: bool = field(init=False, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view, self._clock = view, run.clock
        self._eligible = lru_cache(MAX_SEARCHES)(self._find_groups)
        self._is_predictable = view.estimates_are_exact and self.starved_s > 0.0
        degrees = self.degrees or sorted({1, *run.backend.group_sizes()})
        gpus = len(view.claimed)
        self._groups = {
            degree: [group_of(members) for members in align_groups(gpus // degree, degree)]
            for degree in sorted(degrees)
            if degree <= gpus
        }

    def arrived(self, progress: Progress, now_s: float) -> None:
        size = size_of(progress.request)
        order = -self.priority_by_size.get(size, 0.0), progress.request.deadline_s, progress.submission_index
        self._order[progress] = order
        self._standalone_s[progress] = self._view.remaining_s(progress, 1)
        self._urgent += size in self.urgent_sizes
        if size in self.preemptible_sizes:
            self._preemptible.add(progress)
            self._pausable[progress] = None
        cost_class = self._cost_class[progress] = CostClass(
            order[0], progress in self._preemptible, tuple(self._costs(progress).items())
        )
        insort(self._new.setdefault(cost_class, []), (order, progress))
        self._new_at_boundary.append(progress)
        self._waiting_worth = None

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        self._former_groups.pop(progress, None)
        self._late_divisor.pop(progress, None)
        self._waiting_worth = None
        if progress.left:
            self._stopped.setdefault(group_of(progress.last_gpus).mask, {})[progress] = None
            self._new_at_boundary.append(progress)
            if self.give_way == "pause" and progress in self._preemptible:
                self._pausable[progress] = None
        else:  # the decision at its last boundary sees neither the request nor, before ``ended``, its debt
            self._urgent -= size_of(progress.request) in self.urgent_sizes

    def _remove_stopped(self, last: int, progress: Progress) -> None:
        """Remove a request from ``_stopped``, whose last GPUs have the mask ``last``."""
        del self._stopped[last][progress]
        if not self._stopped[last]:
            del self._stopped[last]

    def restarted(self, progress: Progress, now_s: float) -> None:
        last = next(mask for mask, stopped in self._stopped.items() if progress in stopped)
        self._remove_stopped(last, progress)
        self._new_at_boundary.append(progress)
        self._waiting_worth = None
        insort(self._new.setdefault(self._cost_class[progress], []), (self._order[progress], progress))

    def ended(self, progress: Progress, now_s: float) -> None:
        del self._order[progress], self._standalone_s[progress], self._known_costs[progress], self._cost_class[progress]
        self._preemptible.discard(progress)
        if size_of(progress.request) in self.urgent_sizes:
            self._debt = max(0.0, self._debt + (now_s > progress.request.deadline_s) - self.late_share)

    def decide(self, now_s: float) -> list[Launch]:
        self._waiting_worth = None
        idle, is_pressed = self._idle(), self._urgent > 0 or self._debt > 0.0
        is_same_pressure = is_pressed == self._last_decision.is_pressed
        if is_same_pressure and not (idle or self._new_at_boundary or (is_pressed and self._pausable)):
            return []
        launches, idle = self._launch_starved(idle, now_s)
        if is_pressed:
            self._pause(idle, now_s)
        if idle and (self._new or self._stopped):
            chosen = self._choose(idle, is_pressed, now_s)
            for _, candidate in chosen:
                idle &= ~candidate.claims
            launches += [self._launch(progress, candidate) for progress, candidate in chosen]
        self._recheck_earlier(launches, idle, is_pressed)
        return launches

    def _choose(self, idle: int, is_pressed: bool, now_s: float) -> tuple[tuple[Progress, Candidate], ...]:
        """Return the requests that run next, each with its candidate, by priority and deadline."""
        offers = self._offers_of_new(idle, is_pressed, now_s)
        for mask, stopped in self._stopped.items():
            if mask & ~idle:
                continue  # any group claims the last one, too
            for progress in stopped:
                gives_way = is_pressed and progress in self._preemptible
                if not (gives_way and self._is_paused(progress, now_s)):
                    last = group_of(progress.last_gpus)
                    groups = self._eligible(last, idle, gives_way and self.give_way == "demote")
                    offers.append((progress, self._candidates(progress, last, groups, now_s)))
        # Of selections worth the same the first found stays: priority and deadline decide ties
        # (test_every_reference_table_is_equal_request_by_request).
        offers.sort(key=lambda offer: self._order[offer[0]])
        return best_selection(offers)

    def _launch(self, progress: Progress, candidate: Candidate) -> Launch:
        group, extra = candidate.group, candidate.claims & ~candidate.group.mask
        if extra:
            self._former_groups[progress] = extra
        self._paused_since_s.pop(progress, None)
        self._pausable.pop(progress, None)
        if progress.group is not None:
            self._remove_stopped(group_of(progress.last_gpus).mask, progress)
        else:
            new = self._new[self._cost_class[progress]]
            del new[bisect_left(new, (self._order[progress],))]
            if not new:
                del self._new[self._cost_class[progress]]
        return Launch(progress, group.gpus)

    def _is_paused(self, progress: Progress, now_s: float) -> bool:
        """Return True if a preemptible request under pressure may not run at all."""
        return self.give_way == "pause" and now_s - self._paused_since_s[progress] < self.max_aside_s

    def _pause(self, idle: int, now_s: float) -> None:
        """Pause the preemptible requests at a boundary; with ``demote`` only if no group is left for them."""
        if self._pausable and not (self.give_way == "demote" and self._eligible(None, idle, True)):
            for progress in self._pausable:
                self._paused_since_s[progress] = now_s
                heappush(self._paused, (now_s, progress.submission_index, progress))
            self._pausable.clear()

    def _offers_of_new(self, idle: int, is_pressed: bool, now_s: float) -> list[tuple[Progress, list[Candidate]]]:
        """Return candidates of the requests that never ran; of a cost class, only of those that can be chosen.

        Within a cost class, a later deadline is never worth less. So the search starts at the latest deadline, and ends
        at a request that is worth less than as many others as there are idle GPUs. The earliest requests stay for the
        order of ties.
        """
        offers: list[tuple[Progress, list[Candidate]]] = []
        gpus = idle.bit_count()
        for cost_class, new in self._new.items():
            gives_way = is_pressed and cost_class.is_preemptible
            groups = self._eligible(None, idle, gives_way and self.give_way == "demote")
            ready = new
            if gives_way and self.give_way == "pause":
                ready = [(order, progress) for order, progress in new if not self._is_paused(progress, now_s)]
            slowest_s = max((seconds for _, (seconds, _) in cost_class.costs), default=0.0)
            in_time: list[Candidate] = []
            best: list[list[Candidate]] = []
            for index in range(len(ready) - 1, gpus - 1, -1):
                progress = ready[index][1]
                candidates = self._candidates_of_new(progress, groups, slowest_s, in_time, now_s)
                if len(best) >= gpus and not _can_rival(candidates, best[-gpus]):
                    break
                best.append(candidates)
                offers.append((progress, candidates))
            for _, progress in ready[:gpus]:
                offers.append((progress, self._candidates_of_new(progress, groups, slowest_s, in_time, now_s)))
        return offers

    def _idle(self) -> int:
        idle = sum(1 << gpu for gpu in self._view.idle())
        for former_group in self._former_groups.values():
            idle &= ~former_group
        return idle

    def _launch_starved(self, idle: int, now_s: float) -> tuple[list[Launch], int]:
        """Launch the requests that were paused for too long on one idle GPU each; return the launches and idle GPUs."""
        launches: list[Launch] = []
        while idle and now_s - self._first_pause_s() >= self.starved_s:
            progress = heappop(self._paused)[-1]
            group = group_of(((idle & -idle).bit_length() - 1,))
            idle &= ~group.mask
            launches.append(self._launch(progress, Candidate(0.0, group.mask, group)))
        return launches, idle

    def _first_pause_s(self) -> float:
        """Return when the longest pause began; infinity if no request is paused."""
        heap = self._paused
        while heap and self._paused_since_s.get(heap[0][-1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else inf

    def _recheck_earlier(self, launches: Sequence[Launch], idle: int, is_pressed: bool) -> None:
        """Ask for new decisions on earlier launches if this decision may change them."""
        new, self._new_at_boundary = self._new_at_boundary, []
        due_s = self._first_pause_s() + min(self.starved_s, self.max_aside_s)
        before, self._last_decision = self._last_decision, Decision(idle, is_pressed, due_s)
        # Without newly idle GPUs, another pressure or a request left waiting, earlier decisions stay. Requests that
        # never ran have candidates in common, so a decision launches one of them, and the next turn's another.
        is_changed = before.is_pressed != is_pressed or before.due_s != due_s
        is_unfinished = launches and idle and (self._new or self._stopped)
        if idle & ~before.idle or is_changed or is_unfinished or not {launch.progress for launch in launches} >= {*new}:
            self._view.ask_again()

    def stands(self, progress: Progress, gpus: tuple[int, ...], begin_s: float) -> Stand:
        # A request that changed its group claims the old one too, until the next boundary.
        if not self._is_predictable or progress in self._former_groups:
            return NEVER
        if progress not in self._late_divisor:
            seconds, _ = self._costs(progress)[len(gpus)]
            late_s = max(0.0, begin_s + seconds - progress.request.deadline_s)
            self._late_divisor[progress] = 1.0 + late_s / self._standalone_s[progress]
        if not self._stays(progress, group_of(gpus)):
            return NEVER
        # Until the boundary at which a paused request is due and takes a GPU; sums of seconds round.
        return Stand(progress.left, until_s=self._last_decision.due_s - ROUNDING)

    def _worth_of_waiting(self) -> WaitingWorth:
        """Return the greatest worth of waiting requests now; later they are not worth more."""
        if self._waiting_worth is None:
            now_s, is_pressed = self._clock.now, self._last_decision.is_pressed
            excludes_preemptible = is_pressed and self.give_way == "pause"
            new_worth: dict[int, float] = {}
            for cost_class, members in self._new.items():
                if not (excludes_preemptible and cost_class.is_preemptible):
                    for degree, worth in self._worth_by_degree(members[-1][1], now_s):
                        new_worth[degree] = max(new_worth.get(degree, 0.0), worth)
            self._waiting_worth = WaitingWorth(now_s, new_worth, {})
        return self._waiting_worth

    def _worth_by_degree(self, progress: Progress, now_s: float) -> list[tuple[int, float]]:
        """Return the worth of ``progress`` on a group of each degree, with no move."""
        standalone_s, early_s = self._standalone_s[progress], progress.request.deadline_s - now_s
        return [
            (degree, gain / (1.0 + max(0.0, seconds - early_s) / standalone_s))
            for degree, (seconds, gain) in self._costs(progress).items()
        ]

    def _worth_bound(self, waiting: WaitingWorth, free: int) -> float:
        """Return an upper bound of the total worth of waiting requests on the GPUs of the mask ``free``.

        Requests that never ran all have the same candidates, and the others claim their last GPUs. Candidates with the
        same first GPU exclude each other.
        """
        worth_by_first_gpu: dict[int, float] = {}
        if waiting.new:
            for group in self._eligible(None, free, False):
                # The lowest bit is its first GPU. Of the groups that share it only one can run, so the sum over first
                # GPUs is a bound.
                first = group.mask & -group.mask
                worth_by_first_gpu[first] = max(worth_by_first_gpu.get(first, 0.0), waiting.new.get(group.degree, 0.0))
        for last, stopped in self._stopped.items():
            if last & ~free:
                continue
            worth = waiting.stopped.get(last)
            if worth is None:
                worth = waiting.stopped[last] = self._max_worth(stopped, waiting.now_s)
            first = last & -last
            worth_by_first_gpu[first] = max(worth_by_first_gpu.get(first, 0.0), worth)
        return sum(worth_by_first_gpu.values())

    def _max_worth(self, stopped: Iterable[Progress], now_s: float) -> float:
        """Return the greatest worth of a request of ``stopped``."""
        excludes_preemptible = self._last_decision.is_pressed and self.give_way == "pause"
        return max(
            (
                worth
                for progress in stopped
                if not (excludes_preemptible and progress in self._preemptible)
                for _, worth in self._worth_by_degree(progress, now_s)
            ),
            default=0.0,
        )

    def _stays(self, progress: Progress, group: Group) -> bool:
        """Return True if ``progress`` would stay on ``group`` at each of its boundaries if nothing else happens."""
        idle, is_pressed, _ = self._last_decision
        costs = self._costs(progress)
        gives_way = is_pressed and progress in self._preemptible
        if gives_way and self.give_way == "pause":
            return False
        waiting = self._worth_of_waiting()
        if idle and self._worth_bound(waiting, idle) > 0.0:
            return False  # the decision in its turn launches others beside it, in the order of deadlines
        seconds = costs[group.degree][0]
        for other in self._eligible(group, idle | group.mask, gives_way):
            other_s = costs[other.degree][0] if other.degree in costs else inf
            # Between groups that are equally fast, the candidates of waiting requests decide.
            if other_s < seconds or (other_s == seconds and other is not group and (self._new or self._stopped)):
                return False
        saved = 1.0 - self._view.remaining_s(progress, group.degree) / self._standalone_s[progress]
        # By more than rounding: the order of ties needs a decision.
        worth = (1.0 + max(0.0, saved)) / self._late_divisor[progress]
        return worth > self._worth_bound(waiting, idle | group.mask) + ROUNDING

    def _find_groups(self, last: Group | None, idle: int, gives_way: bool) -> tuple[Group, ...]:
        """Return the last group and, by degree, the idle group that shares the most GPUs with it."""
        groups = [] if last is None else [last]
        last_mask = 0 if last is None else last.mask
        for degree in self.demoted_degrees if gives_way else reversed(self._groups):
            if last is not None and last.degree == degree:
                continue
            best, best_overlap = None, -1
            for group in self._groups.get(degree, ()):
                if not group.mask & ~idle:
                    overlap = (group.mask & last_mask).bit_count()
                    if overlap > best_overlap:
                        best, best_overlap = group, overlap
            if best is not None:
                groups.append(best)
        return tuple(groups)

    def _candidates(
        self, progress: Progress, last: Group | None, groups: Sequence[Group], now_s: float
    ) -> list[Candidate]:
        """Return the best candidates of ``groups``, by worth, then without a move, then the larger group."""
        costs = self._costs(progress)
        standalone_s, deadline_s = self._standalone_s[progress], progress.request.deadline_s
        last_mask = 0 if last is None else last.mask
        ranked: list[tuple[float, bool, int, tuple[int, ...], Candidate]] = []
        for group in groups:
            cost = costs.get(group.degree)
            if cost is None:
                continue  # not measured for its model, or for its stage
            seconds, gain = cost
            is_move = last is not None and group is not last
            late_s = now_s + seconds + (self.move_s if is_move else 0.0) - deadline_s
            worth = gain / (1.0 + late_s / standalone_s) if late_s > 0.0 else gain
            ranked.append((-worth, is_move, -group.degree, group.gpus, Candidate(worth, group.mask | last_mask, group)))
        if len(ranked) > 1:
            ranked.sort()
        return [candidate for *_, candidate in ranked[: self.candidates]]

    def _candidates_of_new(
        self, progress: Progress, groups: Sequence[Group], slowest_s: float, in_time: list[Candidate], now_s: float
    ) -> list[Candidate]:
        """Return the candidates of a request that never ran; all requests of its class that are in time share theirs.

        Args:
            slowest_s: seconds of the class on the slowest group; who is in time there is so on all.
            in_time: the shared candidates; empty before the first such request.
        """
        if now_s + slowest_s > progress.request.deadline_s:
            return self._candidates(progress, None, groups, now_s)
        if not in_time:
            in_time += self._candidates(progress, None, groups, now_s)
        return in_time

    def _costs(self, progress: Progress) -> dict[int, tuple[float, float]]:
        """Return by degree the estimated seconds left, and 1 + the share of the standalone latency saved."""
        key = progress.index, progress.left
        cached = self._known_costs.get(progress)
        if cached is not None and cached[0] == key:
            return cached[1]
        standalone_s, costs = self._standalone_s[progress], {}
        for degree in self._view.degrees(progress):
            if degree in self._groups:
                seconds = self._view.remaining_s(progress, degree)
                costs[degree] = seconds, 1.0 + max(0.0, 1.0 - seconds / standalone_s)
        self._known_costs[progress] = key, costs
        return costs


def _can_rival(candidates: Sequence[Candidate], better: Sequence[Candidate]) -> bool:
    """Return True if a candidate is worth as much as that of ``better`` on the same GPUs, or equal but for rounding."""
    if candidates is better:
        return True
    # An equal worth may win a tie, so the search goes on.
    min_worth = {candidate.claims: candidate.worth - ROUNDING for candidate in better}
    return any(candidate.worth >= min_worth[candidate.claims] for candidate in candidates)


def best_selection(offers: Sequence[tuple[Progress, list[Candidate]]]) -> tuple[tuple[Progress, Candidate], ...]:
    """Choose at most one candidate a request, no GPU twice, with the largest sum of worth; of ties the most requests.

    A later selection replaces an earlier one of the same GPUs only if it is worth more. Where that would be more than
    ``MAX_SELECTIONS``, the choice goes from the first GPU to the last and is worth as much, but may break a tie another
    way.
    """
    selections = {0: Selection(0.0, ())}
    for offer in offers:
        selections = _with_offer(selections, offer)
        if len(selections) > MAX_SELECTIONS:
            selections = _from_first_gpu(offers)
            break
    return max(selections.values(), key=_rank).chosen


def _rank(selection: Selection) -> tuple[float, int]:
    return selection.worth, len(selection.chosen)


def _with_offer(selections: dict[int, Selection], offer: tuple[Progress, list[Candidate]]) -> dict[int, Selection]:
    """Return the best selection by the GPUs that it claims, of ``selections`` with and without ``offer``."""
    progress, candidates = offer
    longer = dict(selections)
    for claimed, (worth, chosen) in selections.items():
        for candidate in candidates:
            if claimed & candidate.claims:
                continue
            key, total = claimed | candidate.claims, worth + candidate.worth
            known = longer.get(key)
            # Strictly more: of ties the earlier one stays.
            if known is None or total > known.worth:
                longer[key] = Selection(total, (*chosen, (progress, candidate)))
    return longer


def _from_first_gpu(offers: Sequence[tuple[Progress, list[Candidate]]]) -> dict[int, Selection]:
    """Return the best selection; of those that leave the later offers the same GPUs, only the best goes on."""
    ordered = sorted(offers, key=lambda offer: max((one.claims & -one.claims for one in offer[1]), default=0))
    claims = [reduce(or_, (candidate.claims for candidate in candidates), 0) for _, candidates in ordered]
    selections = {0: Selection(0.0, ())}
    for index, offer in enumerate(ordered):
        claimed_later = reduce(or_, claims[index + 1 :], 0)
        best: dict[int, Selection] = {}
        for claimed, selection in _with_offer(selections, offer).items():
            key = claimed & claimed_later
            best[key] = max(best.get(key, selection), selection, key=_rank)
        selections = best
    return selections
