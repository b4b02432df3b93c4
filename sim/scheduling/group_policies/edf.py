"""Earliest deadline first on groups of any GPUs (GF-DiT, arXiv 2606.13501)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from conf.ranges import Count
from sim.core.progress import Progress
from sim.protocols import GroupPolicy, Launch, Run, StageView


def deadline_order(run: Run, waiting: Iterable[Progress]) -> list[Progress]:
    """Return ``waiting`` by deadline, then arrival, then order of submission."""
    return sorted(waiting, key=lambda each: (each.request.deadline_s, each.request.arrival_s, each.number))


def take(progress: Progress, degree: int, idle: list[int], stays: bool = True) -> tuple[int, ...]:
    """Take ``degree`` GPUs from ``idle``: the lowest numbers, or if it ``stays`` the last ones if they are as many."""
    last = progress.group if stays else None
    gpus = tuple(idle[:degree])
    if last is not None and len(last.gpus) == degree and set(last.gpus) <= set(idle):
        gpus = last.gpus
    for gpu in gpus:
        idle.remove(gpu)
    return gpus


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

    fit: str = "best"
    degrees: list[Count] = field(default_factory=list)
    steps: Count = 1
    one_gpu_stages: Literal["stay", "lowest"] = "stay"
    _run: Run = field(init=False, repr=False)
    _view: StageView = field(init=False, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._run, self._view = run, view

    def decide(self, now_s: float) -> list[Launch]:
        view = self._view
        idle = view.idle()
        if not idle:
            return []
        order = deadline_order(self._run, view.waiting)
        chosen: dict[Progress, int] = {}
        left = len(idle)
        for progress in order:
            if not left:
                break
            degree = self._degree(progress, left, now_s)
            if degree:
                chosen[progress] = degree
                left -= degree
        if self.fit == "best":
            self._widen(chosen, left)
        launches = []
        for progress, degree in chosen.items():
            stays = self.one_gpu_stages == "stay" or progress.stage.max_degree != 1
            launches.append(Launch(progress, take(progress, degree, idle, stays), min(self.steps, progress.left)))
        return launches

    def _allowed(self, progress: Progress, most: int) -> list[int]:
        degrees = self._view.degrees(progress)
        return [each for each in degrees if each <= most and (not self.degrees or each in self.degrees or each == 1)]

    def _degree(self, progress: Progress, left: int, now_s: float) -> int:
        view, degrees = self._view, self._allowed(progress, left)
        if self.fit == "best":
            for degree in degrees:
                if now_s + view.remaining_s(progress, degree) <= progress.request.deadline_s:
                    return degree
        return min(degrees, key=lambda degree: view.remaining_s(progress, degree), default=0)

    def _widen(self, chosen: dict[Progress, int], left: int) -> None:
        view = self._view
        while left:
            for progress, degree in chosen.items():
                wider = next((each for each in self._allowed(progress, degree + left) if each > degree), 0)
                if wider and view.remaining_s(progress, wider) < view.remaining_s(progress, degree):
                    chosen[progress] = wider
                    left -= wider - degree
                    break
            else:
                return
