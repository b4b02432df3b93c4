"""A batch former: a queue for each kind of request, from which batches leave when they are full or have waited."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mezzotint.sim.core.clock import CONTROL
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Worker

Batch = deque[Request]


@dataclass(slots=True)
class BatchFormer:
    """Batches requests of one kind, in order of arrival; an idle worker takes a batch that is due.

    A batch is due when ``max_batch`` requests of its kind wait, or the oldest has waited ``max_wait_s`` seconds. It is
    closed when a worker takes it.

    Args:
        takers: by kind, the roles whose workers take its batches, first choice first; None is any role. A worker takes
            the kinds of its role in this order.

    Raises ConfigError if ``max_batch`` is above the executor's.
    """

    run: Run
    max_batch: int
    max_wait_s: float
    takers: Mapping[str, Sequence[str | None]]
    kind: Callable[[Request], str]
    _waiting: dict[str, deque[tuple[float, Request]]] = field(init=False, repr=False)
    _taken: dict[int, Batch] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_max_batch(self.run, self.max_batch, "scheduler.max_batch")
        self._waiting = {kind: deque() for kind in self.takers}

    def add(self, request: Request, now_s: float) -> None:
        """Queue ``request``; if a batch is due with it, let an idle worker take it."""
        kind = self.kind(request)
        queue = self._waiting[kind]
        queue.append((now_s, request))
        # Full: at once. Else a timer for the oldest alone; the next head gets its own when it becomes the head.
        if self._is_due(kind, now_s):
            self._offer_due(kind)
        elif len(queue) == 1:
            self.run.clock.at(now_s + self.max_wait_s, CONTROL, self._offer_due, kind)

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """Return the next request of the batch of ``worker``, or None; an idle worker first takes a due batch."""
        batch = self._taken.get(worker.id)
        if not batch:
            kinds = (kind for kind, roles in self.takers.items() if worker.role in roles or None in roles)
            due = None if worker.running else next((kind for kind in kinds if self._is_due(kind, now_s)), None)
            if due is None:
                return None
            batch = self._taken[worker.id] = self._close(due, now_s)
        return batch.popleft()

    def _is_due(self, kind: str, now_s: float) -> bool:
        queue = self._waiting[kind]
        return bool(queue) and (len(queue) >= self.max_batch or now_s >= queue[0][0] + self.max_wait_s)

    def _close(self, kind: str, now_s: float) -> Batch:
        queue, batch = self._waiting[kind], Batch()
        while queue and len(batch) < self.max_batch:
            batch.append(queue.popleft()[1])
            if queue:  # the new head has waited since its arrival
                self.run.clock.at(max(queue[0][0] + self.max_wait_s, now_s), CONTROL, self._offer_due, kind)
        return batch

    def _offer_due(self, kind: str) -> None:
        for role in self.takers[kind]:
            for worker in self.run.cluster.idle(role):
                # The pull of the worker before may have taken all that was due.
                if not self._is_due(kind, self.run.clock._now):
                    return
                self.run.pull(worker)

    def __len__(self) -> int:
        waiting = sum(len(queue) for queue in self._waiting.values())
        return waiting + sum(len(batch) for batch in self._taken.values())


def check_max_batch(run: Run, max_batch: int, key: str) -> None:
    """Raise ConfigError if ``max_batch``, set by ``key``, is above the executor's."""
    limit = run.cluster.workers[0].max_batch
    if max_batch > limit:
        raise ConfigError(
            f"{key}: found {max_batch}; the executor takes {limit} at once: raise executor.max_batch or choose "
            "executor=static-batch"
        )
