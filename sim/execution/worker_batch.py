"""What the step-by-step executor knows of a worker: who is active on it, and the time and energy that were theirs."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from operator import attrgetter, sub

from backends.base import FREE, Cost
from sim.core.clock import Entry
from sim.core.request import Request
from sim.protocols import StepCosts, StepsUntil, Worker
from sim.protocols.execution import TOLERANCE


@dataclass(slots=True)
class BatchTotals:
    """Sums over the steps of a worker; a request's share is the difference of two.

    Attributes:
        steps_s: seconds; share_s, batch_s: the integrals of 1 / batch and of the batch.
        idle_s: seconds between steps that all active ones waited through together, over the batch.
        joules, metered_s: measured joules over the batch, and the seconds of share_s and idle_s that they are of.
    """

    steps_s: float = 0.0
    share_s: float = 0.0
    batch_s: float = 0.0
    idle_s: float = 0.0
    joules: float = 0.0
    metered_s: float = 0.0

    def copy(self) -> "BatchTotals":
        return BatchTotals(self.steps_s, self.share_s, self.batch_s, self.idle_s, self.joules, self.metered_s)

    def meter(self, seconds: float, joules: float | None, batch: int) -> None:
        if joules is not None:
            self.joules += joules / batch
            self.metered_s += seconds / batch

    def minus(self, other: "BatchTotals") -> "BatchTotals":
        return BatchTotals(*map(sub, SUMS(self), SUMS(other)))


SUMS = attrgetter(*BatchTotals.__slots__)


@dataclass(slots=True)
class ConstantStepCosts:
    """A Course whose steps cost the same, and reuse nothing."""

    step: Cost

    @property
    def longest_s(self) -> float:
        return self.step.seconds

    def seconds(self, count: int) -> float:
        return self.step.seconds * count

    def joules(self, count: int) -> float | None:
        return None if self.step.joules is None else self.step.joules * count

    def steps_by(self, elapsed_s: float) -> int:
        return ceil(elapsed_s / self.step.seconds - TOLERANCE)

    def reused(self, count: int) -> Sequence[float]:
        return ()


@dataclass(slots=True, eq=False)
class Slot:
    """An active request: the totals when it joined, the energy of its own stages, and the steps that reuse spared it."""

    request: Request
    since: BatchTotals
    joules: float = 0.0
    metered_s: float = 0.0
    reused: float = 0.0

    def note(self, cost: Cost) -> None:
        if cost.joules is not None:
            self.joules += cost.joules
            self.metered_s += cost.seconds


@dataclass(slots=True, eq=False)
class WorkerBatch:
    """What a worker is doing, step by step.

    Its time is ``anchor_s``, when it last had nothing to do, and what was spent since: ``ready_s`` on loads and
    fetches, steps, and ``other_s`` on all else. They are added up as those of a whole request are, so that a request
    alone ends at the same instant, to the bit.

    Attributes:
        slots: the active requests; ``joining`` become active at the next boundary.
        working: whether its next event is on the clock or being made.
        changed: whether the boundary that comes has something to do; ``overhead_s`` is to be spent there.
        then, steps_until: who wants to be asked, and how long there is nothing to ask; ``asking`` now; last ``asked_s``.
        run_s: when the present run of ``planned`` steps of ``step_costs`` began; 0 planned is no run.
        version: what an event on the clock must have to be still wanted.
        due: the last call of the clock that was asked for; ``staged`` is the request prepared or decoded until then.
    """

    worker: Worker
    anchor_s: float = 0.0
    ready_s: float = 0.0
    other_s: float = 0.0
    totals: BatchTotals = field(default_factory=BatchTotals)
    slots: list[Slot] = field(default_factory=list)
    joining: deque[Request] = field(default_factory=deque)
    working: bool = False
    changed: bool = False
    run_s: float = 0.0
    planned: int = 0
    step_costs: StepCosts = field(default_factory=lambda: ConstantStepCosts(FREE))
    version: int = 0
    due: Entry | None = None
    staged: Request | None = None
    overhead_s: float = 0.0
    then: Callable[[Worker], None] | None = None
    steps_until: StepsUntil | None = None
    asked_s: float = 0.0
    asking: bool = False

    def now_s(self, steps: int = 0) -> float:
        """The end of all that was spent, and of ``steps`` more."""
        ahead_s = self.step_costs.seconds(steps) if steps else 0.0
        return self.anchor_s + (self.ready_s + (self.totals.steps_s + ahead_s) + self.other_s)
