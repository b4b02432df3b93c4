"""Shortest remaining work first, with preemption between two steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from sim.errors import ConfigError
from sim.parts import Run, Stepper, Worker
from sim.request import Request
from sim.schedule.latency import Expected, Latency

Entry = tuple[float, int, Request]


@dataclass(slots=True)
class ShortestRemaining:
    """Those with the least work left are active, as many as a worker takes: who comes with less than an active one has
    left takes its place at the next boundary, and that one goes on later where it was, on the same worker.

    Work is the steps that are left, times what a step takes of such an image alone.

    Args:
        executor: which must step.
        latency: what a step is expected to take.

    Raises:
        ConfigError: add-ons are served: those of who goes on later may be gone by then.
    """

    executor: Stepper
    latency: Latency
    _run: Run = field(init=False, repr=False)
    _expected: Expected = field(init=False, repr=False)
    _queues: dict[Worker, list[Entry]] = field(init=False, default_factory=dict, repr=False)
    _steps_s: dict[tuple[str | None, int, int], float] = field(init=False, default_factory=dict, repr=False)
    _waiting: int = field(init=False, default=0, repr=False)

    def bind(self, run: Run) -> None:
        """See Discipline.bind."""
        if run.workload.addons is not None:
            raise ConfigError("discipline: who is preempted cannot have add-ons; add addons=ignore")
        self._run, self._expected = run, Expected(self.executor, self.latency)
        self._expected.bind(run)

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        """See Discipline.add."""
        self._wait(worker, request)
        if not worker.has_room:
            self.executor.ask(worker, self._preempt)

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """See Discipline.next."""
        queue = self._queues.get(worker)
        if not queue:
            return None
        self._waiting -= 1
        return heappop(queue)[2]

    def leave(self, worker: Worker) -> Sequence[Request]:
        """See Discipline.leave."""
        left = [entry[2] for entry in self._queues.pop(worker, ())]
        self._waiting -= len(left)
        return sorted(left, key=lambda request: request.row)

    def _preempt(self, worker: Worker) -> None:
        """At a boundary: whoever has more left than who waits gives way."""
        queue = self._queues.get(worker)
        while queue and not worker.has_room:
            longest = max(map(self._entry, self.executor.active(worker)), default=None)
            if longest is None or longest[:2] <= queue[0][:2]:
                return
            self._wait(worker, longest[2])
            self.executor.park(worker, longest[2])

    def _wait(self, worker: Worker, request: Request) -> None:
        heappush(self._queues.setdefault(worker, []), self._entry(request))
        self._waiting += 1

    def _entry(self, request: Request) -> Entry:
        key = request.model, request.width, request.height
        step_s = self._steps_s.get(key)
        if step_s is None:
            place = self._expected.place(request.width, request.height)
            counts = tuple(int(i == place) for i in range(len(self._expected.sizes)))
            step_s = self._steps_s[key] = self._expected.step_s(request.model or "", counts)
        return request.left * step_s, request.row, request

    def __len__(self) -> int:
        return self._waiting
