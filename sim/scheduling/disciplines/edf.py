"""Earliest deadline first."""

from dataclasses import dataclass, field

from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Run
from mezzotint.sim.scheduling.disciplines.ranked import Rank, RankedQueue


@dataclass(slots=True)
class Edf(RankedQueue):
    """Earliest deadline first: it joins as soon as its worker has capacity.

    Of equal deadlines the higher priority goes first, then the earlier arrival.
    """

    _priority: "memoryview[int]" = field(init=False, repr=False)

    def bind(self, run: Run) -> None:
        self._priority = run.workload.priority

    def rank(self, request: Request) -> Rank:
        return request.deadline_s, -self._priority[request.row]
