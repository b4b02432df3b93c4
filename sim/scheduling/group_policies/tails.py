"""Tail requests: the quota that names them at arrival, and groups of GPUs that run them behind all normal requests.

Source: HpSuda/vllm-omni (a fork of vLLM-Omni, July 2026), super_p95 and the schedulers after it. A percentile of the
normal requests is bought with the latency of a few long ones.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, Le

from mezzotint.settings.ranges import MOST, Count, Positive, Share
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.protocols import GroupPolicy, Launch, RequestColumn, Run, StageView
from mezzotint.sim.scheduling.group_policies.fixed_groups import align_groups


@dataclass(slots=True)
class TailQuota:
    """The requests that are tails: long ones, at most one in ``every`` on average, named at arrival.

    Every ``every``-th request earns a credit, and a tail costs one. A request is a tail if there is a credit and its
    estimate is long beside all estimates so far, its own included.

    Args:
        every: requests that earn a credit.
        min_of_longest: least estimate of a tail, as a share of the longest one.
        min_of_shortest: least estimate of a tail, as a multiple of the shortest one.
        counted: requests counted before the first, such as those of a warm-up.
    """

    every: Count = 20
    min_of_longest: Share = 0.8
    min_of_shortest: Positive = 1.5
    counted: Annotated[int, Ge(0), Le(MOST)] = 1
    _credits: int = field(init=False, default=0, repr=False)
    _shortest_s: float = field(init=False, default=float("inf"), repr=False)
    _longest_s: float = field(init=False, default=0.0, repr=False)

    def is_tail(self, estimate_s: float) -> bool:
        """Count the next request, and return True if it is a tail."""
        self.counted += 1
        # Before the request is judged: it may spend the credit that it earned itself.
        self._credits += self.counted % self.every == 0
        self._shortest_s = min(self._shortest_s, estimate_s)
        self._longest_s = max(self._longest_s, estimate_s)
        min_s = max(self.min_of_longest * self._longest_s, self.min_of_shortest * self._shortest_s)
        if not self._credits or estimate_s < min_s:
            return False
        self._credits -= 1
        return True


@dataclass(slots=True, eq=False)
class GroupQueue:
    """A fixed group of GPUs with a queue: normal requests FIFO, and behind them tails LIFO.

    A waiting normal request preempts a running tail at its next step boundary. A normal request is never preempted.

    Attributes:
        index: its index among the groups, for ties.
        normals, tails: its queue.
        running: the request on its GPUs.
        normal_s, tail_s: full estimates of the requests assigned to it and not answered.
        assigned_normals, assigned_tails: numbers of those requests.
    """

    gpus: tuple[int, ...]
    index: int
    normals: deque[Progress] = field(default_factory=deque)
    tails: list[Progress] = field(default_factory=list)
    running: Progress | None = None
    normal_s: float = 0.0
    tail_s: float = 0.0
    assigned_normals: int = 0
    assigned_tails: int = 0


@dataclass(slots=True, eq=False)
class Assigned:
    """A request and the group that it is assigned to; a normal one in a central queue has None yet."""

    estimate_s: float
    is_tail: bool
    group: GroupQueue | None = None


@dataclass(slots=True)
class TailPolicy(GroupPolicy):
    """All GPUs in groups of a fixed parallel degree, and the requests assigned to them until they are answered.

    Args:
        quota: which requests are tails.
        degree: GPUs of a group.

    Raises ConfigError if the cluster's GPUs do not divide evenly.
    """

    quota: TailQuota
    degree: Count = 1
    acts_on_answers: bool = field(init=False, default=True)
    _view: StageView = field(init=False, repr=False)
    _is_tail: RequestColumn = field(init=False, repr=False)
    _groups: list[GroupQueue] = field(init=False, repr=False)
    _requests: dict[Progress, Assigned] = field(init=False, default_factory=dict, repr=False)
    """The requests not answered yet."""
    _changed: dict[GroupQueue, None] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view, self._is_tail = view, run.add_column("tail", bool, default=False)
        gpus, degree = len(view.claimed), self.degree
        if gpus % degree:
            raise ConfigError(
                f"group_policy.degree: found {degree}, and {gpus} GPUs do not divide into groups of {degree}; choose a "
                "divisor of cluster.count"
            )
        self._groups = [GroupQueue(group, index) for index, group in enumerate(align_groups(gpus // degree, degree))]

    def _classify(self, progress: Progress) -> Assigned:
        """Take note of a new request, and of whether it is a tail."""
        estimate_s = self._view.remaining_s(progress, self.degree)
        is_tail = self._is_tail[progress.request.row] = self.quota.is_tail(estimate_s)
        assigned = self._requests[progress] = Assigned(estimate_s, is_tail)
        return assigned

    def _assign(self, progress: Progress, group: GroupQueue) -> None:
        """Assign ``progress`` to ``group``, and take it from the group that had it."""
        assigned = self._requests[progress]
        if assigned.group is not None:
            self._count(assigned, -1)
        assigned.group = group
        self._count(assigned, 1)

    def _enqueue(self, progress: Progress) -> None:
        """Append ``progress`` to the queue of its group."""
        assigned = self._requests[progress]
        assert assigned.group is not None
        (assigned.group.tails if assigned.is_tail else assigned.group.normals).append(progress)
        self._changed[assigned.group] = None

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        """Queue a request whose launch ended again if it has steps left, first in the queue.

        A preempted tail goes back to its place in the order of submission.
        """
        assigned = self._requests[progress]
        group = assigned.group
        assert group is not None
        group.running = None
        self._changed[group] = None
        if progress.left and not assigned.is_tail:
            # First again: a normal request is never preempted, and goes on with its next stage.
            group.normals.appendleft(progress)
        elif progress.left:
            order = progress.submission_index
            later = (index for index, tail in enumerate(group.tails) if tail.submission_index > order)
            group.tails.insert(next(later, len(group.tails)), progress)

    def ended(self, progress: Progress, now_s: float) -> None:
        self._count(self._requests.pop(progress), -1)

    def decide(self, now_s: float) -> Iterator[Launch]:
        """Launch the next request of each idle group; interrupt tails in the way of normal requests."""
        for group in list(self._changed):
            del self._changed[group]
            if group.running is None and (group.normals or group.tails):
                progress = group.running = group.normals.popleft() if group.normals else group.tails.pop()
                yield Launch(progress, group.gpus, progress.left)
            if group.normals and group.running is not None and self._requests[group.running].is_tail:
                self._view.interrupt(group.running)
                self._changed[group] = None  # it may not have started yet

    def _count(self, assigned: Assigned, sign: int) -> None:
        group = assigned.group
        assert group is not None
        if assigned.is_tail:
            group.assigned_tails += sign
            # Exactly 0 for an idle group: rounding must not make it look busy, since the least loaded is chosen.
            group.tail_s = group.tail_s + sign * assigned.estimate_s if group.assigned_tails else 0.0
        else:
            group.assigned_normals += sign
            group.normal_s = group.normal_s + sign * assigned.estimate_s if group.assigned_normals else 0.0
