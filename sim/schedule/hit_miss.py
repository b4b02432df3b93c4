"""MoDM's shared queues: hits in one, misses in another (MoDM, 5; its artifact's request scheduler)."""

from collections import deque
from dataclasses import dataclass, field

from sim.cluster.worker import Worker
from sim.engine import Engine
from sim.request import Request


@dataclass(slots=True)
class HitMiss:
    """Workers of role ``large`` take misses, those of role ``small`` take hits; each queue in order.

    Args:
        large_takes_hits: a large worker that finds no miss takes a hit and refines it on its own model
            (MoDM's quality mode); in throughput mode it does not.
    """

    large_takes_hits: bool = False
    _misses: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _hits: deque[Request] = field(init=False, default_factory=deque, repr=False)
    _large: deque[Worker] = field(init=False, default_factory=deque, repr=False)
    _small: deque[Worker] = field(init=False, default_factory=deque, repr=False)
    _engine: Engine = field(init=False, repr=False)

    def bind(self, engine: Engine) -> None:
        """See Scheduler.bind."""
        self._engine = engine

    def offer(self, request: Request, now_s: float) -> Worker | None:
        """See Scheduler.offer."""
        if not request.hit:
            if self._large:
                return self._large.popleft()
            self._misses.append(request)
            return None
        if self._small:
            return self._small.popleft()
        if self.large_takes_hits and self._large:
            worker = self._large.popleft()
            self._refine_on(worker, request)
            return worker
        self._hits.append(request)
        return None

    def free(self, worker: Worker, now_s: float) -> Request | None:
        """See Scheduler.free."""
        if worker.role == "large":
            if self._misses:
                return self._misses.popleft()
            if self.large_takes_hits and self._hits:
                request = self._hits.popleft()
                self._refine_on(worker, request)
                return request
            self._large.append(worker)
        else:
            if self._hits:
                return self._hits.popleft()
            self._small.append(worker)
        return None

    def _refine_on(self, worker: Worker, request: Request) -> None:
        self._engine.assign(request, self._engine.model(worker.role))

    def __len__(self) -> int:
        return len(self._misses) + len(self._hits)
