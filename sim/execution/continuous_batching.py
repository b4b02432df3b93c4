"""Continuous batching: requests join and leave a worker's batch at every step boundary."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any

from annotated_types import Ge

from mezzotint.backends.base import FREE, Cost, Work, WorkFailed
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.addons.kernels import Kernels
from mezzotint.sim.addons.service_gpus import ServiceGpus
from mezzotint.sim.addons.shared_servers import refuse_feature_cache
from mezzotint.sim.addons.steps import WithAddons
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.cluster.loads import record_loads
from mezzotint.sim.core.clock import COMPLETION, DISPATCH
from mezzotint.sim.core.culprit import caller, class_name
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.plan import MISSING
from mezzotint.sim.core.request import FAILED, GIVEN_UP, Request
from mezzotint.sim.core.workload import check_equal_steps
from mezzotint.sim.execution.loading import ensure, seconds
from mezzotint.sim.execution.same_size import SameSizeSteps
from mezzotint.sim.execution.worker_batch import BatchTotals, ConstantStepCosts, Slot, WorkerBatch, WorkerBatches
from mezzotint.sim.metrics.recorder import BATCH_MEAN, REUSED_SHARE, STEP_SHARE
from mezzotint.sim.protocols import (
    ControlNetPlacement,
    Executor,
    FeatureCache,
    Loads,
    LoraLoading,
    RequestColumn,
    Run,
    StepCosts,
    Steps,
    StepsUntil,
    Worker,
)
from mezzotint.sim.protocols.execution import check_step_costs


@dataclass(slots=True)
class ContinuousBatching(Executor):
    """Run up to ``max_batch`` requests as one batch that changes at step boundaries (ORCA's iteration-level batching).

    A GPU does one thing at a time: the batch waits while one request is prepared or decoded. A run of steps is planned
    up to the first request that completes, and interrupted at the next boundary when another joins. A live backend runs
    its steps one by one.

    Args:
        max_batch: maximum number of requests in a worker's batch.
        batching: cost of each stage, and which requests share a step; by default the backend's own.
        feature_cache: what a step reuses of the step before; None computes everything.
        controlnet_placement, lora_loading: where ControlNets run, and when LoRAs are loaded; if neither is given, all
            add-ons are loaded one after another before the first step.
        kernels: kernels of the denoiser and its ControlNets; None is the framework's own.

    Raises ConfigError for a feature cache on a live backend, which computes every block, and for service GPUs.
    """

    max_batch: Annotated[int, Ge(1)] = 16
    batching: Steps = field(default_factory=SameSizeSteps)
    feature_cache: FeatureCache | None = None
    controlnet_placement: ControlNetPlacement | ServiceGpus | None = None
    lora_loading: LoraLoading | None = None
    kernels: Kernels | None = None
    _run: Run = field(init=False, repr=False)
    _share: RequestColumn = field(init=False, repr=False)
    _batch: RequestColumn = field(init=False, repr=False)
    _reused: RequestColumn = field(init=False, repr=False)
    _image_done: Callable[[tuple[WorkerBatch, Slot, float, Cost, Cost]], None] = field(init=False, repr=False)
    """The call at the end of an image: ``_hold``, or ``_finish_done`` where no GPU waits for answers."""
    _worker_batches: WorkerBatches = field(init=False, default_factory=WorkerBatches, repr=False)
    _preempted: dict[Request, tuple[int, Slot, int, str]] = field(init=False, default_factory=dict, repr=False)
    """Preempted request -> id of the worker that holds its state, its slot, its steps left, and what preempted it."""

    def __post_init__(self) -> None:
        if isinstance(self.controlnet_placement, ServiceGpus):
            raise ConfigError(
                "controlnet_placement: found ServiceGpus beside executor=continuous-batching, whose workers have one "
                "GPU each; choose executor=stages with group_policy=fixed-degree, or controlnet_placement=inline"
            )
        if self.feature_cache is not None:
            refuse_feature_cache(self.controlnet_placement)
        if self.controlnet_placement is not None or self.lora_loading is not None or self.kernels is not None:
            placement, loading = self.controlnet_placement or InlineControlNets(), self.lora_loading or SyncLoading()
            self.batching = WithAddons(self.batching, placement, loading, self.kernels or Kernels())

    def bind(self, run: Run) -> None:
        self._run = run
        self._image_done = self._hold if run.handling.holds_gpus else self._finish_done
        part = "executor=continuous-batching"
        remedy = "choose executor=stages, executor=sequential or static-batch, or a profile without step_shares"
        check_equal_steps(run.workload, run.models.values(), run.cluster.kinds.values(), part, remedy)
        self._share, self._batch = run.add_column(STEP_SHARE, public=False), run.add_column(BATCH_MEAN)
        self.batching.bind(run, self.interrupt)
        if self.feature_cache is not None:
            if run.backend.live:
                raise ConfigError("feature_cache: a live backend computes every block; add feature_cache=none")
            self._reused = run.add_column(REUSED_SHARE)
            self.feature_cache.bind(run)

    def accept(self, worker: Worker, request: Request) -> None:
        worker_batch = self._worker_batches[worker]
        worker_batch.joining.append(request)
        if not worker_batch.working:
            worker_batch.working = True
            # After all arrivals of the instant: those that the scheduler hands over together join before the first
            # step.
            self._schedule(worker_batch, DISPATCH, self._run.clock._now)
        else:
            self._interrupt(worker_batch)

    def abort(self, worker: Worker, now_s: float) -> list[Request]:
        worker_batch = self._worker_batches.pop(worker, None)
        for request in [request for request, (worker_id, *_) in self._preempted.items() if worker_id == worker.id]:
            del self._preempted[request]  # its latents are lost with the GPU's memory
            request.steps_left = request.steps - request.skipped
        if worker_batch is None:
            return []
        run, lost = self._run, [slot.request for slot in worker_batch.slots]
        due = worker_batch.due
        # What is due at this very instant may have run already; then nothing of it is lost.
        pending = due is not None and run.clock.cancel(due)
        if pending and worker_batch.staged_request is not None:
            lost.append(worker_batch.staged_request)
        lost += worker_batch.joining
        # A dispatch is due now: nothing has begun. A GPU that is held for an answer does nothing.
        idles = run.handling.holds_gpus and due is not None and due[3] == self._finish_done
        if due is not None and pending and due[1] != DISPATCH and not idles:
            # From the last record on, but not from before the batch: in between the GPU was idle
            # (test_batching_is_notified_of_every_lost_request_including_unstarted).
            run.cluster.record_busy(worker, max(worker.busy_until_s, worker_batch.anchor_s), now_s, "lost")
        for request in lost:
            self.batching.request_lost(worker, request)
        return lost

    def stop(self, request: Request, now_s: float) -> None:
        if request.worker == MISSING:
            return
        worker_batch = self._worker_batches[self._run.cluster.worker(request.worker)]
        if request in worker_batch.joining:
            worker_batch.joining.remove(request)
            self._run.end(request, FAILED, GIVEN_UP)
            self._run.cluster.release(worker_batch.worker)
            return
        worker_batch.stopping.append(request)
        self._interrupt(worker_batch)

    def _stop(self, worker_batch: WorkerBatch) -> None:
        """At a step boundary: end a request that its client has given up, with its share of the steps so far."""
        request = worker_batch.stopping.pop(0)
        slot = next((slot for slot in worker_batch.slots if slot.request is request), None)
        # Else it was decoded or has failed, or its last step ended just now: then it goes on to its end.
        if slot is not None and request.steps_left > 0:
            worker_batch.slots.remove(slot)
            worker_batch.boundary_pending = bool(worker_batch.slots)
            self.batching.request_lost(worker_batch.worker, request)
            self._record_request(worker_batch, slot, FREE, FREE)
            self._run.end(request, FAILED, GIVEN_UP)
            self._run.cluster.release(worker_batch.worker)
        self._advance(worker_batch)

    def interrupt(self, worker: Worker) -> None:
        worker_batch = self._worker_batches[worker]
        worker_batch.boundary_pending = True
        self._interrupt(worker_batch)

    def active(self, worker: Worker) -> Sequence[Request]:
        return [slot.request for slot in self._worker_batches[worker].slots if slot.request.steps_left > 0]

    def joining(self, worker: Worker) -> Sequence[Request]:
        return self._worker_batches[worker].joining

    def is_at_boundary(self, worker: Worker) -> bool:
        worker_batch = self._worker_batches[worker]
        return worker_batch.in_callback or not worker_batch.working

    def at_boundary(
        self, worker: Worker, callback: Callable[[Worker], None], steps_until: StepsUntil | None = None
    ) -> None:
        worker_batch = self._worker_batches[worker]
        if worker_batch.working:
            worker_batch.callback, worker_batch.steps_until = callback, steps_until
            worker_batch.registered_s = self._run.clock._now
            self._interrupt(worker_batch)

    def preempt(self, worker: Worker, request: Request) -> None:
        worker_batch = self._worker_batches[worker]
        slot = next(slot for slot in worker_batch.slots if slot.request is request)
        worker_batch.slots.remove(slot)
        worker_batch.boundary_pending = bool(worker_batch.slots)
        # From here on its own share so far; _join turns it back
        # (test_preemption_keeps_finished_steps_and_adds_no_cost).
        slot.totals_at_join = worker_batch.totals.minus(slot.totals_at_join)
        self._preempted[request] = worker.id, slot, request.steps_left, caller(1)
        request.worker = MISSING
        self._run.cluster.release(worker)

    def charge_overhead(self, worker: Worker, seconds: float) -> None:
        if not 0.0 <= seconds < inf:
            raise SimulationError(f"{caller(1)} charges {worker} {seconds} s of overhead; expected 0 or more seconds")
        worker_batch = self._worker_batches[worker]
        worker_batch.overhead_s += seconds
        worker_batch.boundary_pending = True

    def price(self, works: Sequence[Work]) -> Cost:
        if self.feature_cache is None:
            return self.batching.price(works)
        requests = [_request_for(work) for work in works]
        work_of = dict(zip(requests, works, strict=True))
        count = works[0].steps
        step_costs = self.feature_cache.step_costs(
            requests, count, lambda subset: self.batching.price([work_of[request] for request in subset])
        )
        return Cost(step_costs.seconds(count), step_costs.joules(count)).over(count)

    def _schedule(self, worker_batch: WorkerBatch, order: int, time_s: float) -> None:
        # The call scheduled before may stay in the clock: to cancel it is a scan, to ignore its version is not.
        worker_batch.version += 1
        clock = self._run.clock
        worker_batch.staged_request = None
        # The end of a step at this instant may round to just before it.
        worker_batch.due = clock.at(max(time_s, clock._now), order, self._proceed, (worker_batch, worker_batch.version))

    def _proceed(self, due: tuple[WorkerBatch, int]) -> None:
        worker_batch, version = due
        # An interruption moved the end of this run (test_jumping_over_steps_ends_where_single_steps_do).
        if version == worker_batch.version:
            if worker_batch.planned_steps:
                self._record_steps(worker_batch)
            self._advance(worker_batch)

    def _interrupt(self, worker_batch: WorkerBatch) -> None:
        """End the present run of steps, if there is one, at the next step boundary."""
        planned = worker_batch.planned_steps
        # A live step has run already. Of steps that take no time, all are at this instant.
        if not planned or self._run.backend.live or worker_batch.step_costs.seconds(planned) <= 0.0:
            return
        steps = worker_batch.step_costs.steps_by(self._run.clock._now - worker_batch.run_start_s)
        if steps < planned:
            # A run that begins at this instant has no step behind it: a request that joins now joins before its first
            # (test_shortest_remaining_runs_the_requests_with_fewest_steps_left).
            worker_batch.planned_steps = max(steps, 0)
            self._schedule(worker_batch, COMPLETION, worker_batch.after_s(worker_batch.planned_steps))

    def _advance(self, worker_batch: WorkerBatch) -> None:
        """At a step boundary: finish a completed request, else admit one, else call the scheduler, else step on."""
        if worker_batch.stopping:
            self._stop(worker_batch)
            return
        for slot in worker_batch.slots:
            # First requests that leave, whose slots then count as free; then requests that join; then the scheduler,
            # which sees both.
            if slot.request.steps_left <= 0:
                self._finish(worker_batch, slot)
                return
        if worker_batch.joining:
            self._join(worker_batch, worker_batch.joining.popleft())
        # Before the boundary's own work, which is that of the batch as the scheduler leaves it.
        elif worker_batch.callback is not None and worker_batch.steps_until is None:
            callback, worker_batch.callback = worker_batch.callback, None
            worker_batch.in_callback = True
            callback(worker_batch.worker)
            worker_batch.in_callback = False
            self._advance(worker_batch)
        elif worker_batch.boundary_pending and worker_batch.slots:
            self._run_boundary(worker_batch)
        elif worker_batch.slots:
            self._plan_steps(worker_batch)
        else:
            worker_batch.working = False

    def _join(self, worker_batch: WorkerBatch, request: Request) -> None:
        run, worker = self._run, worker_batch.worker
        if not worker_batch.slots:  # an idle worker's time counts from now
            worker_batch.anchor_s, worker_batch.totals = run.clock._now, BatchTotals()
            worker_batch.loading_s = worker_batch.other_s = 0.0
        # Its state never left the GPU: no load, no preparation.
        if request in self._preempted:
            slot = self._resume(worker, request)
            slot.totals_at_join = worker_batch.totals.minus(slot.totals_at_join)
            worker_batch.slots.append(slot)
            worker_batch.boundary_pending = True
            self._advance(worker_batch)
            return
        if request.steps_left != request.steps - request.skipped:
            raise run.policy_error(
                "scheduler",
                f"handed over the request in row {request.row} with {request.steps_left} steps left; its plan has "
                f"{request.steps - request.skipped}",
            )
        loads: Loads = []  # Loads() takes three times as long
        request.start_s, cost, reason = worker_batch.now_s(), FREE, ""
        try:
            active = [slot.request for slot in worker_batch.slots]
            ensure(run, worker, request, loads, active, self.batching.load_addons)
            cost = self.batching.prepare(worker, request, request.start_s)
        except WorkFailed as failure:
            reason = str(failure)
        if request.steps_left != (steps := request.steps - request.skipped):
            what = f"left {request.steps_left} steps of the request in row {request.row}, whose plan has {steps}"
            raise run.policy_error("executor", what)
        request.load_s = seconds(loads)
        worker_batch.loading_s += request.load_s
        if reason:
            self._run_stage(worker_batch, self._prepare_failed, (worker_batch, request, loads, reason), request)
            return
        # Times are summed by kind, in a sequential run's order (WorkerBatch): a batch of one ends at the same instant
        # to the bit (test_continuous_batching_of_one_equals_sequential_execution_exactly).
        worker_batch.loading_s += request.plan.fetch_s
        worker_batch.other_s += cost.seconds
        slot = Slot(request, worker_batch.totals.copy())
        for _, load in loads:
            slot.meter(load)
        slot.meter(cost)
        self._run_stage(worker_batch, self._prepare_done, (worker_batch, slot, loads, cost), request)

    def _resume(self, worker: Worker, request: Request) -> Slot:
        worker_id, slot, steps_left, preempted_by = self._preempted.pop(request)
        present = (worker.id, worker.model, request.steps_left)
        if present == (worker_id, request.model, steps_left):
            return slot
        raise self._run.policy_error(
            "scheduler",
            f"resumes the request in row {request.row}, preempted by {preempted_by} with {steps_left} steps left, on "
            f"{worker} with {worker.model} and {request.steps_left} steps left; its state is on worker {worker_id}, "
            f"for {request.model}: resume it there, since the cost of moving it is not modelled",
        )

    def _prepare_done(self, ended: tuple[WorkerBatch, Slot, Loads, Cost]) -> None:
        worker_batch, slot, loads, cost = ended
        request, worker, until_s = slot.request, worker_batch.worker, worker_batch.now_s()
        from_s, _ = record_loads(self._run.cluster, worker, loads, request.start_s, until_s)
        if request.plan.fetch_s:
            # Sums in another order may round to just after the end of the stage.
            fetched_s = min(from_s + request.plan.fetch_s, until_s)
            self._run.cluster.record_busy(worker, from_s, fetched_s, "fetch", None, 1, request.row)
            from_s = fetched_s
        if until_s > from_s:
            self._run.cluster.record_busy(worker, from_s, until_s, "prepare", cost.joules, 1, request.row)
        request.decode_s = cost.seconds
        worker_batch.slots.append(slot)
        worker_batch.boundary_pending = True
        self._advance(worker_batch)

    def _prepare_failed(self, ended: tuple[WorkerBatch, Request, Loads, str]) -> None:
        worker_batch, request, loads, reason = ended
        record_loads(self._run.cluster, worker_batch.worker, loads, request.start_s, worker_batch.now_s())
        self._fail_requests(worker_batch, [request], reason)

    def _run_boundary(self, worker_batch: WorkerBatch) -> None:
        worker_batch.boundary_pending = False
        start_s = worker_batch.now_s()
        cost = self.batching.boundary(worker_batch.worker, [slot.request for slot in worker_batch.slots], start_s)
        if worker_batch.overhead_s:
            cost, worker_batch.overhead_s = Cost(cost.seconds + worker_batch.overhead_s), 0.0
        worker_batch.other_s += cost.seconds
        self._run_stage(worker_batch, self._boundary_done, (worker_batch, start_s, cost))

    def _boundary_done(self, ended: tuple[WorkerBatch, float, Cost]) -> None:
        worker_batch, start_s, cost = ended
        if cost.seconds:
            totals, batch = worker_batch.totals, len(worker_batch.slots)
            self._run.cluster.record_busy(
                worker_batch.worker, start_s, worker_batch.now_s(), "boundary", cost.joules, batch
            )
            totals.idle_s += cost.seconds / batch
            totals.meter(cost.seconds, cost.joules, batch)
        self._advance(worker_batch)

    def _plan_steps(self, worker_batch: WorkerBatch) -> None:
        worker, active = worker_batch.worker, [slot.request for slot in worker_batch.slots]
        worker_batch.run_start_s = from_s = worker_batch.now_s()
        # Up to the first that completes: until then the batch stays as it is, and so does the cost of its steps.
        count = 1 if self._run.backend.live else min([request.steps_left for request in active])
        costs: StepCosts
        try:
            if self.feature_cache is None:
                costs = ConstantStepCosts(self.batching.step(worker, active, from_s))
            else:
                costs = self.feature_cache.step_costs(
                    active, count, lambda subset: self.batching.step(worker, subset, from_s)
                )
                check_step_costs(costs, count)
        except WorkFailed as failure:
            worker_batch.slots.clear()
            self._fail_requests(worker_batch, active, str(failure))
            return
        worker_batch.step_costs = costs
        if self._run.backend.live:
            worker_batch.steps_until = None  # a live step has run already: the callback comes after it
        elif worker_batch.steps_until is not None:
            # With a feature cache steps may be shorter than the longest: call early rather than late, once an instant.
            now_s = self._run.clock._now
            steps_until = max(worker_batch.steps_until(now_s, costs.longest_s), int(worker_batch.registered_s == now_s))
            if steps_until < 0:
                raise SimulationError(
                    f"{class_name(worker_batch.steps_until)} returned {steps_until} steps to its callback; "
                    "expected 0 or more"
                )
            if not steps_until:
                worker_batch.steps_until = None
                self._advance(worker_batch)
                return
            count = min(count, steps_until)
        stable = self.batching.stable_steps(worker, active)
        if stable is not None:
            count = min(count, stable)
        worker_batch.planned_steps = count
        self._schedule(worker_batch, COMPLETION, worker_batch.after_s(count))

    def _record_steps(self, worker_batch: WorkerBatch) -> None:
        slots, totals, costs = worker_batch.slots, worker_batch.totals, worker_batch.step_costs
        count, batch = worker_batch.planned_steps, len(slots)
        worker_batch.planned_steps = 0
        from_s, seconds, joules = worker_batch.now_s(), costs.seconds(count), costs.joules(count)
        totals.steps_s += seconds
        totals.share_s += seconds / batch
        totals.batch_s += seconds * batch
        totals.meter(seconds, joules, batch)
        self._run.cluster.record_busy(worker_batch.worker, from_s, worker_batch.now_s(), "steps", joules, batch)
        for slot in slots:
            slot.request.steps_left -= count
        if self.feature_cache is not None:
            reused_steps = costs.reused(count)
            if len(reused_steps) != batch:
                raise SimulationError(
                    f"{class_name(costs)} returned {len(reused_steps)} numbers from reused; expected one for each of "
                    f"the {batch} requests of the batch"
                )
            for slot, reused in zip(slots, reused_steps, strict=True):
                slot.reused_steps += reused

    def _finish(self, worker_batch: WorkerBatch, slot: Slot) -> None:
        worker_batch.slots.remove(slot)
        worker_batch.boundary_pending = bool(worker_batch.slots)
        # The batch changed: at this boundary the others may be patched anew.
        request, start_s = slot.request, worker_batch.now_s()
        try:
            before, after = self.batching.finish(worker_batch.worker, request, start_s)
        except WorkFailed as failure:
            self._fail_requests(worker_batch, [request], str(failure))
            return
        worker_batch.other_s += before.seconds
        slot.meter(before)
        slot.meter(after)
        self._record_request(worker_batch, slot, before, after)
        self._run_stage(worker_batch, self._image_done, (worker_batch, slot, start_s, before, after), request)

    def _hold(self, ended: tuple[WorkerBatch, Slot, float, Cost, Cost]) -> None:
        """Hold the GPU until the answer: it idles, and so do the other requests of the batch."""
        worker_batch, slot, start_s, before, after = ended
        run, until_s = self._run, worker_batch.now_s()
        if before.seconds:
            run.cluster.record_busy(worker_batch.worker, start_s, until_s, "finish", before.joules, 1, slot.request.row)
        worker_batch.other_s += run.handling.answer_s(slot.request)
        self._run_stage(worker_batch, self._finish_done, (worker_batch, slot, until_s, FREE, after), slot.request)

    def _finish_done(self, ended: tuple[WorkerBatch, Slot, float, Cost, Cost]) -> None:
        """End the request: its image is there, though the work after it still holds the GPU."""
        worker_batch, slot, start_s, before, after = ended
        run, worker = self._run, worker_batch.worker
        until_s = worker_batch.now_s()
        if before.seconds:
            run.cluster.record_busy(worker, start_s, until_s, "finish", before.joules, 1, slot.request.row)
        run.end(slot.request)
        # Added only now: the end of the image must not count the work after it
        # (test_work_after_an_image_holds_the_gpu_but_not_the_image).
        worker_batch.other_s += after.seconds
        self._run_stage(worker_batch, self._after_done, (worker_batch, until_s, after))

    def _after_done(self, ended: tuple[WorkerBatch, float, Cost]) -> None:
        worker_batch, start_s, after = ended
        if after.seconds:
            self._run.cluster.record_busy(worker_batch.worker, start_s, worker_batch.now_s(), "after", after.joules)
        # Before the next step is planned, so that whoever is pulled in now joins at this boundary
        # (test_one_resolution_batches_share_a_size_and_stay_below_the_pixel_cap).
        self._run.cluster.release(worker_batch.worker)
        self._advance(worker_batch)

    def _run_stage(
        self,
        worker_batch: WorkerBatch,
        callback: Callable[[Any], None],
        ended: tuple[object, ...],
        request: Request | None = None,
    ) -> None:
        """Call ``callback(ended)`` when the stage just added ends; it prepares or decodes ``request``, if given."""
        clock, end_s = self._run.clock, worker_batch.now_s()
        worker_batch.staged_request = request
        worker_batch.due = clock.at(end_s if end_s > clock._now else clock._now, COMPLETION, callback, ended)

    def _fail_requests(self, worker_batch: WorkerBatch, requests: list[Request], reason: str) -> None:
        for request in requests:
            self.batching.request_lost(worker_batch.worker, request)
            self._run.end(request, FAILED, reason)
        self._run.cluster.release(worker_batch.worker, len(requests))
        self._advance(worker_batch)

    def _record_request(self, worker_batch: WorkerBatch, slot: Slot, before: Cost, after: Cost) -> None:
        request, totals, joined = slot.request, worker_batch.totals, slot.totals_at_join
        request.denoise_s = totals.steps_s - joined.steps_s
        share_s = totals.share_s - joined.share_s
        self._batch[request.row] = (
            (totals.batch_s - joined.batch_s) / request.denoise_s if request.denoise_s > 0.0 else 1.0
        )
        if self.feature_cache is not None:
            self._reused[request.row] = slot.reused_steps / max(request.steps - request.skipped, 1)
        request.decode_s += before.seconds
        own_s = request.load_s + request.plan.fetch_s + share_s + request.decode_s
        waiting_s = (totals.idle_s - joined.idle_s) + after.seconds
        metered_s = totals.metered_s - joined.metered_s + slot.metered_s
        # Measured joules cover the metered seconds; all others draw the power of the device
        # (test_batch_draws_device_power_during_fetch_and_measured_power_during_steps).
        estimated_j = worker_batch.worker.gpu.energy_j(own_s + waiting_s - metered_s)
        self._share[request.row] = share_s
        request.energy_j = totals.joules - joined.joules + slot.joules + estimated_j


def _request_for(work: Work) -> Request:
    request = Request(work.row, 0.0, work.width, work.height, work.steps)
    request.model, request.frames, request.steps_left = work.model, work.frames, work.steps
    return request
