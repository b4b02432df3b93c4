"""The batching server of NVIDIA's MLPerf harness: batches are formed by count and by the clock, whoever is free."""

from collections import deque
from dataclasses import dataclass, field

from conf.ranges import Count, Seconds
from sim.core.clock import CONTROL
from sim.core.request import Request
from sim.protocols import Run, Scheduler, Worker
from sim.scheduling.batching.former import Batch, check_max_batch


@dataclass(slots=True)
class MlperfBatching(Scheduler):
    """One first-in-first-out queue of batches for all workers (``executor=static-batch``); the next free one takes one.

    A batch leaves when ``max_batch`` requests wait, or when ``batch_timeout_s`` seconds have passed since the last was
    formed, looked at on each arrival and after as long without one: whether or not a worker is free to take it.

    Source: the harness of NVIDIA's MLPerf Inference submissions, SDXL, server scenario (rounds v4.1 and v5.1).

    Raises ConfigError for a batch above what the executor takes.
    """

    max_batch: Count = 8
    batch_timeout_s: Seconds = 5.0
    _run: Run = field(init=False, repr=False)
    _forming: Batch = field(init=False, default_factory=deque, repr=False)
    _formed: deque[Batch] = field(init=False, default_factory=deque, repr=False)
    _waiting: int = field(init=False, default=0, repr=False)
    _last_formed_s: float | None = field(init=False, default=None, repr=False)
    _last_came_s: float = field(init=False, default=0.0, repr=False)
    _looks: bool = field(init=False, default=False, repr=False)
    _taking: dict[int, Batch] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        self._run = run
        check_max_batch(run, self.max_batch, "scheduler.max_batch")

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self._forming.append(request)
        self._waiting += 1
        self._last_came_s = now_s
        if self._last_formed_s is None:
            self._last_formed_s = now_s  # the clock runs from the first request
        if len(self._forming) >= self.max_batch or now_s - self._last_formed_s >= self.batch_timeout_s:
            self._form(now_s)
        elif not self._looks:
            self._looks = True
            self._run.clock.at(now_s + self.batch_timeout_s, CONTROL, self._look)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        batch = self._taking.get(worker.id)
        if not batch:
            if worker.running or not self._formed:
                return None
            batch = self._taking[worker.id] = self._formed.popleft()
        self._waiting -= 1
        return batch.popleft()

    def _look(self, _: None) -> None:
        """``batch_timeout_s`` after some arrival: those who wait leave, unless another came since."""
        self._looks = False
        now_s = self._run.clock._now
        due_s = self._last_came_s + self.batch_timeout_s
        if not self._forming:
            return
        if due_s > now_s:
            self._looks = True
            self._run.clock.at(due_s, CONTROL, self._look)
        else:
            self._form(now_s)

    def _form(self, now_s: float) -> None:
        self._formed.append(self._forming)
        self._forming, self._last_formed_s = deque(), now_s
        for worker in self._run.cluster.idle():
            self._run.pull(worker)
            return

    def __len__(self) -> int:
        return self._waiting
