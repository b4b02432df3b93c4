"""Central pull: one queue of normal requests, from which groups pull by a risk rule (HpSuda/vllm-omni, July 2026)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

from mezzotint.settings.ranges import Amount, Count
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.progress import Progress
from mezzotint.sim.protocols import Launch, Run, StageView
from mezzotint.sim.scheduling.group_policies.tails import GroupQueue, TailPolicy


@dataclass(slots=True)
class QueueBand:
    """Another ``beta`` while ``min_waiting`` to ``max_waiting`` requests wait in the central queue."""

    beta: Amount = 0.625
    min_waiting: Count = 10
    max_waiting: Count = 27


@dataclass(slots=True)
class CentralPull(TailPolicy):
    """Normal requests wait in one queue; a group pulls the next when its last normal request is done.

    It pulls the request with the greatest risk: seconds since arrival + ``beta`` x estimate; ties: the earlier one. A
    tail that runs on the group is preempted at its next step boundary. Of several groups an idle one pulls first, then
    the one with the lower number. Tails go to a group at arrival.

    Args:
        quota, degree: as of `TailPolicy`.
        beta: weight of the estimate; 1 is max risk, 0.5 cost-damped.
        pulls: ``answered`` pulls once the last normal request was answered, ``handling.after_s`` after the GPUs were
            done; ``finished`` pulls at once. In between a tail may run.
        band: another ``beta`` by the length of the queue; None has none.
        tails: the group of a tail. ``spread`` takes the one with the fewest assigned seconds. ``pack`` takes the one
            with the most seconds of tails, or as ``spread`` while there are none. ``sink`` takes the one with the
            most seconds of normal requests.
        gate: hold a tail back until the central queue is empty and its group has no normal request of its own. Of tails
            released together the first starts at once and the others follow last in, first out.
        backfill: groups that are idle take tails that the gate holds back at others, the earliest first.
    """

    beta: Amount = 1.0
    pulls: Literal["finished", "answered"] = "answered"
    band: QueueBand | None = None
    tails: Literal["spread", "pack", "sink"] = "spread"
    gate: bool = False
    backfill: bool = False
    _queued: dict[Progress, None] = field(init=False, default_factory=dict, repr=False)
    _by_risk: dict[float, list[tuple[float, int, Progress]]] = field(init=False, default_factory=dict, repr=False)
    _pulling: dict[GroupQueue, None] = field(init=False, default_factory=dict, repr=False)
    """The groups whose last normal request is done."""
    _gated: dict[GroupQueue, list[Progress]] = field(init=False, default_factory=dict, repr=False)
    """The tails behind the gate of their group."""

    def __post_init__(self) -> None:
        if self.backfill and not self.gate:
            raise ConfigError("group_policy.backfill: found true with gate=false, which holds no tails; set gate=true")

    def bind(self, run: Run, view: StageView) -> None:
        TailPolicy.bind(self, run, view)
        self._pulling = dict.fromkeys(self._groups)
        self._by_risk = {beta: [] for beta in (self.beta, *(() if self.band is None else (self.band.beta,)))}

    def arrived(self, progress: Progress, now_s: float) -> None:
        assigned = self._classify(progress)
        if not assigned.is_tail:
            self._queued[progress] = None
            for beta, heap in self._by_risk.items():
                # Age + beta x estimate, less the present instant, which is the same for all: the order never changes
                # while they wait.
                rank = progress.request.arrival_s - beta * assigned.estimate_s
                heappush(heap, (rank, progress.submission_index, progress))
            return
        group = self._group_of_tail()
        self._assign(progress, group)
        if self.gate:
            self._gated.setdefault(group, []).append(progress)
        else:
            self._enqueue(progress)

    def at_boundary(self, progress: Progress, now_s: float) -> None:
        TailPolicy.at_boundary(self, progress, now_s)
        assigned = self._requests[progress]
        if not progress.left and self.pulls == "finished" and not assigned.is_tail and assigned.group is not None:
            self._pulling[assigned.group] = None

    def ended(self, progress: Progress, now_s: float) -> None:
        assigned = self._requests[progress]
        TailPolicy.ended(self, progress, now_s)
        if self.pulls == "answered" and not assigned.is_tail and assigned.group is not None:
            self._pulling[assigned.group] = None

    def decide(self, now_s: float) -> Iterator[Launch]:
        while self._queued and self._pulling:
            # A group that runs a tail would have to wait for the end of a step.
            group = min(self._pulling, key=lambda group: (group.running is not None, group.index))
            del self._pulling[group]
            progress = self._riskiest()
            self._assign(progress, group)
            self._enqueue(progress)
        if self._gated and not self._queued:
            self._release()
        return TailPolicy.decide(self, now_s)

    def _riskiest(self) -> Progress:
        """Take the request with the greatest risk from the central queue."""
        band, beta = self.band, self.beta
        if band is not None and band.min_waiting <= len(self._queued) <= band.max_waiting:
            beta = band.beta
        heap = self._by_risk[beta]
        while True:
            progress = heappop(heap)[2]
            if progress in self._queued:  # else it was pulled by the risk of another beta
                del self._queued[progress]
                return progress

    def _group_of_tail(self) -> GroupQueue:
        groups = self._groups
        if self.tails == "pack" and any(group.assigned_tails for group in groups):
            return max(groups, key=lambda group: (group.tail_s, -group.index))
        if self.tails == "sink":
            return max(groups, key=lambda group: (group.normal_s, -group.index))
        return min(groups, key=lambda group: (group.normal_s + group.tail_s, group.index))

    def _release(self) -> None:
        """Open the gates of groups without a normal request, and with ``backfill`` hand tails to idle groups."""
        for group in [holder for holder in self._gated if holder in self._pulling]:
            first, *others = self._gated.pop(group)
            starts = group.running is None and not group.tails
            # Queued tails run last in, first out: the last one queued is the one that starts
            # (test_tail_gate_is_replayed_exactly_on_its_own_seconds).
            for progress in [*others, first] if starts else [first, *others]:
                self._enqueue(progress)
        if self.backfill:
            for group in self._groups:
                if self._gated and group in self._pulling and group.running is None and not group.tails:
                    holder = min(self._gated, key=lambda group: self._gated[group][0].submission_index)
                    progress, *others = self._gated.pop(holder)
                    if others:
                        self._gated[holder] = others
                    self._assign(progress, group)
                    self._enqueue(progress)
