"""Fixed groups: GPUs that stay together, each group with a queue of its own (``group_policy=fixed-groups``)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Literal

from mezzotint.settings.ranges import Count, Number, Seconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import GroupPolicy, Launch, Run, StageView


def size_of(request: Request) -> str:
    """Return the size class of ``request``, WIDTHxHEIGHT, by which settings name it."""
    return f"{request.width}x{request.height}"


def align_groups(count: int, degree: int) -> list[tuple[int, ...]]:
    """Return ``count`` groups of ``degree`` GPUs side by side, from GPU 0 on."""
    return [tuple(range(first * degree, (first + 1) * degree)) for first in range(count)]


Rank = tuple[float, float, int]
"""The order of a queue: the least rank first; the last number differs between requests."""


@dataclass(slots=True, eq=False)
class Lane:
    """A fixed group with its queue.

    Attributes:
        rivals: other groups that have one of its GPUs.
        queue: heap of the requests that wait, by rank.
        queued_s: estimated seconds of all steps left of the requests in ``queue``.
        owner: the request that runs on it, from its first step to its last or until another preempts it.
    """

    gpus: tuple[int, ...]
    rivals: list["Lane"] = field(default_factory=list, repr=False)
    queue: list[tuple[Rank, Progress]] = field(default_factory=list)
    queued_s: float = 0.0
    owner: Progress | None = None


@dataclass(slots=True)
class FixedGroups(GroupPolicy):
    """Assign a request to a fixed group at arrival; a group serves one request at a time.

    A launch runs all steps of a stage. Groups that share GPUs and are busy launch one step at a time: steps start in
    the order in which they were decided, each once all its GPUs are idle. What follows within a request is known ahead,
    so only its first launch takes the executor's ``launch_s``. A stage of a smaller ``max_degree`` takes the group's
    first GPUs.

    Args:
        groups: ``COUNTxDEGREE`` for groups side by side, such as 2x4. ``xDEGREE`` for as many as the cluster holds.
            Or a list of groups, each a list of GPUs; GPUs in none stay idle.
        assignment: ``round-robin`` takes the next group, whatever its load. ``least-backlog`` takes the group with the
            fewest estimated seconds of steps left, of ties the first. ``load-adaptive`` takes the next of the smallest
            groups under high load, and the next of the largest otherwise.
        order: ``fifo``. ``sjf`` runs the shortest request first. ``srtf`` runs the one with the least remaining time,
            and preempts at a step boundary. ``priority`` runs the highest priority first, then the earliest deadline.
            Ties go to the request that ran last, then to the earlier one.
        degree_by_size: WIDTHxHEIGHT -> degree of the groups for that size (RSSP); empty leaves all groups to all. Each
            size takes its turns separately.
        priority_by_size: WIDTHxHEIGHT -> priority with ``order=priority``; 0 for others.
        busy_gap_s: with ``load-adaptive``: after a gap of at most these seconds between two arrivals the load is high
            for ``busy_hold_s``.
        busy_requests: with ``load-adaptive``: the load is high while so many other requests are in the system.

    Source: RSSP is TetriServe's baseline (arXiv 2510.01565, 6.1), the other rules are GF-DiT's (arXiv 2606.13501).
    """

    groups: str | list[list[int]] = "x1"
    assignment: Literal["round-robin", "least-backlog", "load-adaptive"] = "round-robin"
    order: Literal["fifo", "sjf", "srtf", "priority"] = "fifo"
    degree_by_size: dict[str, Count] = field(default_factory=dict)
    priority_by_size: dict[str, Number] = field(default_factory=dict)
    busy_gap_s: Seconds = 120.0
    busy_hold_s: Seconds = 60.0
    busy_requests: Count = 2
    _view: StageView = field(init=False, repr=False)
    _lanes: list[Lane] = field(init=False, repr=False)
    _lane_of: dict[Progress, Lane] = field(init=False, default_factory=dict, repr=False)
    _turns: dict[str, int] = field(init=False, default_factory=dict, repr=False)
    _lanes_of_size: dict[str, list[Lane]] = field(init=False, default_factory=dict, repr=False)
    _changed: list[Lane] = field(init=False, default_factory=list, repr=False)
    _last_arrival_s: float = field(init=False, default=-inf, repr=False)
    _busy_until_s: float = field(init=False, default=-inf, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view = view
        groups = self._groups(len(view.claimed))
        self._lanes = [Lane(gpus) for gpus in groups]
        for lane in self._lanes:
            lane.rivals = [other for other in self._lanes if other is not lane and set(other.gpus) & set(lane.gpus)]
        for size, degree in self.degree_by_size.items():
            self._lanes_of_size[size] = [lane for lane in self._lanes if len(lane.gpus) == degree]
            if not self._lanes_of_size[size]:
                degrees = ", ".join(map(str, sorted({len(gpus) for gpus in groups})))
                raise ConfigError(
                    f"group_policy.degree_by_size: found {degree} for {size}, and no group has {degree} GPUs (degrees "
                    f"of group_policy.groups: {degrees}); name one of these, or add such groups"
                )

    def _groups(self, gpus: int) -> list[tuple[int, ...]]:
        """Return the GPUs of each group. Raises ConfigError if they are not the cluster's."""
        if isinstance(self.groups, str):
            match = re.fullmatch(r"(\d*)x([1-9]\d*)", self.groups)
            count, degree = (int(match[1] or gpus // int(match[2])), int(match[2])) if match else (0, 0)
            if count * degree != gpus:
                raise ConfigError(
                    f"group_policy.groups: found {self.groups!r} on {gpus} GPUs; expected COUNTxDEGREE with product "
                    f"{gpus}, such as {gpus}x1, or a list of lists of GPUs"
                )
            return align_groups(count, degree)
        for group in self.groups:
            if not group or len(set(group)) < len(group) or not all(0 <= gpu < gpus for gpu in group):
                raise ConfigError(
                    f"group_policy.groups: found the group {group} on {gpus} GPUs; expected different numbers from 0 "
                    f"to {gpus - 1}"
                )
        if not self.groups:
            raise ConfigError("group_policy.groups: found no group; name one or more")
        return [tuple(group) for group in self.groups]

    def arrived(self, progress: Progress, now_s: float) -> None:
        lane = self._assign(progress, now_s)
        self._last_arrival_s = now_s
        self._lane_of[progress] = lane
        owner = lane.owner
        self._push(lane, progress)
        if owner is None:
            self._changed.append(lane)
        elif self.order == "srtf" and self._rank(progress, lane) < self._rank(owner, lane):
            self._view.interrupt(owner)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        if not progress.left:
            return
        lane = self._lane_of[progress]
        # Without the submission index: of ties the request that ran last goes on.
        if self.order == "srtf" and lane.queue and lane.queue[0][0][:2] < self._rank(progress, lane)[:2]:
            self._push(lane, progress)
            lane.owner = None
        self._changed.append(lane)

    def restarted(self, progress: Progress, now_s: float) -> None:
        lane = self._lane_of[progress]
        queued = [waiting for _, waiting in lane.queue]
        if progress in queued:
            # What is left of it grew, so its rank and the backlog are computed anew.
            lane.queue.clear()
            lane.queued_s = 0.0
            for waiting in queued:
                self._push(lane, waiting)

    def ended(self, progress: Progress, now_s: float) -> None:
        lane = self._lane_of.pop(progress)
        lane.owner = None
        if lane.queue:
            self._changed.append(lane)

    def decide(self, now_s: float) -> list[Launch]:
        decided = []
        for lane in self._changed:
            owner = lane.owner
            if owner is None:
                lane.owner = self._pop(lane)
                for rival in lane.rivals:
                    if rival.owner is not None:
                        # From the next boundary on both run one step at a time, in turn.
                        self._view.interrupt(rival.owner)
            decided.append((lane, owner is not None))
        self._changed.clear()
        # Once all owners of the instant are known: a launch of all steps needs that no rival has one.
        return [self._launch(lane, ahead) for lane, ahead in decided]

    def _launch(self, lane: Lane, ahead: bool) -> Launch:
        """Return a launch of the owner: of all steps left, or of one if its group shares GPUs with a busy one."""
        progress = lane.owner
        assert progress is not None
        is_shared = any(rival.owner is not None for rival in lane.rivals)
        gpus = lane.gpus[: progress.stage.max_degree or None]
        return Launch(progress, gpus, 1 if is_shared else progress.left, ahead=ahead)

    def _push(self, lane: Lane, progress: Progress) -> None:
        lane.queued_s += self._view.remaining_s(progress, len(lane.gpus))
        heappush(lane.queue, (self._rank(progress, lane), progress))

    def _pop(self, lane: Lane) -> Progress:
        _, progress = heappop(lane.queue)
        lane.queued_s -= self._view.remaining_s(progress, len(lane.gpus))
        if not lane.queue:
            # Exactly 0: rounding must not make an empty queue look longer than another.
            lane.queued_s = 0.0
        return progress

    def _rank(self, progress: Progress, lane: Lane) -> Rank:
        if self.order == "fifo":
            return 0.0, 0.0, progress.submission_index
        if self.order == "priority":
            priority = self.priority_by_size.get(size_of(progress.request), 0.0)
            return -priority, progress.request.deadline_s, progress.submission_index
        return self._view.remaining_s(progress, len(lane.gpus)), 0.0, progress.submission_index

    def _assign(self, progress: Progress, now_s: float) -> Lane:
        """Choose the group of a new request."""
        size = size_of(progress.request) if self.degree_by_size else ""
        lanes: Sequence[Lane] = self._lanes_of_size.get(size, ()) if size else self._lanes
        if not lanes:
            raise ConfigError(
                f"group_policy.degree_by_size: found no degree for {size}, the size of the request in row "
                f"{progress.request.row}; name one for each size of the trace"
            )
        if self.assignment == "least-backlog":
            return self._least_backlog(lanes)
        if self.assignment == "load-adaptive":
            degrees = [len(lane.gpus) for lane in lanes]
            degree = min(degrees) if self._is_busy(now_s) else max(degrees)
            lanes, size = [lane for lane in lanes if len(lane.gpus) == degree], f"{size} {degree}"
        turn = self._turns.get(size, 0)
        self._turns[size] = turn + 1
        return lanes[turn % len(lanes)]

    def _least_backlog(self, lanes: Sequence[Lane]) -> Lane:
        """Return the group with the fewest estimated seconds left, of ties the first."""
        best, min_s = lanes[0], inf
        for lane in lanes:
            backlog_s = lane.queued_s
            if backlog_s < min_s:  # else what its owner has left would only add to it
                if lane.owner is not None:
                    backlog_s += self._view.remaining_s(lane.owner, len(lane.gpus))
                if backlog_s < min_s:
                    best, min_s = lane, backlog_s
        return best

    def _is_busy(self, now_s: float) -> bool:
        if now_s - self._last_arrival_s <= self.busy_gap_s:
            self._busy_until_s = now_s + self.busy_hold_s
        return now_s < self._busy_until_s or len(self._lane_of) >= self.busy_requests
