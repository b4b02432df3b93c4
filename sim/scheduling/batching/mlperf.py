"""The batcher of NVIDIA's MLPerf harness: batches form by count and timeout, whether or not a worker is idle."""

from collections import deque
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count, Seconds
from mezzotint.sim.core.clock import CONTROL
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Scheduler, Worker
from mezzotint.sim.scheduling.batching.dynamic import Batch, check_max_batch


@dataclass(slots=True)
class MlperfBatching(Scheduler):
    """One first-in-first-out queue of batches; the next idle worker takes the oldest (``executor=static-batch``).

    A batch forms when ``max_batch`` requests wait, or when ``batch_timeout_s`` seconds have passed since the last one
    formed. The timeout is checked on each arrival, and after ``batch_timeout_s`` without one.

    Source: the harness of NVIDIA's MLPerf Inference submissions, SDXL, server scenario (rounds v4.1 and v5.1).

    Raises ConfigError if ``max_batch`` is above the executor's.
    """

    max_batch: Count = 8
    batch_timeout_s: Seconds = 5.0
    _run: Run = field(init=False, repr=False)
    _forming: Batch = field(init=False, default_factory=deque, repr=False)
    _formed: deque[Batch] = field(init=False, default_factory=deque, repr=False)
    _last_formed_s: float | None = field(init=False, default=None, repr=False)
    _last_arrival_s: float = field(init=False, default=0.0, repr=False)
    _timeout_set: bool = field(init=False, default=False, repr=False)
    _taken: dict[int, Batch] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        check_max_batch(run, self.max_batch, "scheduler.max_batch")

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self._forming.append(request)
        self._last_arrival_s = now_s
        if self._last_formed_s is None:
            self._last_formed_s = now_s  # the timeout runs from the first request
        if len(self._forming) >= self.max_batch or now_s - self._last_formed_s >= self.batch_timeout_s:
            self._form(now_s)
        elif not self._timeout_set:
            self._timeout_set = True
            self._run.clock.at(now_s + self.batch_timeout_s, CONTROL, self._on_timeout)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        batch = self._taken.get(worker.id)
        if not batch:
            if worker.running or not self._formed:
                return None
            batch = self._taken[worker.id] = self._formed.popleft()
        return batch.popleft()

    def _on_timeout(self, _: None) -> None:
        """Form a batch ``batch_timeout_s`` after an arrival, unless another request arrived since."""
        now_s, due_s = self._run.clock._now, self._last_arrival_s + self.batch_timeout_s
        # If another request came since, the harness waits for a pause of the whole timeout.
        self._timeout_set = bool(self._forming) and due_s > now_s
        if self._timeout_set:
            self._run.clock.at(due_s, CONTROL, self._on_timeout)
        elif self._forming:
            self._form(now_s)

    def _form(self, now_s: float) -> None:
        self._formed.append(self._forming)
        self._forming, self._last_formed_s = deque(), now_s
        # One worker: a batch is one worker's, and others find nothing formed.
        for worker in self._run.cluster.idle():
            self._run.pull(worker)
            return

    def __len__(self) -> int:
        return len(self._forming) + sum(map(len, (*self._formed, *self._taken.values())))
