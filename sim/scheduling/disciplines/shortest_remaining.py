"""Shortest remaining processing time, with preemption at step boundaries."""

from dataclasses import dataclass, field
from heapq import heappush

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run, Stepper, Worker
from mezzotint.sim.scheduling.disciplines.ranked import RankedQueue
from mezzotint.sim.scheduling.latency_predictor import ExpectedLatency, LatencyPredictor


@dataclass(slots=True)
class ShortestRemaining(RankedQueue):
    """Run the requests with the least remaining work, preempting longer ones at step boundaries.

    Remaining work is the steps left, times the seconds that ``latency_predictor`` expects of a step of such an image
    alone. A preempted request resumes later on the same worker.

    Raises ConfigError if add-ons are served: those of a preempted request may be evicted before it resumes.
    """

    executor: Stepper
    latency_predictor: LatencyPredictor
    _expected: ExpectedLatency = field(init=False, repr=False)
    _steps_s: dict[tuple[str | None, int], float] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run) -> None:
        if run.workload.addons is not None:
            raise ConfigError("discipline: a request that may be preempted cannot have add-ons; add addons=ignore")
        self._expected = ExpectedLatency(run, self.executor, self.latency_predictor)

    def rank(self, request: Request) -> float:
        key = request.model, self._expected.kind_index(request)
        step_s = self._steps_s.get(key)
        if step_s is None:
            counts = tuple(int(kind == key[1]) for kind in range(len(self._expected.kinds)))
            step_s = self._steps_s[key] = self._expected.step_s(request.model or "", counts)
        return request.steps_left * step_s

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        RankedQueue.add(self, worker, request, now_s)
        if not worker.has_capacity:
            self.executor.at_boundary(worker, self._preempt)

    def _preempt(self, worker: Worker) -> None:
        """At a step boundary, preempt the running request with the most remaining work if the queue head has less."""
        queue = self._queues.get(worker)
        while queue and not worker.has_capacity:
            active = [(self.rank(request), request.row, request) for request in self.executor.active(worker)]
            # Of equal remaining work the later row gives way, and never a request to one that came after it.
            if not active or max(active)[:2] <= queue[0][:2]:
                return
            longest = max(active)
            heappush(queue, longest)
            self.executor.preempt(worker, longest[-1])
