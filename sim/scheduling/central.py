"""One queue for all workers, in the order of a discipline."""

from dataclasses import dataclass, field

from mezzotint.sim.core.clock import DISPATCH
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Discipline, Run, Scheduler, Worker


@dataclass(slots=True)
class CentralQueue(Scheduler):
    """One queue in the order of ``discipline``; the worker with the fewest running requests takes the next.

    Of such workers the longest idle takes it, whatever model it has. With ``discipline=fifo`` this is
    ``scheduler=fcfs``.

    Raises ConfigError for a discipline that looks at the batch of the worker that a request queues at.
    """

    discipline: Discipline
    _run: Run = field(init=False, repr=False)
    _queue: Worker = field(init=False, repr=False)
    """The worker that stands for all, as a discipline's queues have one each."""
    _worker_of: dict[Request, Worker] = field(init=False, default_factory=dict, repr=False)
    _tells_ends: bool = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        if hasattr(self.discipline, "executor"):
            raise ConfigError(
                f"discipline: found {class_name(self.discipline)}, which looks at the batch of one worker, beside "
                "scheduler=central, whose queue has none; choose discipline=edf, fair or fifo, or scheduler=per-worker"
            )
        self._run, self._queue = run, run.cluster.workers[0]
        self._tells_ends = getattr(type(self.discipline), "ended", Discipline.ended) is not Discipline.ended
        self.discipline.bind(run)

    def offer(self, request: Request, now_s: float) -> Worker | None:
        self.discipline.add(self._queue, request, now_s)
        worker = self._run.cluster.least_loaded()
        if worker is not None:
            self._run.pull(worker)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        request = self.discipline.next(self._queue, now_s)
        if request is not None and self._tells_ends:
            self._worker_of[request] = worker
        return request

    def request_ended(self, request: Request, now_s: float) -> None:
        if not self._tells_ends:
            return
        worker = self._worker_of.pop(request, None)
        if worker is None:  # the cache answered it, or it never left the queue
            return
        self.discipline.ended(worker, request, now_s)
        # The end may let another request run, and its own worker may be leaving
        # (test_tenant_below_its_limit_again_is_served_by_any_idle_worker).
        idle = self._run.cluster.least_loaded() if len(self.discipline) else None
        if idle is not None:
            self._run.clock.at(now_s, DISPATCH, self._run.pull, idle)

    def __len__(self) -> int:
        return len(self.discipline)
