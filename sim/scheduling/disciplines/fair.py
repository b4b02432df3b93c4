"""Fair shares between tenants, and limits for each of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from math import lcm
from typing import Literal

from mezzotint.settings.ranges import Count, Positive
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import DISCARDED, Request
from mezzotint.sim.core.tenant import NO_USER, TOO_MANY_IN_FLIGHT, TOO_MANY_QUEUED, USER
from mezzotint.sim.protocols import Discipline, Run, Worker
from mezzotint.sim.scheduling.typical_latency import TypicalLatency


@dataclass(slots=True)
class Fair(Discipline):
    """Serve the tenant that was served least, by its weight; within a tenant, first in, first out.

    A tenant is a user of the trace (``user_id``); requests without one are one tenant. Each tenant has a counter of
    the service that it got, over its weight. The tenant with the lowest counter is served next. A request is charged
    when it starts. Where it runs alone on its GPUs, the charge in GPU seconds is corrected when it ends.

    A tenant that had nothing to serve banks no credit: when it comes back, its counter is raised to that of the tenant
    served last (VTC's lift). While requests run, that is its counter before they were charged, as in start-time fair
    queueing: otherwise the one that comes back would pay for what is still to run. Of equal counters the tenant
    served longest ago goes first, then the earlier arrival. With equal weights and ``service=requests`` this is round
    robin.

    Each queue has counters and limits of its own: of a worker with ``scheduler=per-worker``, of the cluster with
    ``scheduler=central``.

    Args:
        service: what is counted. ``requests`` counts 1, ``declared-cost`` steps x pixels, ``gpu-seconds`` the
            standalone latency that the profile states of what a plan runs. None shares nothing: requests go in order of
            arrival.
        weight_by_user: user -> its weight, 1 for all others. Of two tenants that always wait, one of weight 2 gets
            twice the service.
        max_running: requests of a tenant that run at once; others of it wait, and other tenants overtake them.
        max_queued: requests of a tenant that wait; one more is discarded (HTTP 429).
        max_in_flight: requests of a tenant that wait or run; one more is discarded (HTTP 429).
        within: order of a tenant's own requests. ``priority``: the higher priority of the trace first.

    Raises ConfigError for a trace without users, a weight of a user that it does not have, or settings without effect.

    Source: Sheng et al., Fairness in Serving Large Language Models (VTC), OSDI 2024, Algorithm 2; Goyal, Vin and Cheng,
    Start-time Fair Queuing, SIGCOMM 1996.
    """

    service: Literal["requests", "declared-cost", "gpu-seconds"] | None = "requests"
    weight_by_user: dict[str | int, Positive] = field(default_factory=dict)
    max_running: Count | None = None
    max_queued: Count | None = None
    max_in_flight: Count | None = None
    within: Literal["arrival", "priority"] = "arrival"
    _run: Run = field(init=False, repr=False)
    _codes: list[int] = field(init=False, repr=False)
    _weights: dict[int, Fraction] = field(init=False, default_factory=dict, repr=False)
    """Weights by code of the tenant, where they are not 1."""
    _scale: int = field(init=False, default=1, repr=False)
    """Multiple of all weights: counters are whole numbers, and equal ones compare as equal."""
    _typical: TypicalLatency | None = field(init=False, default=None, repr=False)
    _queues: dict[Worker, "TenantQueue"] = field(init=False, default_factory=dict, repr=False)
    _started: dict[Request, tuple["TenantQueue", "Tenant", int]] = field(init=False, default_factory=dict, repr=False)
    """The queue, tenant and charge of each request that was handed over and has not ended."""
    _moved: set[Request] = field(init=False, default_factory=set, repr=False)
    """Requests that left a queue for another one: limits do not discard what they let pass."""
    _ended: Request | None = field(init=False, default=None, repr=False)
    """The last request that ended or was lost: it may be queued again, at once."""
    _waiting: int = field(init=False, default=0, repr=False)
    _added: int = field(init=False, default=0, repr=False)

    def bind(self, run: Run) -> None:
        workload = run.workload
        codes = None if workload.column_codes is None else workload.column_codes(USER)
        if codes is None or not (codes != NO_USER).any():
            raise ConfigError(
                f"discipline: fair tells tenants apart by {USER}, and no request of the trace has one; map a column "
                "to it in `mezzotint trace import --map`, or choose discipline=fifo"
            )
        limits = (self.max_running, self.max_queued, self.max_in_flight)
        if self.service is None and self.weight_by_user:
            raise ConfigError(
                "discipline.weight_by_user: found some beside discipline.service=null, which shares nothing; set "
                "discipline.service=requests, or no weights"
            )
        if self.service is None and limits == (None, None, None):
            raise ConfigError(
                "discipline.service: found null and no limit, which is first in, first out; choose discipline=fifo, or "
                "set discipline.max_running, max_queued or max_in_flight"
            )
        if self.within == "priority" and not any(workload.priority):
            raise ConfigError(
                "discipline.within: found priority, and no request of the trace has one; set discipline.within=arrival"
            )
        self._run, self._codes = run, codes.tolist()
        self._weights = self._weights_by_code()
        self._scale = lcm(*(weight.numerator for weight in self._weights.values()))
        if self.service == "gpu-seconds":
            remedy = "choose discipline.service=requests or declared-cost"
            self._typical = TypicalLatency(run, "discipline: fair", remedy)
        missing = int((codes[workload.preload :] == NO_USER).sum())
        if missing:
            run.assume("requests without user_id, which are one tenant", missing, "the trace names no user")

    def _weights_by_code(self) -> dict[int, Fraction]:
        values = self._run.workload.column_values
        assert values is not None
        code_of = {name: code for code, name in enumerate(values(USER))}
        # By their decimal digits: 0.1 is a tenth here, and no binary fraction near it.
        weights = {str(user): Fraction(str(weight)) for user, weight in self.weight_by_user.items()}
        for user in weights:
            if user not in code_of:
                some = ", ".join([*code_of][:5]) + (", ..." if len(code_of) > 5 else "")
                raise ConfigError(
                    f"discipline.weight_by_user: found {user!r}, which is no {USER} of the trace; expected some of its "
                    f"{len(code_of)} users: {some}"
                )
        return {code_of[user]: weight for user, weight in weights.items()}

    def add(self, worker: Worker, request: Request, now_s: float) -> None:
        queue = self._queues.get(worker)
        if queue is None:
            queue = self._queues[worker] = TenantQueue(self.service is not None, self.max_running)
        code = self._codes[request.row]
        tenant = queue.tenants.get(code)
        if tenant is None:
            tenant = queue.tenants[code] = Tenant(int(self._scale / self._weights.get(code, Fraction(1))))
        is_new = request is not self._ended and request not in self._moved
        if is_new and (reason := self._refusal(tenant)):
            self._run.end(request, DISCARDED, reason)
            return
        self._moved.discard(request)
        self._added += 1
        self._waiting += 1
        priority = self._run.workload.priority[request.row] if self.within == "priority" else 0
        queue.add(tenant, (-priority, self._added, request))

    def _refusal(self, tenant: "Tenant") -> str:
        """Return the reason to discard a new request of ``tenant``; empty to queue it."""
        waiting = len(tenant.waiting)
        if self.max_queued is not None and waiting >= self.max_queued:
            return TOO_MANY_QUEUED
        if self.max_in_flight is not None and waiting + tenant.running >= self.max_in_flight:
            return TOO_MANY_IN_FLIGHT
        return ""

    def next(self, worker: Worker, now_s: float) -> Request | None:
        queue = self._queues.get(worker)
        tenant = None if queue is None else queue.first()
        if queue is None or tenant is None:
            return None
        request = tenant.waiting[0][2]
        charge = self._service_of(worker, request)
        queue.take(tenant, charge)
        self._started[request] = queue, tenant, charge
        self._waiting -= 1
        return request

    def _service_of(self, worker: Worker, request: Request) -> int:
        if self._typical is not None:
            return self._typical.ns(worker, request)
        return 1 if self.service == "requests" else request.steps * request.pixels

    def ended(self, worker: Worker, request: Request, now_s: float) -> None:
        started = self._started.pop(request, None)
        if started is None:
            return
        queue, tenant, charge = started
        correction = 0
        if request.worker == MISSING:
            correction = -charge  # it was given up before a GPU started on it
        elif self._typical is not None and worker.max_batch == 1:
            # Of a request that was lost with its GPU, no more than the seconds until then.
            spent_s = min(request.load_s + request.denoise_s + request.decode_s, now_s - request.start_s)
            correction = round(spent_s * 1e9) - charge
        queue.release(tenant, correction)
        self._ended = request

    def leave(self, worker: Worker) -> Sequence[Request]:
        queue = self._queues.get(worker)
        left = [] if queue is None else queue.clear()
        self._waiting -= len(left)
        self._moved.update(left)
        return left

    def __len__(self) -> int:
        return self._waiting


Waiting = tuple[int, int, Request]
"""Its priority with a minus, its number of arrival, and the request."""


@dataclass(slots=True, eq=False)
class Tenant:
    """A tenant in one queue.

    Attributes:
        unit: what its counter rises by for one unit of service; the larger the weight, the smaller.
        counter: its service over its weight, in units.
        waiting: heap of its requests that wait.
        running: its requests that were handed over and have not ended.
        served: number of its last turn in the queue; 0 before the first.
        entry: number of its valid entry in the queue's heap; 0 for none.
    """

    unit: int
    counter: int = 0
    waiting: list[Waiting] = field(default_factory=list)
    running: int = 0
    served: int = 0
    entry: int = 0


@dataclass(slots=True)
class TenantQueue:
    """One queue of several tenants.

    Args:
        shares: serve the lowest counter; otherwise the earliest arrival.
        max_running: requests of a tenant that run at once; None for no limit.
    """

    shares: bool
    max_running: int | None
    tenants: dict[int, Tenant] = field(default_factory=dict)
    _heap: list[tuple[int, int, int, int, Tenant]] = field(default_factory=list)
    """Tenants that may be served, by counter, last turn and arrival of the head, each with its entry."""
    _last: Tenant | None = None
    _last_before: int = 0
    """Counter of the tenant served last, before it was charged for that."""
    _running: int = 0
    _turns: int = 0
    _entries: int = 0

    def add(self, tenant: Tenant, waiting: Waiting) -> None:
        heappush(tenant.waiting, waiting)
        if len(tenant.waiting) == 1:
            self._resume(tenant)

    def first(self) -> Tenant | None:
        """Return the tenant to serve next; None if none may be served."""
        heap = self._heap
        while heap:
            if heap[0][-1].entry == heap[0][-2]:
                return heap[0][-1]
            heappop(heap)  # a tenant that was served or corrected since
        return None

    def take(self, tenant: Tenant, charge: int) -> None:
        """Hand over the head of ``tenant``."""
        heappop(tenant.waiting)
        self._turns += 1
        tenant.served = self._turns
        tenant.running += 1
        self._running += 1
        self._last, self._last_before = tenant, tenant.counter
        tenant.counter += charge * tenant.unit
        self._enter(tenant)

    def release(self, tenant: Tenant, correction: int) -> None:
        """Take note that a request of ``tenant`` ended, and correct what it was charged."""
        was_full = tenant.running == self.max_running
        tenant.running -= 1
        self._running -= 1
        tenant.counter += correction * tenant.unit
        if was_full and tenant.waiting:
            self._resume(tenant)
        elif correction and tenant.entry:
            self._enter(tenant)

    def clear(self) -> list[Request]:
        """Return the requests that wait in order of arrival, and let none wait."""
        left = sorted(waiting[1:] for tenant in self.tenants.values() for waiting in tenant.waiting)
        for tenant in self.tenants.values():
            tenant.waiting, tenant.entry = [], 0
        self._heap = []
        return [request for _, request in left]

    def _resume(self, tenant: Tenant) -> None:
        """Let ``tenant``, which could not be served so far, take part again."""
        if self._last is not None:
            # No credit for the time in which it had nothing to serve (test_idle_tenant_banks_no_credit).
            floor = self._last_before if self._running else self._last.counter
            tenant.counter = max(tenant.counter, floor)
        self._enter(tenant)

    def _enter(self, tenant: Tenant) -> None:
        """Enter ``tenant`` into the heap with its present counter, if it may be served."""
        if not tenant.waiting or tenant.running == self.max_running:
            tenant.entry = 0
            return
        self._entries += 1
        tenant.entry = self._entries
        # Of equal counters the one served longest ago (test_newcomer_goes_before_those_that_had_their_turn). Each entry
        # has a number of its own, so that tenants themselves are never compared.
        shares = (tenant.counter, tenant.served) if self.shares else (0, 0)
        heappush(self._heap, (*shares, tenant.waiting[0][1], tenant.entry, tenant))
