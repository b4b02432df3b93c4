"""A batch former: queues by kind whose requests set out together, when they are enough or have waited long enough."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sim.core.clock import CONTROL
from sim.core.errors import ConfigError
from sim.core.request import Request
from sim.protocols import Run, Worker

Batch = deque[Request]


@dataclass(slots=True)
class BatchFormer:
    """Requests of one kind share a batch, in order; an idle worker is given one that is due.

    A batch is due when ``max_batch`` requests of its kind wait, or the first of them has waited ``max_wait_s`` seconds. It is
    closed when a worker takes it.

    Args:
        takers: by kind, the roles whose workers take its batches, first choice first; None is any role. A worker takes
            the kinds of its role in this order.

    Raises ConfigError for more requests in a batch than the executor takes at once.
    """

    run: Run
    max_batch: int
    max_wait_s: float
    takers: Mapping[str, Sequence[str | None]]
    kind: Callable[[Request], str]
    _waiting: dict[str, deque[tuple[float, Request]]] = field(init=False, repr=False)
    _taking: dict[int, Batch] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_max_batch(self.run, self.max_batch, "scheduler.max_batch")
        self._waiting = {kind: deque() for kind in self.takers}

    def add(self, request: Request, now_s: float) -> None:
        """``request`` waits from now on; a batch that is due with it is given to an idle worker."""
        kind = self.kind(request)
        queue = self._waiting[kind]
        queue.append((now_s, request))
        if self._is_due(kind, now_s):
            self._send(kind)
        elif len(queue) == 1:
            self.run.clock.at(now_s + self.max_wait_s, CONTROL, self._send, kind)

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """The next request of the batch that ``worker`` takes; an idle one is given a batch that is due, if any."""
        batch = self._taking.get(worker.id)
        if not batch:
            kinds = (kind for kind, roles in self.takers.items() if worker.role in roles or None in roles)
            due = None if worker.running else next((kind for kind in kinds if self._is_due(kind, now_s)), None)
            if due is None:
                return None
            batch = self._taking[worker.id] = self._close(due, now_s)
        return batch.popleft()

    def _is_due(self, kind: str, now_s: float) -> bool:
        queue = self._waiting[kind]
        return bool(queue) and (len(queue) >= self.max_batch or now_s >= queue[0][0] + self.max_wait_s)

    def _close(self, kind: str, now_s: float) -> Batch:
        queue, batch = self._waiting[kind], Batch()
        while queue and len(batch) < self.max_batch:
            batch.append(queue.popleft()[1])
            if queue:  # the next in line waits from when it came
                self.run.clock.at(max(queue[0][0] + self.max_wait_s, now_s), CONTROL, self._send, kind)
        return batch

    def _send(self, kind: str) -> None:
        for role in self.takers[kind]:
            for worker in self.run.cluster.idle(role):
                if not self._is_due(kind, self.run.clock._now):
                    return
                self.run.pull(worker)

    def __len__(self) -> int:
        waiting = sum(len(queue) for queue in self._waiting.values())
        return waiting + sum(len(batch) for batch in self._taking.values())


def check_max_batch(run: Run, most: int, key: str) -> None:
    """Raise ConfigError where ``max_batch`` requests in a batch, set by ``key``, are more than the executor's limit."""
    limit = run.cluster.workers[0].max_batch
    if most > limit:
        raise ConfigError(
            f"{key}: found {most}; the executor takes {limit} at once: raise executor.max_batch or choose "
            "executor=static-batch"
        )
