"""Shortest remaining work first, with preemption between two steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sim.core.errors import ConfigError
from sim.core.request import Request
from sim.protocols import Discipline, Run, Stepper, Worker
from sim.scheduling.disciplines.priority_queue import PriorityQueue
from sim.scheduling.latency_predictor import Expected, LatencyPredictor


@dataclass(slots=True)
class ShortestRemaining(Discipline):
    """Those with the least work left are active, as many as a worker takes: who comes with less than an active one has
    left takes its place at the next boundary, and that one goes on later where it was, on the same worker.

    Work is the steps that are left, times what ``latency_predictor`` expects of a step of such an image alone.

    Raises ConfigError where add-ons are served: those of a preempted request may be gone when it resumes.
    """

    executor: Stepper
    latency_predictor: LatencyPredictor
    _expected: Expected = field(init=False, repr=False)
    _queue: PriorityQueue = field(init=False, default_factory=PriorityQueue, repr=False)
    _steps_s: dict[tuple[str | None, int, int], float] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        if run.workload.addons is not None:
            raise ConfigError("discipline: who is preempted cannot have add-ons; add addons=ignore")
        self._expected = Expected(run, self.executor, self.latency_predictor)

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        self._queue.add(worker, self._left_s(request), request)
        if not worker.has_capacity:
            self.executor.at_boundary(worker, self._preempt)

    def next(self, worker: Worker, now_s: float) -> Request | None:
        return self._queue.next(worker)

    def leave(self, worker: Worker) -> Sequence[Request]:
        return self._queue.leave(worker)

    def _preempt(self, worker: Worker) -> None:
        while (first := self._queue.first(worker)) is not None and not worker.has_capacity:
            active = [(self._left_s(request), request.row, request) for request in self.executor.active(worker)]
            if not active or max(active)[:2] <= first[:2]:
                return
            left_s, _, longest = max(active)
            self._queue.add(worker, left_s, longest)
            self.executor.preempt(worker, longest)

    def _left_s(self, request: Request) -> float:
        key = request.model, request.width, request.height
        step_s = self._steps_s.get(key)
        if step_s is None:
            place = self._expected.place(request.width, request.height)
            counts = tuple(int(i == place) for i in range(len(self._expected.sizes)))
            step_s = self._steps_s[key] = self._expected.step_s(request.model or "", counts)
        return request.steps_left * step_s

    def __len__(self) -> int:
        return len(self._queue)
