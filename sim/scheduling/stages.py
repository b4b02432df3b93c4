"""Scheduling of stages: a policy gives each stage its GPUs anew at every boundary (``scheduler=stages``)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor

from sim.core.clock import COMPLETION, DISPATCH, INSERTION, Clock, Entry
from sim.core.progress import Attempt, Progress
from sim.core.request import DISCARDED, Request
from sim.core.worker import Worker
from sim.protocols import Estimates, GroupPolicy, Launch, Run, Scheduler, StageCost, StageExecutor, StageView
from sim.protocols.execution import TOLERANCE


@dataclass(slots=True, eq=False)
class Running:
    """A launch from the decision to its end.

    Attributes:
        mask: its GPUs, one bit each.
        steps: steps that it runs; fewer after an interruption.
        cost: true cost of its stage.
        begin_s: instant of its first step; ``due`` is the clock's call at its end.
    """

    progress: Progress
    gpus: tuple[int, ...]
    mask: int
    steps: int
    cost: StageCost | None = None
    begin_s: float = 0.0
    due: Entry | None = None
    group: Worker | None = None
    is_moved: bool = False


@dataclass(slots=True)
class StageScheduler(Scheduler, StageView):
    """The group policy decides, this scheduler keeps time: launches, boundaries, moves and claims.

    After every event the policy decides. Its launches claim their GPUs at once. They start after all events of the
    instant, in the order of decision, each as soon as all its GPUs are idle; then the policy decides again, until
    nothing more starts. A launch is never interrupted within a step.
    """

    group_policy: GroupPolicy
    estimates: Estimates
    executor: StageExecutor
    waiting: dict[Progress, None] = field(init=False, default_factory=dict, repr=False)
    claimed: list[int] = field(init=False, repr=False)
    _degrees: dict[tuple[str | None, int], list[int]] = field(init=False, default_factory=dict, repr=False)
    _run: Run = field(init=False, repr=False)
    _clock: Clock = field(init=False, repr=False)
    _busy: int = field(init=False, default=0, repr=False)
    _bit: dict[tuple[int, ...], int] = field(init=False, default_factory=dict, repr=False)
    _submitted: int = field(init=False, default=0, repr=False)
    _queue: list[Running] = field(init=False, default_factory=list, repr=False)
    _launches: dict[Progress, Running] = field(init=False, default_factory=dict, repr=False)
    _attempts: dict[Progress, Attempt] = field(init=False, default_factory=dict, repr=False)
    _at_boundary: list[Progress] = field(init=False, default_factory=list, repr=False)
    _dispatch_due: bool = field(init=False, default=False, repr=False)

    def bind(self, run: Run) -> None:
        self._run, self._clock = run, run.clock
        self.claimed = [0] * run.cluster.gpus
        self.estimates.bind(run, self.executor.cost)
        self.group_policy.bind(run, self)

    def __len__(self) -> int:
        return len(self.waiting) + len(self._queue)

    # -- for the policy (sim.protocols.StageView) --------------------------------------------------------------------

    def idle(self) -> list[int]:
        return [gpu for gpu, count in enumerate(self.claimed) if not count]

    def degrees(self, progress: Progress) -> list[int]:
        key = model, most = progress.request.model, progress.stage.max_degree or len(self.claimed)
        found = self._degrees.get(key)
        if found is None:
            measured = {1, *self._run.backend.group_sizes(model)}
            found = self._degrees[key] = sorted(degree for degree in measured if degree <= most)
        return found

    def cost(self, progress: Progress, degree: int) -> StageCost:
        return self.estimates.cost(progress.request, progress.stage, degree)

    def remaining_s(self, progress: Progress, degree: int) -> float:
        stage, request = progress.stage, progress.request
        left = progress.left
        if progress.running:
            left -= self._passed(self._launches[progress])
        cost = self.estimates.cost(request, stage, min(degree, stage.max_degree or degree))
        seconds = cost.seconds(stage.steps - left, left, stage.steps)
        for later in progress.plan.stages[progress.index + 1 :]:
            cost = self.estimates.cost(request, later, min(degree, later.max_degree or degree))
            seconds += cost.seconds(0, later.steps, later.steps)
        return seconds

    def interrupt(self, progress: Progress) -> None:
        launch = self._launches.get(progress)
        if launch is None:
            return
        if launch.due is None or launch.cost is None:
            launch.steps = 1
            return
        cost, stage, now_s = launch.cost, progress.stage, self._clock._now
        begin_s = launch.begin_s if progress.done else launch.begin_s + cost.first_s
        behind = (now_s - begin_s) / cost.step_s if cost.step_s else launch.steps
        steps = max(1, ceil(behind - TOLERANCE))
        if steps < launch.steps and self._clock.cancel(launch.due):
            launch.steps = steps
            end_s = max(now_s, launch.begin_s + cost.seconds(progress.done, steps, stage.steps))
            launch.due = self._clock.at(end_s, COMPLETION, self._end, launch)

    def discard(self, progress: Progress, reason: str) -> None:
        if progress not in self.waiting:
            raise self._run.policy_error("group_policy", f"discards {progress!r}, which does not wait at a boundary")
        del self.waiting[progress]
        attempt = self._attempts.get(progress)
        if attempt is not None:
            self._close(progress, attempt)
        self._run.end(progress.request, DISCARDED, reason)

    def _passed(self, launch: Running) -> int:
        """Return the steps of a launch that ended by now; the last one ends with the launch."""
        cost = launch.cost
        assert cost is not None
        if not cost.step_s:
            return 0
        begin_s = launch.begin_s if launch.progress.done else launch.begin_s + cost.first_s
        return max(0, min(launch.steps - 1, floor((self._clock._now - begin_s) / cost.step_s + TOLERANCE)))

    def decide_at(self, time_s: float) -> None:
        self._clock.at(time_s, DISPATCH, self._tick)

    # -- events ------------------------------------------------------------------------------------------------------

    def offer(self, request: Request, now_s: float) -> None:
        progress = Progress(request, self._submitted, self.executor.plan(request))
        self._submitted += 1
        progress.paused_since_s = now_s
        self.waiting[progress] = None
        self.group_policy.arrived(progress, now_s)
        self._decide(now_s)

    def next(self, worker: Worker, now_s: float) -> None:
        return None

    def _tick(self, _: None) -> None:
        self._decide(self._clock._now)

    def _decide(self, now_s: float) -> None:
        if self.waiting:
            for launch in self.group_policy.decide(now_s):
                self._claim(launch)
        if self._queue:
            self._dispatch_later(now_s)

    def _dispatch_later(self, now_s: float) -> None:
        if not self._dispatch_due:
            self._dispatch_due = True
            self._clock.at(now_s, DISPATCH, self._dispatch)

    def _claim(self, launch: Launch) -> None:
        progress, gpus, steps = launch
        try:
            del self.waiting[progress]
        except (KeyError, TypeError):
            raise self._run.policy_error(
                "group_policy", f"launches {progress!r}, which does not wait at a boundary; launch requests of waiting"
            ) from None
        mask = self._bit.get(gpus) or self._mask(gpus, progress)
        if not 1 <= steps <= progress.left:
            raise self._run.policy_error("group_policy", f"launches {steps} steps of {progress!r}")
        for gpu in gpus:
            self.claimed[gpu] += 1
        decided = self._launches[progress] = Running(progress, gpus, mask, steps)
        self._queue.append(decided)

    def _mask(self, gpus: tuple[int, ...], progress: Progress) -> int:
        """Return the bits of ``gpus``. Raises SimulationError if they are no group of the cluster's GPUs."""
        is_group = isinstance(gpus, tuple) and gpus and len(set(gpus)) == len(gpus)
        if not is_group or not all(type(gpu) is int and 0 <= gpu < len(self.claimed) for gpu in gpus):
            raise self._run.policy_error(
                "group_policy",
                f"launches {progress!r} on the GPUs {gpus!r}; expected a tuple of different numbers from 0 to "
                f"{len(self.claimed) - 1}",
            )
        mask = self._bit[gpus] = sum(1 << gpu for gpu in gpus)
        return mask

    def _dispatch(self, _: None) -> None:
        """Start what can start, until the policy decides nothing more that can."""
        now_s = self._clock._now
        while True:
            started = False
            kept: list[Running] = []
            for launch in self._queue:
                if self._start(launch, now_s):
                    started = True
                else:
                    kept.append(launch)
            self._queue = kept
            if not started or not self.waiting:
                break
            decided = list(self.group_policy.decide(now_s))
            if not decided:
                break
            for each in decided:
                self._claim(each)
        self._dispatch_due = False
        for progress in self._at_boundary:
            if not progress.running:
                self._pause(progress, now_s)
        self._at_boundary.clear()

    def _start(self, launch: Running, now_s: float) -> bool:
        """Start ``launch`` if its GPUs are idle, with a move of its latent first if that takes time."""
        if launch.mask & self._busy:
            return False
        progress, last = launch.progress, launch.progress.group
        group = launch.group or self._run.cluster.group(launch.gpus)
        launch.group = group
        if last is not None and last is not group and not launch.is_moved:
            move_s = self.executor.move_s(progress, group)
            if move_s > 0.0:
                return self._move(launch, last, group, move_s, now_s)
        self._busy |= launch.mask
        self._run.cluster.occupy(group)
        attempt = self._attempts.get(progress)
        if attempt is not None and (attempt.group is not group or attempt.index != progress.index):
            self._close(progress, attempt)
            attempt = None
        if last is None:
            progress.request.start_s = now_s
        elif last is not group:
            progress.moves += 1
            progress.degree_changes += len(last.gpus) != len(group.gpus)
        if progress.pauses and progress.paused_since_s < now_s and last is not None:
            progress.paused_s += now_s - progress.paused_since_s
        if self._at_boundary and last is not group:
            self._close_on(launch.mask)
        ready_s = self.executor.prepare(progress, group, now_s)
        progress.group, progress.running = group, True
        if ready_s and attempt is not None:
            self._close(progress, attempt)
            attempt = None
        launch.begin_s = now_s + ready_s
        if attempt is None:
            self._attempts[progress] = Attempt(group, progress.index, progress.done, launch.begin_s, launch.begin_s)
        launch.cost = cost = self.executor.cost(progress.request, progress.stage, len(launch.gpus))
        end_s = launch.begin_s + cost.seconds(progress.done, launch.steps, progress.stage.steps)
        launch.due = self._clock.at(end_s, COMPLETION, self._end, launch)
        return True

    def _move(self, launch: Running, last: Worker, group: Worker, move_s: float, now_s: float) -> bool:
        both = tuple(sorted({*last.gpus, *group.gpus}))
        mask = self._bit.get(both) or self._mask(both, launch.progress)
        if mask & self._busy:
            return False
        union = self._run.cluster.group(both)
        self._busy |= mask
        self._run.cluster.occupy(union)
        self._clock.at(now_s + move_s, COMPLETION, self._moved, (launch, union, mask, now_s))
        return True

    def _moved(self, moved: tuple[Running, Worker, int, float]) -> None:
        launch, union, mask, from_s = moved
        now_s = self._clock._now
        self._busy &= ~mask
        self._run.cluster.vacate(union)
        if launch.progress in self._attempts:
            self._close(launch.progress, self._attempts[launch.progress])
        self.executor.moved(launch.progress, union, from_s, now_s)
        launch.is_moved = True
        self._queue.append(launch)
        self._decide(now_s)

    def _end(self, launch: Running) -> None:
        """End a launch at a step boundary: its GPUs are idle, and its request waits or has ended."""
        progress, group, now_s = launch.progress, launch.group, self._clock._now
        assert group is not None
        if self.group_policy.decides_before_release:
            self._decide(now_s)
        stage, attempt = progress.stage, self._attempts[progress]
        self._busy &= ~launch.mask
        self._run.cluster.vacate(group)
        for gpu in launch.gpus:
            self.claimed[gpu] -= 1
        progress.running, progress.paused_since_s = False, now_s
        del self._launches[progress]
        attempt.until_s, attempt.steps = now_s, attempt.steps + launch.steps
        self.estimates.observed(progress.request, stage, len(launch.gpus), launch.steps, now_s - launch.begin_s)
        if progress.advance(launch.steps):
            self._close(progress, attempt)
            self._clock.at(now_s, INSERTION, self._complete, progress)
        else:
            self.waiting[progress] = None
            self._at_boundary.append(progress)
            self._dispatch_later(now_s)
        self.group_policy.at_boundary(progress, now_s)
        self._decide(now_s)

    def _complete(self, progress: Progress) -> None:
        self.executor.complete(progress)
        now_s = self._clock._now
        self.group_policy.ended(progress, now_s)
        self._decide(now_s)

    def _pause(self, progress: Progress, now_s: float) -> None:
        """Count a boundary after which ``progress`` does not run on at once, and end its attempt."""
        progress.pauses += 1
        attempt = self._attempts.get(progress)
        if attempt is not None:
            self._close(progress, attempt)

    def _close_on(self, mask: int) -> None:
        """Close the attempts at a boundary whose GPUs another request takes, before anything is recorded on these."""
        for progress in self._at_boundary:
            attempt = self._attempts.get(progress)
            if attempt is not None and not progress.running and self._bit[attempt.group.gpus] & mask:
                self._close(progress, attempt)

    def _close(self, progress: Progress, attempt: Attempt) -> None:
        del self._attempts[progress]
        stage = progress.plan.stages[attempt.index]
        believed = self.estimates.cost(progress.request, stage, len(attempt.group.gpus))
        estimate_s = believed.seconds(attempt.done, attempt.steps, stage.steps)
        self.executor.ran(progress, attempt, estimate_s)

    def stranded(self) -> Sequence[tuple[Request, str]]:
        """Give up the requests that no event will ever run again, and return each with the reason."""
        why = "its group policy never launched it again"
        left = [*self.waiting, *(launch.progress for launch in self._queue)]
        self.waiting.clear()
        self._queue.clear()
        return [(progress.request, why) for progress in left]
