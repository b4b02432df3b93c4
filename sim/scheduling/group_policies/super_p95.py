"""super_p95: a queue at each group, where normal requests preempt tails (HpSuda/vllm-omni, July 2026)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count, Share
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.protocols import GroupPolicy, Launch, RequestColumn, Run, StageView
from mezzotint.sim.scheduling.group_policies.tails import Assigned, GroupQueue, GroupQueues, TailQuota


@dataclass(slots=True)
class SuperP95(GroupPolicy):
    """Each request goes at arrival to the group with the least weighted assigned seconds.

    Assigned seconds are full estimates until the answer. Ties: fewer assigned requests, weighted likewise, then fewer
    seconds of normal requests, then the lower number. Text encoding runs into the first step and the last step into
    decoding, without a boundary.

    Args:
        quota: which requests are tails.
        degree: GPUs of a group.
        tail_weight: weight of a tail's seconds beside a normal request's.
    """

    quota: TailQuota
    degree: Count = 1
    tail_weight: Share = 0.1
    acts_on_answers: bool = field(init=False, default=True)
    _groups: GroupQueues = field(init=False, repr=False)
    _view: StageView = field(init=False, repr=False)
    _is_tail: RequestColumn = field(init=False, repr=False)

    def bind(self, run: Run, view: StageView) -> None:
        self._view, self._groups = view, GroupQueues.of(view, self.degree)
        self._is_tail = run.add_column("tail", bool, default=False)

    def arrived(self, progress: Progress, now_s: float) -> None:
        estimate_s = self._view.remaining_s(progress, self.degree)
        is_tail = self.quota.is_tail(estimate_s)
        self._is_tail[progress.request.row] = is_tail
        groups = self._groups
        groups.requests[progress] = Assigned(estimate_s, is_tail)
        groups.assign(progress, min(groups.all, key=self._load))
        groups.enqueue(progress)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        self._groups.at_boundary(progress)

    def ended(self, progress: Progress, now_s: float) -> None:
        self._groups.remove(progress)

    def decide(self, now_s: float) -> Iterator[Launch]:
        return self._groups.launches()

    def _load(self, group: GroupQueue) -> tuple[float, float, float, int]:
        return (
            group.normal_s + self.tail_weight * group.tail_s,
            group.assigned_normals + self.tail_weight * group.assigned_tails,
            group.normal_s,
            group.index,
        )
