"""super_p95: a queue at each group, where normal requests preempt tails (HpSuda/vllm-omni, July 2026)."""

from dataclasses import dataclass

from mezzotint.settings.ranges import Share
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.scheduling.group_policies.tails import GroupQueue, TailPolicy


@dataclass(slots=True)
class SuperP95(TailPolicy):
    """Each request goes at arrival to the group with the least weighted assigned seconds.

    Assigned seconds are full estimates until the answer. Ties: fewer assigned requests, weighted likewise, then fewer
    seconds of normal requests, then the lower number. Text encoding runs into the first step and the last step into
    decoding, without a boundary.

    Args:
        quota, degree: as of `TailPolicy`.
        tail_weight: weight of a tail's seconds beside a normal request's.
    """

    tail_weight: Share = 0.1

    def arrived(self, progress: Progress, now_s: float) -> None:
        self._classify(progress)
        self._assign(progress, min(self._groups, key=self._load))
        self._enqueue(progress)

    def _load(self, group: GroupQueue) -> tuple[float, float, float, int]:
        return (
            group.normal_s + self.tail_weight * group.tail_s,
            group.assigned_normals + self.tail_weight * group.assigned_tails,
            group.normal_s,
            group.index,
        )
