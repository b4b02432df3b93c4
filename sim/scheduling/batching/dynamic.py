"""Dynamic batching, as in inference servers: a batch starts when it is full or its oldest request has waited enough."""

from collections import deque
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count, Seconds
from mezzotint.sim.core.clock import CONTROL
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Scheduler, Worker

Batch = deque[Request]


@dataclass(slots=True)
class DynamicBatching(Scheduler):
    """One queue for all workers; an idle worker takes a whole batch (``executor=static-batch``).

    A batch is due when ``max_batch`` requests wait, or the oldest has waited ``max_wait_s`` seconds. It is closed when
    a worker takes it.

    Raises ConfigError if ``max_batch`` is above the executor's.
    """

    max_batch: Count = 8
    max_wait_s: Seconds = 5.0
    _run: Run = field(init=False, repr=False)
    _waiting: deque[tuple[float, Request]] = field(init=False, default_factory=deque, repr=False)
    _taken: dict[int, Batch] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        check_max_batch(run, self.max_batch, "scheduler.max_batch")

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self._waiting.append((now_s, request))
        # Full: at once. Else a timer for the oldest alone; the next head gets its own when it becomes the head.
        if self._is_due(now_s):
            self._offer_due()
        elif len(self._waiting) == 1:
            self._run.clock.at(now_s + self.max_wait_s, CONTROL, self._offer_due)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        batch = self._taken.get(worker.id)
        if not batch:
            if worker.running or not self._is_due(now_s):
                return None
            batch = self._taken[worker.id] = self._close(now_s)
        return batch.popleft()

    def _is_due(self, now_s: float) -> bool:
        queue = self._waiting
        return bool(queue) and (len(queue) >= self.max_batch or now_s >= queue[0][0] + self.max_wait_s)

    def _close(self, now_s: float) -> Batch:
        queue, batch = self._waiting, Batch()
        while queue and len(batch) < self.max_batch:
            batch.append(queue.popleft()[1])
            if queue:  # the new head has waited since its arrival
                self._run.clock.at(max(queue[0][0] + self.max_wait_s, now_s), CONTROL, self._offer_due)
        return batch

    def _offer_due(self, _: None = None) -> None:
        for worker in self._run.cluster.idle():
            # The pull of the worker before may have taken all that was due.
            if not self._is_due(self._run.clock._now):
                return
            self._run.pull(worker)

    def __len__(self) -> int:
        return len(self._waiting) + sum(map(len, self._taken.values()))


def check_max_batch(run: Run, max_batch: int, key: str) -> None:
    """Raise ConfigError if ``max_batch``, set by ``key``, is above the executor's."""
    limit = run.cluster.workers[0].max_batch
    if max_batch > limit:
        raise ConfigError(
            f"{key}: found {max_batch}; the executor takes {limit} at once: raise executor.max_batch or choose "
            "executor=static-batch"
        )
