"""Sequential execution: a worker runs one request after another, from load to decode (batch size 1)."""

import math
from dataclasses import dataclass, field

from mezzotint.backends.base import Stages, WorkFailed, standalone_cost
from mezzotint.sim.cluster.loads import record_loads
from mezzotint.sim.core.clock import COMPLETION, Clock
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import FAILED, GIVEN_UP, Request
from mezzotint.sim.execution.loading import cancel_due, check_memory, ensure, record_interrupted, seconds
from mezzotint.sim.protocols import Cluster, Executor, Loads, Run, Worker
from mezzotint.sim.protocols.execution import TOLERANCE


@dataclass(slots=True)
class Sequential(Executor):
    """Load the model and add-ons that are not resident, fetch the artifact, denoise steps K..N, decode.

    NIRVANA (7.1), MoDM's artifact and production systems serve this way: a batch of two takes nearly twice as long on
    SDXL (SwiftDiffusion, 2.3).
    """

    _run: Run = field(init=False, repr=False)
    _clock: Clock = field(init=False, repr=False)
    _cluster: Cluster = field(init=False, repr=False)
    _by_row: bool = field(init=False, repr=False)
    _prepares: bool = field(init=False, repr=False)
    """True if a request may load add-ons, or be the first of its shape."""
    _checks_memory: bool = field(init=False, repr=False)
    _extras: bool = field(init=False, repr=False)
    """True if requests may have add-ons or sampling parameters, on which their cost depends."""
    _holds_gpus: bool = field(init=False, repr=False)
    _known: dict[tuple[object, ...], Stages] = field(init=False, default_factory=dict, repr=False)
    """Costs by kind of GPU and plan: rows with one plan cost the same, unless a backend costs rows one by one
    (``by_row``)."""

    def bind(self, run: Run) -> None:
        self._run = run
        self._clock, self._cluster = run.clock, run.cluster
        backends = run.cluster.kinds.values()
        self._by_row = any(backend.by_row for backend in backends)
        has_addons = run.workload.addons is not None
        self._prepares = has_addons or run.cluster.compiles
        self._checks_memory = has_addons or run.cluster.keeps_models
        self._extras = has_addons or run.workload.sampling is not None
        self._holds_gpus = run.handling.holds_gpus

    def accept(self, worker: Worker, request: Request) -> None:
        clock, plan = self._clock, request.plan
        fetch_s = plan.fetch_s
        loads: Loads = []  # Loads() takes three times as long
        try:
            if worker.model != request.model or self._prepares:
                ensure(self._run, worker, request, loads)
                request.load_s = seconds(loads)
            key: tuple[object, ...] = (
                worker.gpu.name, request.model, request.width, request.height, request.frames, request.steps,
                request.skipped, plan.refine,
            )  # fmt: skip
            if self._extras:
                key += request.addons, request.sampling
            cost = self._known.get(key)
            if cost is None:
                cost = self._request_cost(worker, request)
                if not self._by_row:
                    self._known[key] = cost
            elif self._checks_memory:  # other resident assets differ from worker to worker
                check_memory(self._cluster, worker, [self._run.work(request)])
        except WorkFailed as failure:
            request.start_s = clock._now
            ready_s = request.start_s + seconds(loads)
            worker.due = clock.at(ready_s, COMPLETION, self._fail, (worker, request, loads, str(failure)))
            return
        now_s, energy_j = clock._now, cost.energy_j
        request.start_s = now_s
        request.denoise_s = cost.denoise_s
        request.decode_s = cost.other_s
        busy_s = request.load_s + fetch_s + cost.denoise_s + cost.other_s
        if energy_j is None:
            request.energy_j = worker.gpu.energy_j(busy_s - request.load_s)
        else:
            request.energy_j = energy_j + worker.gpu.energy_j(fetch_s) if fetch_s else energy_j
        worker.due = clock.at(now_s + busy_s, COMPLETION, self._complete, (worker, request, loads))

    def _complete(self, ended: tuple[Worker, Request, Loads]) -> None:
        worker, request, loads = ended
        cluster = self._cluster
        from_s, until_s, joules = request.start_s, self._clock._now, request.energy_j
        if loads:
            from_s, loading_j = record_loads(self._run.cluster, worker, loads, from_s, until_s)
            request.energy_j += loading_j
        cluster.record_busy(worker, from_s, until_s, "serve", joules, 1, request.row)
        if self._holds_gpus:
            # The GPU idles until the answer, and its worker takes no other request.
            answered_s = until_s + self._run.handling.answer_s(request)
            worker.due = self._clock.at(answered_s, COMPLETION, self._answer, (worker, request))
            return
        self._run.end(request)
        cluster.release(worker)

    def _answer(self, held: tuple[Worker, Request]) -> None:
        worker, request = held
        self._run.end(request)
        self._cluster.release(worker)

    def _fail(self, ended: tuple[Worker, Request, Loads, str]) -> None:
        """End a request whose loads have ended and whose work could not run, or whose client has given it up."""
        worker, request, loads, reason = ended
        until_s = self._clock._now
        from_s, _ = record_loads(self._cluster, worker, loads, request.start_s, until_s)
        if reason == GIVEN_UP:
            self._cluster.record_busy(worker, from_s, until_s, "lost", request.energy_j, 1, request.row)
        self._run.end(request, FAILED, reason)
        self._cluster.release(worker)

    def abort(self, worker: Worker, now_s: float) -> list[Request]:
        cancelled = cancel_due(self._run, worker)
        if cancelled is None:
            return []
        until_s, (_, request, *rest) = cancelled
        if rest:  # else its image is made, and its answer is lost
            record_interrupted(self._run, worker, request.start_s, until_s, rest[0], request.energy_j)
        return [request]

    def stop(self, request: Request, now_s: float) -> None:
        """Stop ``request`` at its next step boundary: steps are taken as equal, and all other work as after them."""
        if request.worker == MISSING:
            return
        worker = self._cluster.worker(request.worker)
        due = worker.due
        if due is None or due[3] != self._complete:
            return  # it waits for its answer, or fails
        _, _, loads = due[4]
        steps = request.steps - request.skipped
        from_s = request.start_s + request.load_s + request.plan.fetch_s
        step_s = request.denoise_s / steps
        ran = max(math.ceil((now_s - from_s) / step_s - TOLERANCE), 0)
        until_s = max(from_s + ran * step_s, now_s)
        if ran >= steps or not self._clock.cancel(due):
            return
        in_full_s, request.decode_s, request.denoise_s = due[0] - from_s, 0.0, ran * step_s
        request.energy_j *= (until_s - from_s) / in_full_s
        worker.due = self._clock.at(until_s, COMPLETION, self._fail, (worker, request, loads, GIVEN_UP))

    def _request_cost(self, worker: Worker, request: Request) -> Stages:
        work = self._run.work(request)
        check_memory(self._cluster, worker, [work])
        cost = standalone_cost(worker.backend, work)
        self._run.keep_artifact(request, work)
        return cost
