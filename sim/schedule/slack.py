"""PatchedServe's scheduler: the most urgent joins, if nobody is late for it and it speeds things up (Algorithm 1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import floor, inf
from typing import Literal

from conf.ranges import Number, Seconds
from sim.errors import ConfigError
from sim.parts import Run, Stepper, Worker
from sim.request import DISCARDED, Request
from sim.schedule.latency import Counts, Expected, Latency
from sim.schedule.memory import fits

LATE = "cannot meet its deadline even if it joins now"


@dataclass(slots=True)
class Kind:
    """Those of one model, size and number of steps that wait at a worker: among them the earliest deadline is the most
    urgent at any time, so that a decision looks at the first of every kind alone.

    Attributes:
        place: of its size in Counts.
        before_s, after_s: expected of its stages before the first and after the last step.
        alone_s: its standalone latency.
        waiting: a heap of (deadline, row, request).
    """

    model: str
    place: int
    left: int
    before_s: float
    after_s: float
    alone_s: float
    waiting: list[tuple[float, int, Request]] = field(default_factory=list)


@dataclass(slots=True)
class Active:
    """A request of the batch: its steps and seconds that are left besides steps, others' stages included."""

    request: Request
    left: int
    besides_s: float
    alone_s: float


@dataclass(slots=True)
class Slack:
    """Algorithm 1 of PatchedServe (6.2), at every boundary between two steps.

    The slack of a request is what is left until its deadline once its remaining stages are subtracted, over its
    standalone latency. Of those that wait the one with the least is the candidate; it is discarded for good where it
    would be late even if it joined now. Else it joins unless the active one with the least slack would be late for it,
    or the batch is not faster for it; then nobody joins before the next boundary.

    What waits is expected to step with the batch and itself, what is active with the batch as it is. Boundaries at
    which nothing new could be decided are not looked at: all slacks are linear in time between them.

    Args:
        executor: which must step.
        latency: what a step is expected to take.
        reading: of equation 1. ``merged``: (T_cur + T_cand) / T_new must be above the threshold, with T the seconds of
            a step of the batch, of the candidate alone and of both together. ``printed``: the equation as it stands,
            with throughputs 1 / T, which is the inverse and falls when batching helps.
        threshold: not printed; it is to cover the error of the prediction.
        overlap: decisions are made while the GPU works, as in PatchedServe; else each holds it for ``decide_s``.
        decide_s: seconds of a decision.
        interruptions: a step waits while others are prepared and decoded; count those that are known already.

    Raises:
        ConfigError: a run without deadlines, or an executor that does not step.
    """

    executor: Stepper
    latency: Latency
    reading: Literal["merged", "printed"] = "merged"
    threshold: Number = 1.0
    overlap: bool = True
    decide_s: Seconds = 0.001
    interruptions: bool = True
    _run: Run = field(init=False, repr=False)
    _expected: Expected = field(init=False, repr=False)
    _queues: dict[Worker, dict[tuple[str | None, int, int, int, int], Kind]] = field(
        init=False, default_factory=dict, repr=False
    )
    _waiting: int = field(init=False, default=0, repr=False)

    def bind(self, run: Run) -> None:
        """See Discipline.bind."""
        if run.workload.deadline == inf:
            raise ConfigError("discipline: slack is what is left until a deadline, and slo is empty; add slo=[5]")
        self._run = run
        self._expected = Expected(self.executor, self.latency)
        self._expected.bind(run)
        benefit = "(T_cur + T_cand) / T_new" if self.reading == "merged" else "T_new / (T_cur + T_cand)"
        run.assume("equation 1, threshold", f"{benefit} > {self.threshold:g}", "the paper prints no threshold")
        if self.interruptions:
            run.assume("others' stages between the steps of a request", "foreseen where they are known", "assumed")
        if not self.overlap:
            run.assume("seconds of a decision, in which no GPU works", self.decide_s, "assumed")

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        """See Discipline.add."""
        kinds = self._queues.setdefault(worker, {})
        key = (request.model, request.width, request.height, request.steps, request.left)
        kind = kinds.get(key)
        if kind is None:
            assert request.model is not None
            place = self._expected.place(request.width, request.height)
            stages = self._expected.stages_s(request.model, request.width, request.height)
            kind = kinds[key] = Kind(request.model, place, request.left, *stages, self._alone_s(request))
        heappush(kind.waiting, (request.deadline_s, request.row, request))
        self._waiting += 1

    def next(self, worker: Worker, now_s: float) -> Request | None:
        """See Discipline.next: lines 1 to 20."""
        kinds = self._queues.get(worker)
        if not kinds:
            return None
        executor = self.executor
        if not executor.between(worker):
            executor.ask(worker, self._run.pull)
            return None
        if not self.overlap:
            executor.owe(worker, self.decide_s)
        joining = executor.joining(worker)
        batch = [*executor.active(worker), *joining]
        counts = [0] * len(self._expected.sizes)
        for request in batch:
            counts[self._expected.place(request.width, request.height)] += 1
        now_counts = tuple(counts)
        while kinds:
            kind, new_s = self._candidate(kinds, now_counts, now_s)
            deadline_s, _, request = kind.waiting[0]
            if now_s + kind.before_s + kind.left * new_s + kind.after_s > deadline_s:
                self._take(kinds, kind)
                self._run.end(request, DISCARDED, LATE)
                continue
            if batch:
                act = None
                if kind.model == batch[0].model and fits(self._run, worker, [*batch, request]):
                    cur_s = self._expected.step_s(kind.model, now_counts)
                    actives = self._actives(batch, joining)
                    act = min(actives, key=lambda each: self._slack(each, cur_s, now_s))
                    extra_s = self._extra_s(kind, act)
                    if now_s + act.left * new_s + act.besides_s + extra_s <= act.request.deadline_s:
                        if self._speeds_up(kind, cur_s, new_s):
                            return self._take(kinds, kind)
                        act = None
                executor.ask(worker, self._run.pull, self._patience(kinds, kind, now_counts, new_s, act, batch, now_s))
                return None
            return self._take(kinds, kind)
        return None

    def leave(self, worker: Worker) -> Sequence[Request]:
        """See Discipline.leave."""
        left = [entry[2] for kind in self._queues.pop(worker, {}).values() for entry in kind.waiting]
        self._waiting -= len(left)
        return sorted(left, key=lambda request: request.row)

    # -- the quantities of 6.2 -------------------------------------------------------------------------------------

    def _candidate(
        self, kinds: dict[tuple[str | None, int, int, int, int], Kind], counts: Counts, now_s: float
    ) -> tuple[Kind, float]:
        """The kind whose first has the least slack, and the step that is expected with it in the batch."""
        best: tuple[float, int] | None = None
        for kind in kinds.values():
            new_s = self._expected.step_s(kind.model, _with(counts, kind.place))
            deadline_s, row, _ = kind.waiting[0]
            slack = (deadline_s - now_s - (kind.before_s + kind.left * new_s + kind.after_s)) / kind.alone_s
            if best is None or (slack, row) < best:
                best, found = (slack, row), (kind, new_s)
        return found

    def _actives(self, batch: Sequence[Request], joining: Sequence[Request]) -> list[Active]:
        """Those of ``batch``, of which some are still to be prepared."""
        stages = [self._expected.stages_s(r.model or "", r.width, r.height) for r in batch]
        if not self.interruptions:
            besides = [after_s for _, after_s in stages]
        else:
            ahead_s = sum(before_s for before_s, _ in stages[len(batch) - len(joining) :])
            besides = [0.0] * len(batch)
            for place in sorted(range(len(batch)), key=lambda i: (batch[i].left, i)):
                ahead_s += stages[place][1]
                besides[place] = ahead_s
        return [Active(r, r.left, s, self._alone_s(r)) for r, s in zip(batch, besides, strict=True)]

    def _extra_s(self, kind: Kind, act: Active) -> float:
        """What a candidate's own stages add before ``act`` is done."""
        if not self.interruptions:
            return 0.0
        return kind.before_s + (kind.after_s if kind.left < act.left else 0.0)

    def _slack(self, active: Active, step_s: float, now_s: float) -> tuple[float, int]:
        request = active.request
        remaining_s = active.left * step_s + active.besides_s
        return (request.deadline_s - now_s - remaining_s) / active.alone_s, request.row

    def _speeds_up(self, kind: Kind, cur_s: float, new_s: float) -> bool:
        alone_s = self._expected.step_s(kind.model, _with((0,) * len(self._expected.sizes), kind.place))
        merged = (cur_s + alone_s) / new_s
        return (merged if self.reading == "merged" else 1.0 / merged) > self.threshold

    def _alone_s(self, request: Request) -> float:
        workload = self._run.workload
        return workload.limit_s[request.row] / workload.deadline

    def _take(self, kinds: dict[tuple[str | None, int, int, int, int], Kind], kind: Kind) -> Request:
        """The first of ``kind`` waits no more."""
        request = heappop(kind.waiting)[2]
        self._waiting -= 1
        if not kind.waiting:
            del kinds[request.model, request.width, request.height, request.steps, request.left]
        return request

    # -- when there is something new to decide ---------------------------------------------------------------------

    def _patience(
        self,
        kinds: dict[tuple[str | None, int, int, int, int], Kind],
        kind: Kind,
        counts: Counts,
        new_s: float,
        act: Active | None,
        batch: Sequence[Request],
        refused_s: float,
    ) -> "_Patience":
        """Of a refusal: by ``act``, or because the candidate fits not, or speeds nothing up, whoever is active."""
        heads = []
        for each in kinds.values():
            step_s = self._expected.step_s(each.model, _with(counts, each.place))
            latest_s = each.waiting[0][0] - (each.before_s + each.left * step_s + each.after_s)
            heads.append((latest_s, each.alone_s))
            if each is kind:
                mine = heads[-1]
        if act is None:
            return _Patience(refused_s, heads, mine)
        actives = self._actives(batch, ())  # who joins has joined before the next step
        cur_s = self._expected.step_s(kind.model, counts)
        mine_there = next(each for each in actives if each.request is act.request)
        return _Patience(refused_s, heads, mine, actives, mine_there, cur_s, new_s, self._extra_s(kind, act))

    def __len__(self) -> int:
        return self._waiting


@dataclass(slots=True)
class _Patience:
    """See Patience. Between two boundaries the slack of who waits falls by a step over its standalone latency, that of
    who is active by as much as the step differs from what was expected; who is first, and which tests it passes,
    changes where two such lines cross. Never said later than it is.

    Args:
        refused_s: when, and there is nothing new then.
        heads: of who waits: the latest time to join, and the standalone latency; ``mine`` is the candidate's.
        actives, act: who is active, and the one that would be late; none where that is not the reason.
        cur_s, new_s: a step as expected without the candidate and with it; ``extra_s`` its stages.
    """

    refused_s: float
    heads: Sequence[tuple[float, float]]
    mine: tuple[float, float]
    actives: Sequence[Active] = ()
    act: Active | None = None
    cur_s: float = 0.0
    new_s: float = 0.0
    extra_s: float = 0.0

    def __call__(self, now_s: float, step_s: float) -> int:
        latest_s, alone_s = self.mine
        slack = (latest_s - now_s) / alone_s
        first = latest_s - now_s  # seconds until it is late itself
        for other_s, other_alone_s in self.heads:
            if other_alone_s < alone_s:  # falls faster
                first = min(first, ((other_s - now_s) / other_alone_s - slack) / (1 / other_alone_s - 1 / alone_s))
        steps = first / step_s if step_s > 0.0 else inf
        act = self.act
        if act is not None:
            left, gain_s = act.request.left, self.new_s - step_s
            late_s = now_s + left * self.new_s + act.besides_s + self.extra_s - act.request.deadline_s
            if late_s <= 0.0:
                steps = 0.0
            elif gain_s > 0.0:
                steps = min(steps, late_s / gain_s)
            drift_s = step_s - self.cur_s
            mine, fall = self._at(act, now_s), drift_s / act.alone_s
            for each in self.actives:
                faster = drift_s / each.alone_s - fall
                if faster > 0.0:
                    steps = min(steps, (self._at(each, now_s) - mine) / faster)
        return max(floor(min(steps, 1e9)), 1 if now_s == self.refused_s else 0)

    def _at(self, each: Active, now_s: float) -> float:
        remaining_s = each.request.left * self.cur_s + each.besides_s
        return (each.request.deadline_s - now_s - remaining_s) / each.alone_s


def _with(counts: Counts, place: int) -> Counts:
    return (*counts[:place], counts[place] + 1, *counts[place + 1 :])
