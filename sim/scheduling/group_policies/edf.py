"""Earliest deadline first on groups of any GPUs (GF-DiT, arXiv 2606.13501)."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf
from typing import Literal

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.protocols import NEVER, NOBODY, GroupPolicy, Launch, Rank, Run, StageView, Stand
from mezzotint.sim.protocols.execution import TOLERANCE
from mezzotint.sim.scheduling.group_policies.urgency import Queue, take, urgency, widen


@dataclass(slots=True)
class EarliestDeadline(GroupPolicy):
    """Requests at a boundary take GPUs in the order of their deadlines.

    With ``fit=best`` each takes the smallest degree that keeps its deadline, else the fastest that fits; GPUs that are
    left then widen the most urgent request that gains, one degree at a time. With ``fit=greedy`` each takes the fastest
    degree that fits. A running launch is left alone.

    Args:
        degrees: parallel degrees; empty takes all that the profile has.
        steps: steps of a launch, after which a request may get other GPUs.
        one_gpu_stages: GPU of a stage that runs on one alone: ``stay`` on the last one if it is idle, or the ``lowest``
            idle number (GF-DiT).
    """

    fit: Literal["best", "greedy"] = "best"
    degrees: list[Count] = field(default_factory=list)
    steps: Count = 1
    one_gpu_stages: Literal["stay", "lowest"] = "stay"
    follows_gpus: bool = field(init=False, default=True, repr=False)
    _view: StageView = field(init=False, repr=False)
    _waiting: Queue = field(init=False, default_factory=Queue, repr=False)
    """The requests at a boundary."""
    _has_new: bool = field(init=False, default=False, repr=False)
    """True if a request arrived or reached a boundary since the last decision."""
    _idle: int = field(init=False, default=0, repr=False)
    """GPUs left idle by the last decision."""

    def bind(self, run: Run, view: StageView) -> None:
        self._view = view

    def arrived(self, progress: Progress, now_s: float) -> None:
        self._waiting.add(progress)
        self._has_new = True

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        if progress.left:
            self.arrived(progress, now_s)

    def decide(self, now_s: float) -> list[Launch]:
        free = self._view.claimed.count(0)
        # Without new requests and newly idle GPUs, the decision would be the same as the last one.
        if not self._has_new and (not free or (free <= self._idle and not self._waiting)):
            self._idle = free
            return []
        idle = self._view.idle()
        chosen: dict[Progress, int] = {}
        for _, progress in self._waiting:
            if not free:
                break
            degree = self._degree(progress, free, now_s)
            if degree:
                chosen[progress] = degree
                free -= degree
        if self.fit == "best" and free:
            free = widen(chosen, free, lambda progress: self._allowed(progress, inf), self._view.remaining_s)
        for progress in chosen:
            self._waiting.leave(progress)
        self._idle, self._has_new = free, False
        launches = []
        for progress, degree in chosen.items():
            stays = self.one_gpu_stages == "stay" or progress.stage.max_degree != 1
            gpus = take(degree, idle, progress.last_gpus if stays else ())
            launches.append(Launch(progress, gpus, min(self.steps, progress.left), every=self.steps))
        return launches

    def _allowed(self, progress: Progress, max_degree: float) -> Sequence[int]:
        degrees = self._view.degrees(progress)
        if self.degrees:
            degrees = [degree for degree in degrees if degree in self.degrees]
        return degrees[: bisect_right(degrees, max_degree)]

    def _degree(self, progress: Progress, free: int, now_s: float) -> int:
        view, degrees = self._view, self._allowed(progress, free)
        if self.fit == "best":
            for degree in degrees:
                if now_s + view.remaining_s(progress, degree) <= progress.request.deadline_s:
                    return degree
        return min(degrees, key=lambda degree: view.remaining_s(progress, degree), default=0)

    def first_waiting(self) -> Rank:
        return self._waiting[0][0] if self._waiting else NOBODY

    def stands(self, progress: Progress, gpus: tuple[int, ...], begin_s: float) -> Stand:
        degree, steps = len(gpus), progress.left
        rank: Rank = urgency(progress)
        if self.fit == "best" and degree > 1:
            if not self._waiting:
                # It is as wide as idle GPUs allow, and a waiting request may be what keeps more from being idle.
                rank = NOBODY
                if not self._is_faster_when_wider(progress, degree):
                    return NEVER
            elif self._idle:
                return NEVER  # the next decision may widen it again
            else:
                steps = self._steps_until_narrower(progress, degree, begin_s)
        wider = next((allowed for allowed in self._allowed(progress, inf) if allowed > degree), 0)
        gains = wider and self._view.remaining_s(progress, wider) < self._view.remaining_s(progress, degree)
        return Stand(steps, rank, wider - degree - 1 if gains else inf)

    def _steps_until_narrower(self, progress: Progress, degree: int, now_s: float) -> int:
        """Return the steps on ``degree`` GPUs until fewer of them keep the deadline, or all that are left."""
        view, steps = self._view, progress.left
        if not view.estimates_are_exact:
            return min(self.steps, steps)
        step_s = view.cost(progress, degree).step_s
        for narrower in self._allowed(progress, degree - 1):
            gained_s = view.cost(progress, narrower).step_s - step_s
            late_s = now_s + view.remaining_s(progress, narrower) - progress.request.deadline_s
            if gained_s > 0.0:
                # Each step on the wider group gains time, until the narrower one keeps the deadline, too: at that
                # boundary the rule chooses it. Rounded to a boundary, up.
                rounds = ceil((max(0.0, late_s) / gained_s - TOLERANCE) / self.steps)
                steps = min(steps, max(1, rounds) * self.steps)
        return steps

    def _is_faster_when_wider(self, progress: Progress, degree: int) -> bool:
        """True if each degree up to ``degree`` is faster than the one below, so that idle GPUs lead to the same one."""
        step_s = [self._view.cost(progress, allowed).step_s for allowed in self._allowed(progress, degree)]
        return all(wider < narrower for narrower, wider in pairwise(step_s))
