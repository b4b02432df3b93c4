"""MoDM's shared queues: hits in one, misses in another (MoDM, 5; its artifact's request scheduler)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Scheduler, Worker


@dataclass(slots=True)
class HitMiss(Scheduler):
    """Two queues, each first come, first served: workers of ``miss_role`` take misses, all others take hits.

    A hit is refined on the model of the worker that takes it.

    Args:
        large_takes_hits: True if a miss worker without misses takes a hit (MoDM's quality mode alone).
        miss_role: role of the workers that take misses.
    """

    large_takes_hits: bool = False
    miss_role: str = "large"
    _misses: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _hits: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _run: Run = field(init=False, repr=False)
    _find_worker: Callable[[str], Worker | None] = field(init=False, repr=False)
    _hit_roles: list[str] = field(init=False, default_factory=list, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        self._find_worker = run.cluster.least_loaded
        self._hit_roles = [role for role in run.models if role != self.miss_role]
        if self.large_takes_hits:
            self._hit_roles.append(self.miss_role)

    def offer(self, request: Request, now_s: float) -> Worker | None:
        find_worker = self._find_worker  # reading and then calling is faster than calling an attribute
        if request.plan.source == MISSING:
            worker = find_worker(self.miss_role)
            if worker is None:
                self._misses.append(request)
            return worker
        # The large model last: it takes hits only while all others are busy.
        for role in self._hit_roles:
            worker = find_worker(role)
            if worker is not None:
                refine_on(self._run, role, request)
                return worker
        self._hits.append(request)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        # Misses first, though hits may be older (test_large_worker_serves_waiting_misses_before_waiting_hits).
        if self._misses and worker.role == self.miss_role:
            return self._misses.popleft()
        if self._hits and (self.large_takes_hits or worker.role != self.miss_role):
            request = self._hits.popleft()
            refine_on(self._run, worker.role, request)
            return request
        return None

    def __len__(self) -> int:
        return len(self._misses) + len(self._hits)


def refine_on(run: Run, role: str, request: Request) -> None:
    """Plan ``request`` for the model in ``role``, if it is a hit."""
    if request.plan.source == MISSING:
        return
    model = run.models[role].name
    if request.model != model:
        run.assign(request, request.plan.on(model))
