"""Preemption of a class of requests at step boundaries while urgent ones are in the system (GF-DiT's clean EDF)."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from conf.ranges import Count, Number, Seconds, Share
from sim.core.progress import Progress
from sim.protocols import GroupPolicy, Launch, Run, StageView
from sim.scheduling.group_policies.fixed_groups import aligned, size_of


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
    """What requests have in common that differ in their deadlines alone; ``costs`` by degree."""

    order: float
    is_preemptible: bool
    costs: tuple[tuple[int, tuple[float, float]], ...]


class Selection(NamedTuple):
    """Candidates of several requests without a common GPU, and the sum of their worth."""

    worth: float
    chosen: tuple[tuple[Progress, Candidate], ...]


ROUNDING = 1e-9
"""Difference between two sums of worth that may be one of rounding."""


@dataclass(slots=True)
class PreemptClass(GroupPolicy):
    """Pack requests at a boundary into aligned groups by worth; a preemptible class gives way to an urgent one.

    There is pressure while an urgent request is in the system or too many of them were late. Under pressure a
    preemptible request at a boundary is put aside (``give_way=pause``), or confined to few GPUs (``demote``) and put
    aside only if no group is left for it. One that was put aside for ``starved_s`` takes any idle GPU first.

    The others take groups so that no GPU is taken twice and the sum of their worth is greatest. A group on which a
    request saves time is worth more, one on which it misses its deadline less; both count in standalone latencies. A
    request that changes its group claims both groups until the next boundary.

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
    _view: StageView = field(init=False, repr=False)
    _groups: dict[int, list[Group]] = field(init=False, repr=False)
    _of_gpus: dict[tuple[int, ...], Group] = field(init=False, default_factory=dict, repr=False)
    _urgent: int = field(init=False, default=0, repr=False)
    _debt: float = field(init=False, default=0.0, repr=False)
    _order: dict[Progress, tuple[float, float, int]] = field(init=False, default_factory=dict, repr=False)
    _standalone_s: dict[Progress, float] = field(init=False, default_factory=dict, repr=False)
    _preemptible: set[Progress] = field(init=False, default_factory=set, repr=False)
    _aside_since_s: dict[Progress, float] = field(init=False, default_factory=dict, repr=False)
    _alike: dict[Progress, Alike] = field(init=False, default_factory=dict, repr=False)
    _new: dict[Alike, list[tuple[tuple[float, float, int], Progress]]] = field(
        init=False, default_factory=dict, repr=False
    )
    _stopped: dict[Progress, None] = field(init=False, default_factory=dict, repr=False)
    _widest_first: list[int] = field(init=False, repr=False)
    _known_costs: dict[Progress, tuple[tuple[int, int], dict[int, tuple[float, float]]]] = field(
        init=False, default_factory=dict, repr=False
    )
    _held: dict[Progress, int] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view = view
        degrees = self.degrees or sorted({1, *run.backend.group_sizes()})
        gpus = len(view.claimed)
        self._groups = {
            degree: [self._group(each) for each in aligned(gpus // degree, degree)]
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
        alike = self._alike[progress] = Alike(
            order[0], progress in self._preemptible, tuple(self._costs(progress).items())
        )
        insort(self._new.setdefault(alike, []), (order, progress))

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        self._held.pop(progress, None)
        if progress.left:
            self._stopped[progress] = None

    def restarted(self, progress: Progress, now_s: float) -> None:
        del self._stopped[progress]
        insort(self._new.setdefault(self._alike[progress], []), (self._order[progress], progress))

    def ended(self, progress: Progress, now_s: float) -> None:
        del self._order[progress], self._standalone_s[progress], self._known_costs[progress], self._alike[progress]
        self._preemptible.discard(progress)
        if size_of(progress.request) in self.urgent_sizes:
            self._urgent -= 1
            self._debt = max(0.0, self._debt + (now_s > progress.request.deadline_s) - self.late_share)

    def decide(self, now_s: float) -> list[Launch]:
        launches, idle = self._starved(self._idle(), now_s)
        is_pressed = self._urgent > 0 or self._debt > 0.0
        if is_pressed:
            self._put_aside(idle, now_s)
        if not idle:
            return launches
        offers = self._offers_of_new(idle, is_pressed, now_s)
        for progress in self._stopped:
            gives_way = is_pressed and progress in self._preemptible
            assert progress.group is not None
            last = self._group(progress.group.gpus)
            if last.mask & ~idle or (gives_way and self._is_put_aside(progress, now_s)):
                continue  # any group claims the last one, too
            groups = self._eligible(last, idle, gives_way and self.give_way == "demote")
            offers.append((progress, self._candidates(progress, last, groups, now_s)))
        offers.sort(key=lambda offer: self._order[offer[0]])
        for progress, candidate in best_selection(offers):
            extra = candidate.claims & ~candidate.group.mask
            if extra:
                self._held[progress] = extra
            launches.append(self._launch(progress, candidate.group))
        return launches

    def _launch(self, progress: Progress, group: Group) -> Launch:
        self._aside_since_s.pop(progress, None)
        if progress in self._stopped:
            del self._stopped[progress]
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
        aside_since_s = self._aside_since_s
        has_group = self.give_way == "demote" and bool(self._eligible(None, idle, True))
        if self.give_way == "pause":
            for progress in self._stopped:
                if progress in self._preemptible:
                    aside_since_s.setdefault(progress, now_s)
        if not has_group:
            for alike, new in self._new.items():
                if alike.is_preemptible:
                    for _, progress in reversed(new):
                        aside_since_s.setdefault(progress, now_s)

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
            ready = [each for _, each in new if not (gives_way and self._is_put_aside(each, now_s))]
            best: list[list[Candidate]] = []
            for progress in reversed(ready[count:]):
                candidates = self._candidates(progress, None, groups, now_s)
                if len(best) >= count and not _rivals(candidates, best[-count]):
                    break
                best.append(candidates)
                offers.append((progress, candidates))
            offers += [(each, self._candidates(each, None, groups, now_s)) for each in ready[:count]]
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
        if not idle or not self._aside_since_s:
            return launches, idle
        starved = [progress for progress, since_s in self._aside_since_s.items() if now_s - since_s >= self.starved_s]
        starved.sort(key=lambda each: (self._aside_since_s[each], each.number))
        for progress in starved:
            if not idle:
                break
            gpu = (idle & -idle).bit_length() - 1
            idle &= idle - 1
            launches.append(self._launch(progress, self._group((gpu,))))
        return launches, idle

    def _eligible(self, last: Group | None, idle: int, gives_way: bool) -> list[Group]:
        """Return the last group, and of each degree the group with the most GPUs in common with it, if all are idle."""
        found = [] if last is None else [last]
        last_mask = 0 if last is None else last.mask
        for degree in self.demoted_degrees if gives_way else self._widest_first:
            if last is not None and last.degree == degree:
                continue
            best, most = None, -1
            for group in self._groups.get(degree, ()):
                if not group.mask & ~idle:
                    common = (group.mask & last_mask).bit_count()
                    if common > most:
                        best, most = group, common
            if best is not None:
                found.append(best)
        return found

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
                if known is None or total > known.worth:
                    longer[key] = Selection(total, (*chosen, (progress, candidate)))
        selections = longer
    return max(selections.values(), key=lambda each: (each.worth, len(each.chosen))).chosen
