"""Preemption of a class of requests at step boundaries while urgent ones are in the system (GF-DiT's clean EDF)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
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


class Selection(NamedTuple):
    """Candidates of several requests without a common GPU, and the sum of their worth."""

    worth: float
    chosen: tuple[tuple[Progress, Candidate], ...]


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
    _held: dict[Progress, int] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view = view
        degrees = self.degrees or sorted({1, *run.backend.group_sizes()})
        gpus = run.cluster.gpus
        self._groups = {
            degree: [self._group(each) for each in aligned(gpus // degree, degree)]
            for degree in sorted(degrees)
            if degree <= gpus
        }

    def _group(self, gpus: tuple[int, ...]) -> Group:
        group = self._of_gpus.get(gpus)
        if group is None:
            group = self._of_gpus[gpus] = Group(gpus, sum(1 << gpu for gpu in gpus), len(gpus))
        return group

    def arrived(self, progress: Progress, now_s: float) -> None:
        size = size_of(progress.request)
        self._order[progress] = -self.priority_by_size.get(size, 0.0), progress.request.deadline_s, progress.number
        self._standalone_s[progress] = self._view.remaining_s(progress, 1)
        self._urgent += size in self.urgent_sizes
        if size in self.preemptible_sizes:
            self._preemptible.add(progress)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        self._held.pop(progress, None)

    def ended(self, progress: Progress, now_s: float) -> None:
        del self._order[progress], self._standalone_s[progress]
        self._preemptible.discard(progress)
        if size_of(progress.request) in self.urgent_sizes:
            self._urgent -= 1
            self._debt = max(0.0, self._debt + (now_s > progress.request.deadline_s) - self.late_share)

    def decide(self, now_s: float) -> list[Launch]:
        idle = self._idle()
        launches, idle = self._starved(idle, now_s)
        is_pressed = self._urgent > 0 or self._debt > 0.0
        offers: list[tuple[Progress, list[Candidate]]] = []
        started = {launch.progress for launch in launches}
        for progress in sorted(self._view.waiting, key=self._order.__getitem__):
            if progress in started:
                continue
            gives_way = is_pressed and progress in self._preemptible
            if gives_way and self.give_way == "pause":
                if now_s - self._aside_since_s.setdefault(progress, now_s) < self.max_aside_s:
                    continue
                gives_way = False
            if not idle and (progress.group is not None or not gives_way):
                continue
            groups = self._eligible(progress, idle, self.demoted_degrees if gives_way else None)
            if not groups and gives_way:
                self._aside_since_s.setdefault(progress, now_s)
            found = self._worth(progress, groups, idle, now_s)
            if found:
                offers.append((progress, found))
        for progress, candidate in _best(offers):
            self._aside_since_s.pop(progress, None)
            extra = candidate.claims & ~candidate.group.mask
            if extra:
                self._held[progress] = extra
            launches.append(Launch(progress, candidate.group.gpus))
        return launches

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
        waiting = self._view.waiting
        starved = [
            progress
            for progress, since_s in self._aside_since_s.items()
            if now_s - since_s >= self.starved_s and progress in waiting
        ]
        starved.sort(key=lambda each: (self._aside_since_s[each], each.number))
        for progress in starved:
            if not idle:
                break
            gpu = (idle & -idle).bit_length() - 1
            idle &= idle - 1
            del self._aside_since_s[progress]
            launches.append(Launch(progress, (gpu,)))
        return launches, idle

    def _eligible(self, progress: Progress, idle: int, degrees: Sequence[int] | None) -> list[Group]:
        """Return the last group, and the best group of each degree: its GPUs are idle or the last group's."""
        last = None if progress.group is None else self._group(progress.group.gpus)
        last_mask = 0 if last is None else last.mask
        usable = idle | last_mask
        found = [] if last is None else [last]
        allowed = self._view.degrees(progress)
        for degree in sorted(self._groups, reverse=True) if degrees is None else degrees:
            if degree not in allowed or (last is not None and last.degree == degree):
                continue
            best, most = None, -1
            for group in self._groups.get(degree, ()):
                if group.mask & ~usable:
                    continue
                common = (group.mask & last_mask).bit_count()
                if common > most:
                    best, most = group, common
            if best is not None:
                found.append(best)
        return found

    def _worth(self, progress: Progress, groups: Sequence[Group], idle: int, now_s: float) -> list[Candidate]:
        """Return the candidates of ``groups`` whose GPUs, and the last group's if it changes, are all idle."""
        last = progress.group
        last_mask = 0 if last is None else self._group(last.gpus).mask
        standalone_s, deadline_s = self._standalone_s[progress], progress.request.deadline_s
        found: list[tuple[float, bool, int, tuple[int, ...], Candidate]] = []
        for group in groups:
            claims = group.mask | last_mask
            if claims & ~idle:
                continue
            is_move = last is not None and group.mask != last_mask
            seconds = self._view.remaining_s(progress, group.degree)
            late_s = now_s + seconds + (self.move_s if is_move else 0.0) - deadline_s
            saved = max(0.0, 1.0 - seconds / standalone_s)
            missed = max(0.0, late_s / standalone_s) if late_s > -inf else 0.0
            worth = (1.0 + saved) / (1.0 + missed)
            found.append((-worth, is_move, -group.degree, group.gpus, Candidate(worth, claims, group)))
        found.sort()
        return [each[-1] for each in found[: self.candidates]]


def _best(offers: Sequence[tuple[Progress, Sequence[Candidate]]]) -> tuple[tuple[Progress, Candidate], ...]:
    """Choose at most one candidate a request, no GPU twice, with the largest sum of worth; of ties the most requests."""
    if len(offers) == 1:
        progress, candidates = offers[0]
        return ((progress, candidates[0]),)
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
