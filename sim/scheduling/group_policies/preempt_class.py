"""Preemption of a class of requests at step boundaries while urgent ones are in the system (GF-DiT's clean EDF)."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heappop, heappush
from math import inf
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


class Candidate(NamedTuple):
    """A group for a request, with the GPUs that it claims and what it is worth."""

    worth: float
    claims: int
    group: Group


class Alike(NamedTuple):
    """Key of requests that differ in their deadlines alone; ``costs`` by degree."""

    order: float
    is_preemptible: bool
    costs: tuple[tuple[int, tuple[float, float]], ...]


class Others(NamedTuple):
    """The requests that wait at a decision.

    Attributes:
        new: the greatest worth of a request that never ran, by degree.
        stopped: the greatest worth of another request, by the GPUs of its last launch; filled where it is asked for.
    """

    now_s: float
    new: dict[int, float]
    stopped: dict[int, float]


class Selection(NamedTuple):
    """Candidates of several requests without a common GPU, and the sum of their worth."""

    worth: float
    chosen: tuple[tuple[Progress, Candidate], ...]


ROUNDING = 1e-9
"""Difference between two sums of worth that may be one of rounding."""


MAX_SEARCHES = 10_000
"""Searches for groups whose results are kept."""


@dataclass(slots=True)
class PreemptClass(GroupPolicy):
    """Pack requests at a boundary into aligned groups by worth; a preemptible class gives way to an urgent one.

    There is pressure while an urgent request has steps left or too many of them were late. Under pressure a
    preemptible request at a boundary is put aside (``give_way=pause``), or confined to few GPUs (``demote``) and put
    aside only if no group is left for it. One that was put aside for ``starved_s`` takes any idle GPU first.

    The others take groups so that no GPU is taken twice and the sum of their worth is greatest. A group on which a
    request saves time is worth more, one on which it misses its deadline less; both count in standalone latencies. A
    request that changes its group claims both groups until the next boundary.

    The rule decides at every step. A decision stands until a faster group falls idle, one aside is due, or others may
    be worth more on the GPUs. While a request runs, its worth on its group never falls; that of those that wait never
    rises.

    With ``give_way=pause`` requests can be lost: once urgent requests were late, only more of them lower the debt, and
    without further events nothing decides again. Such requests end as failed.

    Args:
        urgent_sizes, preemptible_sizes: WIDTHxHEIGHT of the sizes of each class.
        give_way: ``pause`` or ``demote``.
        degrees: parallel degrees of the groups; empty takes all that the profile has.
        demoted_degrees: degrees of a preemptible request under pressure with ``demote``, the first preferred.
        late_share: share of the urgent requests that may be late before the pressure stays.
        starved_s: seconds aside after which a preemptible request takes an idle GPU first.
        max_aside_s: seconds aside after which it is no longer put aside.
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
    _of_gpus: dict[tuple[int, ...], Group] = field(init=False, default_factory=dict, repr=False)
    _urgent: int = field(init=False, default=0, repr=False)
    _debt: float = field(init=False, default=0.0, repr=False)
    _order: dict[Progress, tuple[float, float, int]] = field(init=False, default_factory=dict, repr=False)
    _standalone_s: dict[Progress, float] = field(init=False, default_factory=dict, repr=False)
    _preemptible: set[Progress] = field(init=False, default_factory=set, repr=False)
    _aside_since_s: dict[Progress, float] = field(init=False, default_factory=dict, repr=False)
    _aside: list[tuple[float, int, Progress]] = field(init=False, default_factory=list, repr=False)
    """Heap of those in ``_aside_since_s``, the first put aside first; some of them were launched since."""
    _not_aside: dict[Progress, None] = field(init=False, default_factory=dict, repr=False)
    """The preemptible requests at a boundary that were not put aside, with ``demote`` only those that never ran."""
    _alike: dict[Progress, Alike] = field(init=False, default_factory=dict, repr=False)
    _new: dict[Alike, list[tuple[tuple[float, float, int], Progress]]] = field(
        init=False, default_factory=dict, repr=False
    )
    _stopped: dict[int, dict[Progress, None]] = field(init=False, default_factory=dict, repr=False)
    """The other requests at a boundary, by the GPUs of their last launch."""
    _widest_first: list[int] = field(init=False, repr=False)
    _known_costs: dict[Progress, tuple[tuple[int, int], dict[int, tuple[float, float]]]] = field(
        init=False, default_factory=dict, repr=False
    )
    _held: dict[Progress, int] = field(init=False, default_factory=dict, repr=False)
    _lateness: dict[Progress, float] = field(init=False, default_factory=dict, repr=False)
    """Of each request that runs, the factor by which being late divides its worth, at all boundaries of its launch."""
    _others: Others | None = field(init=False, default=None, repr=False)
    """What waits since the last event; None where it is not known yet."""
    _came: list[Progress] = field(init=False, default_factory=list, repr=False)
    """The requests that came to a boundary since the last decision."""
    _state: tuple[int, bool, float] = field(init=False, default=(0, False, inf), repr=False)
    """The GPUs that the last decision left idle, whether there was pressure, and when one aside is due."""
    _is_predictable: bool = field(init=False, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view, self._clock = view, run.clock
        self._eligible = lru_cache(MAX_SEARCHES)(self._find)
        self._is_predictable = view.estimates_are_exact and self.starved_s > 0.0
        degrees = self.degrees or sorted({1, *run.backend.group_sizes()})
        gpus = len(view.claimed)
        self._groups = {
            degree: [self._group(each) for each in align_groups(gpus // degree, degree)]
            for degree in sorted(degrees)
            if degree <= gpus
        }
        self._widest_first = sorted(self._groups, reverse=True)

    def _group(self, gpus: tuple[int, ...]) -> Group:
        group = self._of_gpus.get(gpus)
        if group is None:
            group = self._of_gpus[gpus] = Group(gpus, sum(1 << gpu for gpu in gpus), len(gpus))
        return group

    def arrived(self, progress: Progress, now_s: float) -> None:
        size = size_of(progress.request)
        order = -self.priority_by_size.get(size, 0.0), progress.request.deadline_s, progress.number
        self._order[progress] = order
        self._standalone_s[progress] = self._view.remaining_s(progress, 1)
        self._urgent += size in self.urgent_sizes
        if size in self.preemptible_sizes:
            self._preemptible.add(progress)
            self._not_aside[progress] = None
        alike = self._alike[progress] = Alike(
            order[0], progress in self._preemptible, tuple(self._costs(progress).items())
        )
        insort(self._new.setdefault(alike, []), (order, progress))
        self._came.append(progress)
        self._others = None

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        self._held.pop(progress, None)
        self._lateness.pop(progress, None)
        self._others = None
        if progress.left:
            self._stopped.setdefault(self._last(progress).mask, {})[progress] = None
            self._came.append(progress)
            if self.give_way == "pause" and progress in self._preemptible:
                self._not_aside[progress] = None
        else:  # the decision at its last boundary sees neither the request nor, before ``ended``, its debt
            self._urgent -= size_of(progress.request) in self.urgent_sizes

    def _last(self, progress: Progress) -> Group:
        """Return the group of the last launch of ``progress``."""
        assert progress.group is not None
        return self._group(progress.group.gpus)

    def _leave(self, last: int, progress: Progress) -> None:
        """Take ``progress`` from the requests at a boundary whose last GPUs are ``last``."""
        del self._stopped[last][progress]
        if not self._stopped[last]:
            del self._stopped[last]

    def restarted(self, progress: Progress, now_s: float) -> None:
        last = next(mask for mask, stopped in self._stopped.items() if progress in stopped)
        self._leave(last, progress)
        self._came.append(progress)
        self._others = None
        insort(self._new.setdefault(self._alike[progress], []), (self._order[progress], progress))

    def ended(self, progress: Progress, now_s: float) -> None:
        del self._order[progress], self._standalone_s[progress], self._known_costs[progress], self._alike[progress]
        self._preemptible.discard(progress)
        if size_of(progress.request) in self.urgent_sizes:
            self._debt = max(0.0, self._debt + (now_s > progress.request.deadline_s) - self.late_share)

    def decide(self, now_s: float) -> list[Launch]:
        self._others = None
        idle, is_pressed = self._idle(), self._urgent > 0 or self._debt > 0.0
        if not (idle or self._came or (is_pressed and self._not_aside)) and is_pressed == self._state[1]:
            return []
        launches, idle = self._starved(idle, now_s)
        if is_pressed:
            self._put_aside(idle, now_s)
        if idle and (self._new or self._stopped):
            chosen = self._chosen(idle, is_pressed, now_s)
            for _, candidate in chosen:
                idle &= ~candidate.claims
            launches += [self._launch(progress, candidate) for progress, candidate in chosen]
        self._look(launches, idle, is_pressed)
        return launches

    def _chosen(self, idle: int, is_pressed: bool, now_s: float) -> tuple[tuple[Progress, Candidate], ...]:
        """Return the requests that run next, each with its candidate, by priority and deadline."""
        offers = self._offers_of_new(idle, is_pressed, now_s)
        for mask, stopped in self._stopped.items():
            if mask & ~idle:
                continue  # any group claims the last one, too
            for progress in stopped:
                gives_way = is_pressed and progress in self._preemptible
                if not (gives_way and self._is_put_aside(progress, now_s)):
                    last = self._last(progress)
                    groups = self._eligible(last, idle, gives_way and self.give_way == "demote")
                    offers.append((progress, self._candidates(progress, last, groups, now_s)))
        # Of selections worth the same the first found stays: priority and deadline decide ties
        # (test_every_reference_table_is_equal_request_by_request).
        offers.sort(key=lambda offer: self._order[offer[0]])
        return best_selection(offers)

    def _launch(self, progress: Progress, candidate: Candidate) -> Launch:
        group, extra = candidate.group, candidate.claims & ~candidate.group.mask
        if extra:
            self._held[progress] = extra
        self._aside_since_s.pop(progress, None)
        self._not_aside.pop(progress, None)
        if progress.group is not None:
            self._leave(self._last(progress).mask, progress)
        else:
            new = self._new[self._alike[progress]]
            del new[bisect_left(new, (self._order[progress],))]
            if not new:
                del self._new[self._alike[progress]]
        return Launch(progress, group.gpus)

    def _is_put_aside(self, progress: Progress, now_s: float) -> bool:
        """Return True if a preemptible request under pressure may not run at all."""
        return self.give_way == "pause" and now_s - self._aside_since_s[progress] < self.max_aside_s

    def _put_aside(self, idle: int, now_s: float) -> None:
        """Begin the pause of preemptible requests under pressure; with ``demote`` only of those without any group."""
        if self._not_aside and not (self.give_way == "demote" and self._eligible(None, idle, True)):
            for progress in self._not_aside:
                self._aside_since_s[progress] = now_s
                heappush(self._aside, (now_s, progress.number, progress))
            self._not_aside.clear()

    def _offers_of_new(self, idle: int, is_pressed: bool, now_s: float) -> list[tuple[Progress, list[Candidate]]]:
        """Return candidates of the requests that never ran; of many alike, only of those that can be chosen.

        Among requests of the same costs and priority, a later deadline is never worth less. So from the latest on, the
        first that is worth less than as many others as there are idle GPUs ends the search. The earliest ones stay for
        the order of ties.
        """
        offers: list[tuple[Progress, list[Candidate]]] = []
        count = idle.bit_count()
        for alike, new in self._new.items():
            gives_way = is_pressed and alike.is_preemptible
            groups = self._eligible(None, idle, gives_way and self.give_way == "demote")
            ready = new
            if gives_way and self.give_way == "pause":
                ready = [each for each in new if not self._is_put_aside(each[1], now_s)]
            best: list[list[Candidate]] = []
            for at in range(len(ready) - 1, count - 1, -1):
                progress = ready[at][1]
                candidates = self._candidates(progress, None, groups, now_s)
                if len(best) >= count and not _rivals(candidates, best[-count]):
                    break
                best.append(candidates)
                offers.append((progress, candidates))
            offers += [(each, self._candidates(each, None, groups, now_s)) for _, each in ready[:count]]
        return offers

    def _idle(self) -> int:
        idle = 0
        for gpu, count in enumerate(self._view.claimed):
            if not count:
                idle |= 1 << gpu
        for held in self._held.values():
            idle &= ~held
        return idle

    def _starved(self, idle: int, now_s: float) -> tuple[list[Launch], int]:
        """Return launches of the requests that were aside for too long, each on one idle GPU, and what stays idle."""
        launches: list[Launch] = []
        while idle and now_s - self._aside_s() >= self.starved_s:
            progress = heappop(self._aside)[-1]
            group = self._group(((idle & -idle).bit_length() - 1,))
            idle &= ~group.mask
            launches.append(self._launch(progress, Candidate(0.0, group.mask, group)))
        return launches, idle

    def _aside_s(self) -> float:
        """Return since when the first of the requests aside is aside; infinity if there is none."""
        aside = self._aside
        while aside and self._aside_since_s.get(aside[0][-1]) != aside[0][0]:
            heappop(aside)
        return aside[0][0] if aside else inf

    def _look(self, launches: Sequence[Launch], idle: int, is_pressed: bool) -> None:
        """Have the decisions on earlier launches asked for anew if they may be others after this one."""
        came, self._came = self._came, []
        due_s = self._aside_s() + min(self.starved_s, self.max_aside_s)
        before, self._state = self._state, (idle, is_pressed, due_s)
        # GPUs that became idle, another pressure, or a request left waiting: else they stay as they are.
        if idle & ~before[0] or before[1:] != self._state[1:] or not {each.progress for each in launches} >= set(came):
            self._view.ask_again()

    def stands(self, progress: Progress, gpus: tuple[int, ...], begin_s: float) -> Stand:
        # A request that changed its group claims the old one too, until the next boundary.
        if not self._is_predictable or progress in self._held:
            return NEVER
        if progress not in self._lateness:
            seconds, _ = self._costs(progress)[len(gpus)]
            late_s = max(0.0, begin_s + seconds - progress.request.deadline_s)
            self._lateness[progress] = 1.0 + late_s / self._standalone_s[progress]
        if not self._stays(progress, self._group(gpus)):
            return NEVER
        # Up to the boundary at which one that is aside is due, and takes a GPU; sums of seconds round.
        return Stand(progress.left, until_s=self._state[2] - ROUNDING)

    def _waiting(self) -> Others:
        """Return what the requests that wait are worth now; later they are not worth more."""
        if self._others is None:
            now_s, is_pressed = self._clock.now, self._state[1]
            are_out = is_pressed and self.give_way == "pause"
            new: dict[int, float] = {}
            for alike, requests in self._new.items():
                if not (are_out and alike.is_preemptible):
                    for degree, worth in self._worth(requests[-1][1], now_s):
                        new[degree] = max(new.get(degree, 0.0), worth)
            self._others = Others(now_s, new, {})
        return self._others

    def _worth(self, progress: Progress, now_s: float) -> list[tuple[int, float]]:
        """Return the worth of ``progress`` on a group of each degree, with no move."""
        standalone_s, early_s = self._standalone_s[progress], progress.request.deadline_s - now_s
        return [
            (degree, gain / (1.0 + max(0.0, seconds - early_s) / standalone_s))
            for degree, (seconds, gain) in self._costs(progress).items()
        ]

    def _most(self, others: Others, free: int) -> float:
        """Return what no selection of ``others`` on the GPUs ``free`` is worth more than.

        Those that never ran all have the same candidates, and the others claim their last GPUs. Candidates with the
        same first GPU exclude each other.
        """
        by_gpu: dict[int, float] = {}
        if others.new:
            for group in self._eligible(None, free, False):
                # The lowest bit, its first GPU: of groups that share it only one can run, so the sum over first GPUs is
                # a bound.
                first = group.mask & -group.mask
                by_gpu[first] = max(by_gpu.get(first, 0.0), others.new.get(group.degree, 0.0))
        for last, stopped in self._stopped.items():
            if last & ~free:
                continue
            worth = others.stopped.get(last)
            if worth is None:
                worth = others.stopped[last] = self._most_of(stopped, others.now_s)
            first = last & -last
            by_gpu[first] = max(by_gpu.get(first, 0.0), worth)
        return sum(by_gpu.values())

    def _most_of(self, stopped: Iterable[Progress], now_s: float) -> float:
        """Return the greatest worth of a request of ``stopped``."""
        are_out = self._state[1] and self.give_way == "pause"
        return max(
            (
                worth
                for progress in stopped
                if not (are_out and progress in self._preemptible)
                for _, worth in self._worth(progress, now_s)
            ),
            default=0.0,
        )

    def _stays(self, progress: Progress, group: Group) -> bool:
        """Return True if ``progress`` would stay on ``group`` at each of its boundaries if nothing else happens."""
        idle, is_pressed, _ = self._state
        costs = self._costs(progress)
        gives_way = is_pressed and progress in self._preemptible
        if gives_way and self.give_way == "pause":
            return False
        seconds = costs[group.degree][0]
        for each in self._eligible(group, idle | group.mask, gives_way):
            other_s = costs[each.degree][0] if each.degree in costs else inf
            # Between groups that are as fast, what others are offered decides.
            if other_s < seconds or (other_s == seconds and each is not group and (self._new or self._stopped)):
                return False
        saved = 1.0 - self._view.remaining_s(progress, group.degree) / self._standalone_s[progress]
        # By more than rounding: of what is worth as much, the tie decides, and that needs a decision.
        worth = (1.0 + max(0.0, saved)) / self._lateness[progress]
        return worth > self._most(self._waiting(), idle | group.mask) + ROUNDING

    def _find(self, last: Group | None, idle: int, gives_way: bool) -> tuple[Group, ...]:
        """Return the last group, and of each degree the group with the most GPUs in common with it, if all are idle."""
        found = [] if last is None else [last]
        last_mask = 0 if last is None else last.mask
        for degree in self.demoted_degrees if gives_way else self._widest_first:
            if last is not None and last.degree == degree:
                continue
            best, best_overlap = None, -1
            for group in self._groups.get(degree, ()):
                if not group.mask & ~idle:
                    overlap = (group.mask & last_mask).bit_count()
                    if overlap > best_overlap:
                        best, best_overlap = group, overlap
            if best is not None:
                found.append(best)
        return tuple(found)

    def _candidates(
        self, progress: Progress, last: Group | None, groups: Sequence[Group], now_s: float
    ) -> list[Candidate]:
        """Return the best candidates of ``groups``, by worth, then without a move, then the larger group."""
        costs = self._costs(progress)
        standalone_s, deadline_s = self._standalone_s[progress], progress.request.deadline_s
        last_mask = 0 if last is None else last.mask
        found: list[tuple[float, bool, int, tuple[int, ...], Candidate]] = []
        for group in groups:
            known = costs.get(group.degree)
            if known is None:
                continue  # not measured for its model, or for its stage
            seconds, gain = known
            is_move = last is not None and group is not last
            late_s = now_s + seconds + (self.move_s if is_move else 0.0) - deadline_s
            worth = gain / (1.0 + late_s / standalone_s) if late_s > 0.0 else gain
            found.append((-worth, is_move, -group.degree, group.gpus, Candidate(worth, group.mask | last_mask, group)))
        if len(found) > 1:
            found.sort()
        return [each[-1] for each in found[: self.candidates]]

    def _costs(self, progress: Progress) -> dict[int, tuple[float, float]]:
        """Return by degree the estimated seconds of what is left, and 1 + the share of the standalone latency saved."""
        key = progress.index, progress.left
        known = self._known_costs.get(progress)
        if known is not None and known[0] == key:
            return known[1]
        standalone_s, costs = self._standalone_s[progress], {}
        for degree in self._view.degrees(progress):
            if degree in self._groups:
                seconds = self._view.remaining_s(progress, degree)
                costs[degree] = seconds, 1.0 + max(0.0, 1.0 - seconds / standalone_s)
        self._known_costs[progress] = key, costs
        return costs


def _rivals(candidates: Sequence[Candidate], better: Sequence[Candidate]) -> bool:
    """Return True if one of ``candidates`` is worth as much as the one of ``better`` on the same group."""
    # Equal but for rounding may win a tie, so the search goes on.
    worth = {each.claims: each.worth - ROUNDING for each in better}
    return any(each.worth >= worth[each.claims] for each in candidates)


def best_selection(offers: Sequence[tuple[Progress, list[Candidate]]]) -> tuple[tuple[Progress, Candidate], ...]:
    """Choose at most one candidate a request, no GPU twice, with the largest sum of worth; of ties the most requests.

    A later selection replaces an earlier one of the same GPUs only if it is worth more.
    """
    selections = {0: Selection(0.0, ())}
    for progress, candidates in offers:
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
        selections = longer
    return max(selections.values(), key=lambda each: (each.worth, len(each.chosen))).chosen
