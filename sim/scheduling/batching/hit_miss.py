"""MoDM with static batches: batches of hits and batches of misses (executor=static-batch)."""

from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count, Seconds
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Scheduler, Worker
from mezzotint.sim.scheduling.batching.former import BatchFormer
from mezzotint.sim.scheduling.hit_miss import refine_on


@dataclass(slots=True)
class HitMissBatching(Scheduler):
    """Workers of ``miss_role`` take batches of misses, all others batches of hits; a batch never mixes them.

    A hit is refined on the model of the worker that takes it. A batch of ``max_batch`` requests starts at once; a
    smaller one starts when its oldest request has waited ``max_wait_s`` seconds.

    Args:
        max_batch: requests in a batch at most.
        max_wait_s: seconds that the oldest request waits for a full batch.
        large_takes_hits: True if a miss worker takes a batch of hits when none of misses is due (MoDM's quality mode).
        miss_role: role of the workers that take misses.

    Raises ConfigError if ``max_batch`` is above the executor's.
    """

    max_batch: Count = 8
    max_wait_s: Seconds = 5.0
    large_takes_hits: bool = False
    miss_role: str = "large"
    _former: BatchFormer = field(init=False, repr=False)
    _run: Run = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        smaller = [role for role in run.models if role != self.miss_role]
        takers = {"miss": [self.miss_role], "hit": [*smaller, self.miss_role] if self.large_takes_hits else smaller}
        kind = lambda request: "miss" if request.plan.source == MISSING else "hit"  # noqa: E731
        self._former = BatchFormer(run, self.max_batch, self.max_wait_s, takers, kind)

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self._former.add(request, now_s)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        request = self._former.next(worker, now_s)
        if request is not None and request.plan.source != MISSING:
            refine_on(self._run, worker.role, request)
        return request

    def __len__(self) -> int:
        return len(self._former)
