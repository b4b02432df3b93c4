"""PatchedServe's scheduler: the most urgent joins, if nobody is late for it and it speeds things up (Algorithm 1)."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import floor, inf
from typing import Literal

from conf.ranges import Number, Seconds
from sim.core.errors import ConfigError
from sim.core.request import DISCARDED, Request
from sim.protocols import Discipline, Run, Stepper, Worker
from sim.scheduling.disciplines.pixel_budget import fits
from sim.scheduling.latency_predictor import Counts, Expected, LatencyPredictor

LATE = "cannot meet its deadline even if it joins now"


@dataclass(slots=True)
class Kind:
    """Those of one model, size and number of steps that wait at a worker; the earliest deadline is the most urgent.

    Attributes:
        place: of its size in Counts.
        before_s, after_s: expected of its stages before the first and after the last step.
        standalone_s: its standalone latency.
        waiting: a heap of (deadline, row, request).
    """

    model: str
    place: int
    left: int
    before_s: float
    after_s: float
    standalone_s: float
    waiting: list[tuple[float, int, Request]] = field(default_factory=list)


Key = tuple[str | None, int, int, int, int]

Actives = Sequence[tuple[Request, float, float]]
"""Those of a batch: the request, its seconds left besides steps, others' stages included, its standalone latency."""

Heads = Sequence[tuple[float, float]]
"""Of the first of every kind that waits: the latest time to join, and the standalone latency."""


@dataclass(slots=True)
class Slack(Discipline):
    """Algorithm 1 of PatchedServe (6.2), at every boundary between two steps.

    The slack of a request is the time to its deadline less its remaining stages, over its standalone latency. The
    waiting one with the least is the candidate, discarded for good where it would be late even if it joined now. Else
    it joins unless the active one with the least slack would be late for it, or the batch is not faster for it.

    What waits is expected to step with the batch and itself, what is active with the batch as it is. Boundaries at
    which nothing new could be decided are skipped: all slacks are linear in time between them.

    Args:
        reading: of equation 1. ``merged``: (T_cur + T_cand) / T_new must be above the threshold, with T the seconds of
            a step of the batch, the candidate alone and both. ``printed``: its inverse, lower when batching helps.
        threshold: not printed; it is to cover the error of the prediction.
        overlap: decisions are made while the GPU works, as in PatchedServe; else each holds it for ``decide_s``.
        interruptions: a step waits while others are prepared and decoded; count those that are known already.

    Raises ConfigError for a run without deadlines, or an executor that does not step.
    """

    executor: Stepper
    latency_predictor: LatencyPredictor
    reading: Literal["merged", "printed"] = "merged"
    threshold: Number = 1.0
    overlap: bool = True
    decide_s: Seconds = 0.001
    interruptions: bool = True
    _run: Run = field(init=False, repr=False)
    _standalone_s: "array[float]" = field(init=False, repr=False)
    _expected: Expected = field(init=False, repr=False)
    _queues: dict[Worker, dict[Key, Kind]] = field(init=False, default_factory=dict, repr=False)
    _seated: dict[Worker, dict[Request, Kind]] = field(init=False, default_factory=dict, repr=False)
    """Who joined, and some who have left since."""
    _none: Counts = field(init=False, repr=False)
    _waiting: int = field(init=False, default=0, repr=False)

    def bind(self, run: Run) -> None:
        workload = run.workload
        if min(workload.deadline, workload.deadline_s) == inf:
            raise ConfigError("discipline: slack is what is left until a deadline, and slo is empty; add slo=[5]")
        self._run = run
        self._standalone_s = array("d", workload.standalone.total_s.tobytes())
        self._expected = Expected(run, self.executor, self.latency_predictor)
        self._none = (0,) * len(self._expected.sizes)
        benefit = "(T_cur + T_cand) / T_new" if self.reading == "merged" else "T_new / (T_cur + T_cand)"
        run.assume("equation 1, threshold", f"{benefit} > {self.threshold:g}", "the paper prints no threshold")
        if self.interruptions:
            run.assume("others' stages between the steps of a request", "foreseen where they are known", "assumed")
        if not self.overlap:
            run.assume("seconds of a decision, in which no GPU works", self.decide_s, "assumed")

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        kinds = self._queues.setdefault(worker, {})
        key = (request.model, request.width, request.height, request.steps, request.steps_left)
        kind = kinds.get(key)
        if kind is None:
            assert request.model is not None
            place = self._expected.place(request.width, request.height)
            stages = self._expected.stages_s(request.model, request.width, request.height)
            kind = kinds[key] = Kind(request.model, place, request.steps_left, *stages, self._standalone_s[request.row])
        heappush(kind.waiting, (request.deadline_s, request.row, request))
        self._waiting += 1

    def next(self, worker: Worker, now_s: float) -> Request | None:
        kinds = self._queues.get(worker)
        if not kinds:
            return None
        executor = self.executor
        if not executor.is_at_boundary(worker):
            executor.at_boundary(worker, self._run.pull)
            return None
        if not self.overlap:
            executor.charge_overhead(worker, self.decide_s)
        joining = executor.joining(worker)
        batch = [*executor.active(worker), *joining]
        seated = self._seated.get(worker, {})
        if len(seated) > 4 * self.executor.max_batch:
            seated = {request: seated[request] for request in batch}
        self._seated[worker] = seated
        there = [seated[request] for request in batch]
        counts = self._none
        if batch:
            several = list(counts)
            for kind in there:
                several[kind.place] += 1
            counts = tuple(several)
        while kinds:
            kind, new_s, heads = self._candidate(kinds, counts, now_s)
            deadline_s, _, request = kind.waiting[0]
            if now_s + kind.before_s + kind.left * new_s + kind.after_s > deadline_s:
                self._take(kinds, kind)
                self._run.end(request, DISCARDED, LATE)
                continue
            if batch:
                patience = self._refused(worker, batch, there, len(joining), kind, counts, new_s, heads, now_s)
                if patience is not None:
                    executor.at_boundary(worker, self._run.pull, patience)
                    return None
            seated[request] = kind
            return self._take(kinds, kind)
        return None

    def leave(self, worker: Worker) -> Sequence[Request]:
        left = [entry[2] for kind in self._queues.pop(worker, {}).values() for entry in kind.waiting]
        self._waiting -= len(left)
        return sorted(left, key=lambda request: request.row)

    def _candidate(self, kinds: dict[Key, Kind], counts: Counts, now_s: float) -> tuple[Kind, float, Heads]:
        """The kind whose first has the least slack, the step expected with it in the batch, and the heads, it first."""
        best, heads = (inf, 0), []
        for kind in kinds.values():
            step_s = self._expected.step_s(kind.model, _with(counts, kind.place))
            deadline_s, row, _ = kind.waiting[0]
            remaining_s = kind.before_s + kind.left * step_s + kind.after_s
            heads.append((deadline_s - remaining_s, kind.standalone_s))
            slack = (deadline_s - now_s - remaining_s) / kind.standalone_s
            if (slack, row) < best:
                best, found, new_s = (slack, row), kind, step_s
                heads[0], heads[-1] = heads[-1], heads[0]
        return found, new_s, heads

    def _refused(
        self,
        worker: Worker,
        batch: Sequence[Request],
        there: Sequence[Kind],
        joining: int,
        kind: Kind,
        counts: Counts,
        new_s: float,
        heads: Heads,
        now_s: float,
    ) -> "_Patience | None":
        """Lines 11 to 18: None where the first of ``kind`` may join."""
        if kind.model != there[0].model or not fits(self._run, worker, [*batch, kind.waiting[0][2]]):
            return _Patience(now_s, heads)
        step_s = self._expected.step_s
        cur_s = step_s(kind.model, counts)
        merged = (cur_s + step_s(kind.model, _with(self._none, kind.place))) / new_s
        if not (merged if self.reading == "merged" else 1.0 / merged) > self.threshold:
            return _Patience(now_s, heads)
        actives = self._actives(batch, there, joining)
        least, act = inf, 0
        for place, (request, besides_s, standalone_s) in enumerate(actives):
            slack = (request.deadline_s - now_s - (request.steps_left * cur_s + besides_s)) / standalone_s
            if slack < least or (slack == least and request.row < actives[act][0].row):
                least, act = slack, place
        request, besides_s, _ = actives[act]
        extra_s = 0.0
        if self.interruptions:
            extra_s = kind.before_s + (kind.after_s if kind.left < request.steps_left else 0.0)
        if now_s + (request.steps_left * new_s + besides_s + extra_s) <= request.deadline_s:
            return None
        if joining:  # who joins has joined before the next step
            actives = self._actives(batch, there, 0)
        return _Patience(now_s, heads, actives, act, cur_s, new_s, extra_s)

    def _actives(self, batch: Sequence[Request], there: Sequence[Kind], joining: int) -> Actives:
        """Those of ``batch``, the last ``joining`` of which are still to be prepared."""
        besides = [kind.after_s for kind in there]
        if self.interruptions:
            ahead_s = 0.0
            for kind in there[len(there) - joining :]:
                ahead_s += kind.before_s
            for place in sorted(range(len(batch)), key=lambda place: batch[place].steps_left):
                besides[place] = ahead_s = ahead_s + there[place].after_s
        return [(request, s, kind.standalone_s) for request, s, kind in zip(batch, besides, there, strict=True)]

    def _take(self, kinds: dict[Key, Kind], kind: Kind) -> Request:
        request = heappop(kind.waiting)[2]
        self._waiting -= 1
        if not kind.waiting:
            del kinds[request.model, request.width, request.height, request.steps, request.steps_left]
        return request

    def __len__(self) -> int:
        return self._waiting


@dataclass(slots=True)
class _Patience:
    """When there is something new to decide after a refusal, never said later than it is.

    Between two boundaries the slack of who waits falls by a step over its standalone latency, that of who is active by
    as much as the step differs from what was expected; decisions change where two such lines cross.

    Args:
        refused_s: when, and there is nothing new then.
        heads: of who waits, the candidate first.
        actives, act: who is active, and the one that would be late; none where that is not the reason.
        cur_s, new_s: a step as expected without the candidate and with it; ``extra_s`` its stages.
    """

    refused_s: float
    heads: Heads
    actives: Actives = ()
    act: int = -1
    cur_s: float = 0.0
    new_s: float = 0.0
    extra_s: float = 0.0

    def __call__(self, now_s: float, step_s: float) -> int:
        latest_s, standalone_s = self.heads[0]
        slack = (latest_s - now_s) / standalone_s
        first = latest_s - now_s  # seconds until it is late itself
        for other_s, other_alone_s in self.heads:
            if other_alone_s < standalone_s:  # falls faster
                first = min(first, ((other_s - now_s) / other_alone_s - slack) / (1 / other_alone_s - 1 / standalone_s))
        steps = first / step_s if step_s > 0.0 else inf
        if self.actives:
            steps = min(steps, self._in_time(now_s, step_s))
        return max(floor(min(steps, 1e9)), 1 if now_s == self.refused_s else 0)

    def _in_time(self, now_s: float, step_s: float) -> float:
        """Steps until the one that would be late would not be, or another is the most urgent."""
        request, besides_s, standalone_s = self.actives[self.act]
        late_s = now_s + request.steps_left * self.new_s + besides_s + self.extra_s - request.deadline_s
        if late_s <= 0.0:
            return 0.0
        gain_s, drift_s, cur_s = self.new_s - step_s, step_s - self.cur_s, self.cur_s
        steps = late_s / gain_s if gain_s > 0.0 else inf
        mine = (request.deadline_s - now_s - (request.steps_left * cur_s + besides_s)) / standalone_s
        for request, besides_s, other_s in self.actives:
            faster = drift_s / other_s - drift_s / standalone_s
            if faster > 0.0:
                slack = (request.deadline_s - now_s - (request.steps_left * cur_s + besides_s)) / other_s
                steps = min(steps, (slack - mine) / faster)
        return steps


def _with(counts: Counts, place: int) -> Counts:
    return (*counts[:place], counts[place] + 1, *counts[place + 1 :])
