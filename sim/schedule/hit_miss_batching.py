"""MoDM in front of whole batches: a batch former for hits, another for misses (executor=whole-batch)."""

from dataclasses import dataclass, field

from conf.ranges import Count, Seconds
from sim.clock import CONTROL
from sim.parts import Run, Scheduler, Worker
from sim.request import MISSING, Request
from sim.schedule.former import Former, refuse_over


@dataclass(slots=True)
class HitMissBatching(Scheduler):
    """Workers of one role take batches of misses, all others batches of hits; no batch has both, so it has one model.

    A hit is refined on the model of whichever worker takes it. Within a batch hits skip different numbers of steps: the
    executor shares each step among those that still have some.

    Args:
        most: requests in a batch; a batch of as many need not wait.
        wait_s: seconds after which a request sets out with whoever is there, as soon as a worker of its kind is idle.
        large_takes_hits: a worker for misses of which no batch is due takes one of hits (MoDM's quality mode).
        miss_role: the role of the workers that take misses.

    Raises:
        ConfigError: a batch below 1, above what the executor takes, or a negative time.
    """

    most: Count = 8
    wait_s: Seconds = 5.0
    large_takes_hits: bool = False
    miss_role: str = "large"
    _misses: Former = field(init=False, repr=False)
    _hits: Former = field(init=False, repr=False)
    _run: Run = field(init=False, repr=False)
    _roles: dict[int, list[str]] = field(init=False, repr=False)
    _given: dict[int, tuple[Former, int]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._misses, self._hits = Former(self.most, self.wait_s), Former(self.most, self.wait_s)

    def bind(self, run: Run) -> None:
        self._run = run
        refuse_over(run.cluster.workers[0].limit, self.most, "scheduler.most")
        smaller = [role for role in run.models if role != self.miss_role]
        takers = [*smaller, self.miss_role] if self.large_takes_hits else smaller
        self._roles = {id(self._misses): [self.miss_role], id(self._hits): takers}

    def offer(self, request: Request, now_s: float) -> Worker | None:
        """A batch is asked for by ``next``, its first request too."""
        former = self._misses if request.source == MISSING else self._hits
        former.add(request, now_s)
        if former.due(now_s):
            self._send(former)
        elif len(former) == 1:
            self._run.clock.at(former.due_s(), CONTROL, self._send, former)
        return None

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """An idle worker is given a batch that is due, one request at a time."""
        if not worker.aboard:
            due = next((former for former in self._of(worker) if former.due(now_s)), None)
            self._given[worker.id] = (self._hits, 0) if due is None else (due, self.most)
        former, left = self._given.get(worker.id, (self._hits, 0))
        if not left or not len(former):
            self._given[worker.id] = (former, 0)
            return None
        self._given[worker.id] = (former, left - 1)
        request = former.take()
        if former is self._hits:
            model = self._run.models[worker.role]
            if request.model != model.name:
                self._run.assign(request, model)
        if len(former):  # the next in line waits from when it came
            self._run.clock.at(max(former.due_s(), now_s), CONTROL, self._send, former)
        return request

    def _of(self, worker: Worker) -> tuple[Former, ...]:
        """Whose batches ``worker`` takes, in that order."""
        if worker.role != self.miss_role:
            return (self._hits,)
        return (self._misses, self._hits) if self.large_takes_hits else (self._misses,)

    def _send(self, former: Former) -> None:
        """Have idle workers take the batches of ``former`` that are due."""
        for role in self._roles[id(former)]:
            for worker in self._run.cluster.idle(role):
                if not former.due(self._run.clock._now):
                    return
                self._run.pull(worker)

    def __len__(self) -> int:
        return len(self._misses) + len(self._hits)
