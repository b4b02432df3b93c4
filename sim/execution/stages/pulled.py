"""Whole requests on the workers that a scheduler gave them to, as launches of stages."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView


@dataclass(slots=True)
class Pulled(GroupPolicy):
    """Launch each stage of a request on its worker: the group policy where a scheduler chooses the workers.

    Attributes:
        workers: the worker of each request.
    """

    workers: dict[Progress, Worker] = field(init=False, default_factory=dict)
    _view: StageView = field(init=False, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view = view

    def decide(self, now_s: float) -> Iterator[Launch]:
        for progress in list(self._view.waiting):
            yield Launch(progress, self.workers[progress].gpus, progress.left)
