"""PatchedServe's scheduler (Algorithm 1): admit the request with the least slack, if the batch gains and is on time."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import floor, inf
from typing import Literal

from mezzotint.settings.ranges import Number, Seconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import DISCARDED, Request
from mezzotint.sim.core.sampling import Sampling
from mezzotint.sim.protocols import Discipline, Run, Stepper, Worker
from mezzotint.sim.scheduling.disciplines.pixel_budget import fits
from mezzotint.sim.scheduling.latency_predictor import Counts, ExpectedLatency, LatencyPredictor

DISCARD_REASON = "cannot meet its deadline even if it joins now"


@dataclass(slots=True)
class RequestClass:
    """The waiting requests of one model, kind and number of steps at a worker; the earliest deadline has least slack.

    Attributes:
        kind: index of its kind in Counts.
        steps_left: steps left of each request.
        before_s, after_s: expected seconds of the stages before the first and after the last step.
        standalone_s: standalone latency.
        waiting: heap of (deadline, row, request).
    """

    model: str
    kind: int
    steps_left: int
    before_s: float
    after_s: float
    standalone_s: float
    waiting: list[tuple[float, int, Request]] = field(default_factory=list)


ClassKey = tuple[str | None, int, int, int, int, int, Sampling | None]

ActiveRequests = Sequence[tuple[Request, float, float]]
"""For each request of a batch: the request, its remaining seconds besides its own steps, and its standalone latency."""

Heads = Sequence[tuple[float, float]]
"""For the head of each class: the latest time at which it can join in time, and its standalone latency."""


@dataclass(slots=True)
class Slack(Discipline):
    """Run Algorithm 1 of PatchedServe (6.2) at every step boundary.

    The slack of a request is its time to the deadline less its remaining latency, over its standalone latency. The
    candidate is the waiting request with the least slack. It is discarded if it would miss its deadline even if it
    joined now. It joins if batching is beneficial (equation 1) and the active request with the least slack then still
    meets its deadline.

    Remaining latency counts steps of the batch with the candidate for waiting requests, and of the present batch for
    active ones. Boundaries at which no decision can change are skipped, since slacks are linear in time between them.

    Args:
        reading: of equation 1. ``merged``: (T_cur + T_cand) / T_new must be above the threshold, with T the seconds of
            a step of the batch, the candidate alone and both. ``printed``: its inverse, lower when batching helps.
        threshold: of equation 1, to cover the prediction error; the paper prints no value.
        overlap: decide while the GPU works, as in PatchedServe; otherwise a decision holds the GPU for ``decide_s``.
        interruptions: count known stages of other requests (prepare, decode), during which a request's steps wait.

    Raises ConfigError for a run without deadlines, or an executor without step boundaries.
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
    _expected: ExpectedLatency = field(init=False, repr=False)
    _queues: dict[Worker, dict[ClassKey, RequestClass]] = field(init=False, default_factory=dict, repr=False)
    _class_of: dict[Worker, dict[Request, RequestClass]] = field(init=False, default_factory=dict, repr=False)
    """The class of each request that joined, and of some that have left since."""
    _empty: Counts = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        workload = run.workload
        if inf in workload.limit_s[workload.preload :]:
            raise ConfigError(
                "discipline: slack is the time left to a deadline, and slo is empty and not every request has one of "
                "its own; add slo=[5]"
            )
        self._run = run
        self._standalone_s = array("d", workload.standalone.total_s.tobytes())
        self._expected = ExpectedLatency(run, self.executor, self.latency_predictor)
        self._empty = (0,) * len(self._expected.kinds)
        benefit = "(T_cur + T_cand) / T_new" if self.reading == "merged" else "T_new / (T_cur + T_cand)"
        run.assume("equation 1, threshold", f"{benefit} > {self.threshold:g}", "the paper prints no threshold")
        if self.interruptions:
            run.assume("others' stages between the steps of a request", "foreseen where they are known", "assumed")
        if not self.overlap:
            run.assume("seconds of a decision, in which no GPU works", self.decide_s, "assumed")

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        classes = self._queues.setdefault(worker, {})
        key = _class_key(request)
        request_class = classes.get(key)
        if request_class is None:
            assert request.model is not None
            kind = self._expected.kind_index(request)
            stages = self._expected.stages_s(request)
            request_class = classes[key] = RequestClass(
                request.model, kind, request.steps_left, *stages, self._standalone_s[request.row]
            )
        heappush(request_class.waiting, (request.deadline_s, request.row, request))

    def next(self, worker: Worker, now_s: float) -> Request | None:
        classes = self._queues.get(worker)
        if not classes:
            return None
        executor = self.executor
        # A batch changes at boundaries only; the next one asks again.
        if not executor.is_at_boundary(worker):
            executor.at_boundary(worker, self._run.pull)
            return None
        if not self.overlap:
            executor.charge_overhead(worker, self.decide_s)
        # Requests admitted at this boundary count as of the batch before they step.
        joining = executor.joining(worker)
        batch = [*executor.active(worker), *joining]
        class_of = self._class_of.get(worker, {})
        # Requests that left are forgotten now and then; each time would cost more than they do.
        if len(class_of) > 4 * self.executor.max_batch:
            class_of = {request: class_of[request] for request in batch}
        self._class_of[worker] = class_of
        batch_classes = [class_of[request] for request in batch]
        counts = self._empty
        for request_class in batch_classes:
            counts = _add_one(counts, request_class.kind)
        # A candidate that is late makes room for the next one, at the same boundary.
        while classes:
            candidate, new_s, heads = self._candidate(classes, counts, now_s)
            deadline_s, _, request = candidate.waiting[0]
            # An end at the very deadline is in time (test_slack_scheduler_matches_algorithm_1).
            if now_s + candidate.before_s + candidate.steps_left * new_s + candidate.after_s > deadline_s:
                self._take(classes, candidate)
                self._run.end(request, DISCARDED, DISCARD_REASON)
                continue
            if batch:
                refusal = self._refusal(
                    worker, batch, batch_classes, len(joining), candidate, counts, new_s, heads, now_s
                )
                if refusal is not None:
                    executor.at_boundary(worker, self._run.pull, refusal)
                    return None
            class_of[request] = candidate
            return self._take(classes, candidate)
        return None

    def leave(self, worker: Worker) -> Sequence[Request]:
        left = [entry[2] for request_class in self._queues.pop(worker, {}).values() for entry in request_class.waiting]
        return sorted(left, key=lambda request: request.row)

    def _candidate(
        self, classes: dict[ClassKey, RequestClass], counts: Counts, now_s: float
    ) -> tuple[RequestClass, float, Heads]:
        """Return the class whose head has least slack, a step with it in the batch, and the heads, its own first."""
        min_slack, heads = (inf, 0), []
        for request_class in classes.values():
            step_s = self._expected.step_s(request_class.model, _add_one(counts, request_class.kind))
            deadline_s, row, _ = request_class.waiting[0]
            remaining_s = request_class.before_s + request_class.steps_left * step_s + request_class.after_s
            heads.append((deadline_s - remaining_s, request_class.standalone_s))
            slack = (deadline_s - now_s - remaining_s) / request_class.standalone_s
            # Of equal slack the earlier row: the order of classes is one of a dictionary.
            if (slack, row) < min_slack:
                min_slack, candidate, new_s = (slack, row), request_class, step_s
                # The candidate stays first among the heads, where Refusal expects it.
                heads[0], heads[-1] = heads[-1], heads[0]
        return candidate, new_s, heads

    def _refusal(
        self,
        worker: Worker,
        batch: Sequence[Request],
        batch_classes: Sequence[RequestClass],
        joining: int,
        candidate: RequestClass,
        counts: Counts,
        new_s: float,
        heads: Heads,
        now_s: float,
    ) -> "Refusal | None":
        """Lines 11 to 18: return None if the head of ``candidate`` may join, else when to decide again."""
        if candidate.model != batch_classes[0].model or not fits(self._run, worker, [*batch, candidate.waiting[0][2]]):
            return Refusal(now_s, heads)
        step_s = self._expected.step_s
        cur_s = step_s(candidate.model, counts)
        gain = (cur_s + step_s(candidate.model, _add_one(self._empty, candidate.kind))) / new_s
        if not (gain if self.reading == "merged" else 1.0 / gain) > self.threshold:
            return Refusal(now_s, heads)
        active = self._active(batch, batch_classes, joining)
        min_slack, urgent = inf, 0
        for index, (request, besides_s, standalone_s) in enumerate(active):
            slack = (request.deadline_s - now_s - (request.steps_left * cur_s + besides_s)) / standalone_s
            if slack < min_slack or (slack == min_slack and request.row < active[urgent][0].row):
                min_slack, urgent = slack, index
        request, besides_s, _ = active[urgent]
        extra_s, ends_first = 0.0, candidate.steps_left < request.steps_left
        if self.interruptions:
            extra_s = candidate.before_s + (candidate.after_s if ends_first else 0.0)
        if now_s + (request.steps_left * new_s + besides_s + extra_s) <= request.deadline_s:
            return None
        if joining:  # joining requests are prepared before the next step
            active = self._active(batch, batch_classes, 0)
        counted = candidate.steps_left if self.interruptions and ends_first else None
        return Refusal(now_s, heads, active, urgent, cur_s, new_s, extra_s, counted)

    def _active(self, batch: Sequence[Request], batch_classes: Sequence[RequestClass], joining: int) -> ActiveRequests:
        """Return the ActiveRequests of ``batch``, the last ``joining`` of which are still to be prepared."""
        besides = [request_class.after_s for request_class in batch_classes]
        if self.interruptions:
            ahead_s = 0.0
            for request_class in batch_classes[len(batch_classes) - joining :]:
                ahead_s += request_class.before_s
            # The request with the fewest steps left ends first, and its decoding delays all that end later.
            for member in sorted(range(len(batch)), key=lambda member: batch[member].steps_left):
                besides[member] = ahead_s = ahead_s + batch_classes[member].after_s
        return [
            (request, s, request_class.standalone_s)
            for request, s, request_class in zip(batch, besides, batch_classes, strict=True)
        ]

    def _take(self, classes: dict[ClassKey, RequestClass], taken_from: RequestClass) -> Request:
        request = heappop(taken_from.waiting)[2]
        if not taken_from.waiting:
            del classes[_class_key(request)]
        return request

    def __len__(self) -> int:
        return sum(
            len(request_class.waiting) for classes in self._queues.values() for request_class in classes.values()
        )


@dataclass(slots=True)
class Refusal:
    """A refused candidate: callable as StepsUntil, with a lower bound on the steps until the decision can change.

    Over one step the slack of a waiting request falls by the step's seconds over its standalone latency. That of an
    active one falls only as far as the step exceeds its expectation. Decisions change where two such lines cross.

    Args:
        refused_s: time of the refusal; nothing changes at that instant.
        heads: heads of the waiting classes, the candidate first.
        active, urgent: the batch, and the index of the request that would be late; empty for another reason.
        cur_s, new_s, extra_s: expected seconds of a step without and with the candidate, and of its stages.
        candidate_steps: steps of the candidate, if ``extra_s`` counts its last stage: that comes after the urgent
            request once this one has no more steps left. None if it is not counted.
    """

    refused_s: float
    heads: Heads
    active: ActiveRequests = ()
    urgent: int = -1
    cur_s: float = 0.0
    new_s: float = 0.0
    extra_s: float = 0.0
    candidate_steps: int | None = None

    def __call__(self, now_s: float, step_s: float) -> int:
        latest_s, standalone_s = self.heads[0]
        slack = (latest_s - now_s) / standalone_s
        change_s = latest_s - now_s  # until the candidate itself is late
        for other_s, other_alone_s in self.heads:
            # Slack falls by time over standalone latency: only of a shorter request can it overtake from above.
            if other_alone_s < standalone_s:  # its slack falls faster
                crossing_s = ((other_s - now_s) / other_alone_s - slack) / (1 / other_alone_s - 1 / standalone_s)
                change_s = min(change_s, crossing_s)
        steps = change_s / step_s if step_s > 0.0 else inf
        if self.active:
            steps = min(steps, self._steps_until_on_time(now_s, step_s))
        # Rounded down: too early a decision is repeated, too late a one is wrong
        # (test_refused_request_is_reconsidered_when_slack_order_or_lateness_changes).
        return max(floor(min(steps, 1e9)), 1 if now_s == self.refused_s else 0)

    def _steps_until_on_time(self, now_s: float, step_s: float) -> float:
        """Return the steps until the most urgent active request would be on time, or another is more urgent."""
        request, besides_s, standalone_s = self.active[self.urgent]
        late_s = now_s + request.steps_left * self.new_s + besides_s + self.extra_s - request.deadline_s
        # Steps took less than expected: it would be in time now.
        if late_s <= 0.0:
            return 0.0
        gain_s, drift_s, cur_s = self.new_s - step_s, step_s - self.cur_s, self.cur_s
        steps = late_s / gain_s if gain_s > 0.0 else inf
        if self.candidate_steps is not None:
            # From then on the candidate would end after the urgent request, and its last stage no longer counts
            # (test_slack_scheduler_matches_algorithm_1).
            steps = min(steps, max(request.steps_left - self.candidate_steps, 0))
        urgent_slack = (request.deadline_s - now_s - (request.steps_left * cur_s + besides_s)) / standalone_s
        for request, besides_s, other_s in self.active:
            faster = drift_s / other_s - drift_s / standalone_s
            if faster > 0.0:
                slack = (request.deadline_s - now_s - (request.steps_left * cur_s + besides_s)) / other_s
                steps = min(steps, (slack - urgent_slack) / faster)
        return steps


def _class_key(request: Request) -> ClassKey:
    size = request.width, request.height, request.frames
    return request.model, *size, request.steps, request.steps_left, request.sampling


def _add_one(counts: Counts, kind: int) -> Counts:
    return (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
