"""A fixed parallel degree: first come, first served on any idle GPUs (``group_policy=fixed-degree``)."""

from collections import deque
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView
from mezzotint.sim.scheduling.group_policies.fixed_groups import size_of


@dataclass(slots=True)
class FixedDegree(GroupPolicy):
    """A request waits for as many idle GPUs as its size takes, and holds them to its end; no request overtakes it.

    It takes the GPUs that were idle longest, as first come, first served does with workers (`scheduler=fcfs`).

    Args:
        degree: GPUs of a request.
        degree_by_size: WIDTHxHEIGHT -> GPUs of a request of that size, in place of ``degree``.

    Source: xDiT with one degree, and RSSP, a degree by size: baselines of TetriServe (arXiv 2510.01565, 6.1).
    """

    degree: Count = 1
    degree_by_size: dict[str, Count] = field(default_factory=dict)
    follows_gpus: bool = field(init=False, default=True, repr=False)
    _queue: deque[Progress] = field(init=False, default_factory=deque, repr=False)
    _between_stages: list[Progress] = field(init=False, default_factory=list, repr=False)
    _gpus_of: dict[Progress, tuple[int, ...]] = field(init=False, default_factory=dict, repr=False)
    _free: list[int] = field(init=False, repr=False)
    """GPUs that no request holds, the longest idle first; those that are away among them."""
    _view: StageView = field(init=False, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view, gpus = view, len(view.claimed)
        self._free = list(range(gpus))
        stated = {"degree": self.degree, **{f"degree_by_size.{size}": n for size, n in self.degree_by_size.items()}}
        key, widest = max(stated.items(), key=lambda item: item[1])
        if widest > gpus:
            raise ConfigError(f"group_policy.{key}: found {widest}, and the cluster has {gpus} GPUs; lower it")

    def arrived(self, progress: Progress, now_s: float) -> None:
        self._queue.append(progress)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        if progress.left:
            self._between_stages.append(progress)

    def ended(self, progress: Progress, now_s: float) -> None:
        self._free += self._gpus_of.pop(progress)

    def decide(self, now_s: float) -> list[Launch]:
        ready, queue, claimed = [], self._queue, self._view.claimed
        for progress in self._between_stages:
            if any(claimed[gpu] for gpu in self._gpus_of[progress]):  # one of its GPUs is away
                self._free += self._gpus_of.pop(progress)
                queue.appendleft(progress)
            else:
                ready.append(progress)
        self._between_stages.clear()
        away: list[int] = []
        if any(map(claimed.__getitem__, self._free)):
            away = [gpu for gpu in self._free if claimed[gpu]]
            # Idle from its return on, so it goes last.
            self._free = [gpu for gpu in self._free if not claimed[gpu]] + away
        while queue:
            degree = self.degree
            if self.degree_by_size:
                degree = self.degree_by_size.get(size_of(queue[0].request), degree)
            if degree > len(self._free) - len(away):
                break
            progress = queue.popleft()
            self._gpus_of[progress], self._free = tuple(self._free[:degree]), self._free[degree:]
            ready.append(progress)
        return [
            Launch(progress, self._gpus_of[progress][: progress.stage.max_degree or None], progress.left)
            for progress in ready
        ]
