"""The batch of one worker under continuous batching: its slots, and each request's share of time and energy."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from operator import attrgetter, sub

from mezzotint.backends.base import FREE, Cost
from mezzotint.sim.core.clock import Entry
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import StepCosts, StepsUntil, Worker
from mezzotint.sim.protocols.execution import TOLERANCE


@dataclass(slots=True)
class BatchTotals:
    """Running sums over the steps of a worker; a request's share is the sum when it left less the sum when it joined.

    Attributes:
        steps_s: seconds of steps; share_s, batch_s: the integrals of 1 / batch size and of the batch size over them.
        idle_s: seconds at boundaries, in which the whole batch waits, divided by the batch size.
        joules, metered_s: measured joules divided by the batch size, and the seconds of share_s and idle_s they cover.
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
        return BatchTotals(*map(sub, ALL_TOTALS(self), ALL_TOTALS(other)))


ALL_TOTALS = attrgetter(*BatchTotals.__slots__)


@dataclass(slots=True)
class ConstantStepCosts:
    """Step costs without a feature cache: every step costs the same, and nothing is reused."""

    step: Cost

    @property
    def longest_s(self) -> float:
        return self.step.seconds

    def seconds(self, count: int) -> float:
        return self.step.seconds * count

    def joules(self, count: int) -> float | None:
        return None if self.step.joules is None else self.step.joules * count

    def steps_by(self, elapsed_s: float) -> int:
        # A boundary at this instant counts, although the division may round to just above it.
        return ceil(elapsed_s / self.step.seconds - TOLERANCE)

    def reused(self, count: int) -> Sequence[float]:
        return ()


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one request in the batch.

    Attributes:
        totals_at_join: the batch's totals when the request joined; of a preempted request, its share of them so far.
        joules, metered_s: measured energy of its own stages (load, prepare, finish), and the seconds it covers.
        reused_steps: steps' worth of computation that the feature cache saved.
    """

    request: Request
    totals_at_join: BatchTotals
    joules: float = 0.0
    metered_s: float = 0.0
    reused_steps: float = 0.0

    def meter(self, cost: Cost) -> None:
        if cost.joules is not None:
            self.joules += cost.joules
            self.metered_s += cost.seconds


@dataclass(slots=True, eq=False)
class WorkerBatch:
    """The running batch of a worker, and where the worker is between two step boundaries.

    The worker's time is ``anchor_s``, when it was last idle, plus the seconds since: ``loading_s`` of loads and
    fetches, the steps, and ``other_s``. They are summed in the order of a sequential run. A request alone in its
    batch thus ends at the same instant, to the bit.

    Attributes:
        slots: the running requests; those in ``joining`` take a slot at the next boundary.
        working: True if the next event of this batch is on the clock or being handled.
        boundary_pending: True if the next boundary has work to do (Steps.boundary, or ``overhead_s`` to charge).
        stopping: requests to end at the next boundary, since their clients gave them up.
        callback, steps_until: the scheduler's callback (at_boundary), and the steps until it may decide something.
        registered_s, in_callback: when the callback was registered, and True while a callback runs.
        run_start_s, planned_steps: start and length of the present run of steps at ``step_costs``; 0 steps is no run.
        version: raised when a run is planned anew, so that clock events of an earlier version are ignored.
        due: the clock entry of the next event; ``staged_request`` is the request prepared or decoded until then.
    """

    worker: Worker
    anchor_s: float = 0.0
    loading_s: float = 0.0
    other_s: float = 0.0
    totals: BatchTotals = field(default_factory=BatchTotals)
    slots: list[Slot] = field(default_factory=list)
    joining: deque[Request] = field(default_factory=deque)
    stopping: list[Request] = field(default_factory=list)
    working: bool = False
    boundary_pending: bool = False
    run_start_s: float = 0.0
    planned_steps: int = 0
    step_costs: StepCosts = field(default_factory=lambda: ConstantStepCosts(FREE))
    version: int = 0
    due: Entry | None = None
    staged_request: Request | None = None
    overhead_s: float = 0.0
    callback: Callable[[Worker], None] | None = None
    steps_until: StepsUntil | None = None
    registered_s: float = 0.0
    in_callback: bool = False

    def now_s(self) -> float:
        """Return the end of all stages so far."""
        return self.anchor_s + (self.loading_s + self.totals.steps_s + self.other_s)

    def after_s(self, steps: int) -> float:
        """Return the end of ``steps`` steps of the present run, summed as ``now_s`` will be."""
        # Not now_s() + ahead_s, which rounds differently: the clock's call would miss the record's end by a bit
        # (test_systems_with_max_batch_1_write_the_same_requests_as_sequential).
        ahead_s = self.step_costs.seconds(steps) if steps else 0.0
        return self.anchor_s + (self.loading_s + (self.totals.steps_s + ahead_s) + self.other_s)


class WorkerBatches(dict[Worker, WorkerBatch]):
    """The batch of each worker, made where it is first asked for."""

    def __missing__(self, worker: Worker) -> WorkerBatch:
        worker_batch = self[worker] = WorkerBatch(worker)
        return worker_batch
