"""The engine: moves each request from its trace row over front end, scheduler and worker to its one end.

The life of a request: the clock feeds it at its arrival (``_arrive``). The front end plans it (FrontEnd.admit), which
may take time. It enters (``_enter``): a plan without a model is answered from the cache, any other is offered to the
scheduler. This names a worker at once, or keeps the request until a worker with capacity pulls it (``pull``). The
executor accepts it, and calls ``end`` once. A completed image enters the cache after all completions of the instant
(``_insert``), and the last end stops the run (``_stop``). A cascade may have the request enter again, and handling ends
it later (mezzotint.sim.answering); a request lost with its GPU enters again by ``requeue``. A client may hold a request
back, give it up and send it again (mezzotint.sim.client).

The engine owns the clock; the parts make the decisions. Every part is bound to the run once, before the clock starts
(``bind``). The engine is that run: its public methods are described in mezzotint.sim.protocols.Run.
"""

import gc
import math
import struct
import sys
import time
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from mezzotint.backends.base import Asset, Backend, BackendError, ServerStart, Work, serves
from mezzotint.sim.answering import Answering, is_cascade
from mezzotint.sim.client.tries import Tries
from mezzotint.sim.cluster.cluster import Cluster
from mezzotint.sim.core.clock import ARRIVAL, COMPLETION, CONTROL, INSERTION, LAST, NEVER, Clock, GuardedClock
from mezzotint.sim.core.culprit import (
    attributed_error,
    caller,
    calling_kind,
    has_outsiders,
    is_ours,
    is_raised_outside,
    part_name,
    part_names,
    unnamed_refusal,
)
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.handling import NO_HANDLING, Handling
from mezzotint.sim.core.model import Model, in_role
from mezzotint.sim.core.plan import HIT, LOOKUPS, MISSING, Plan
from mezzotint.sim.core.request import COMPLETED, DISCARDED, FAILED, OUTCOMES, Request, guarded_class, hashed_by_row
from mezzotint.sim.core.sampling import sampled
from mezzotint.sim.core.server import WARM_SERVER, Server
from mezzotint.sim.core.streams import stream
from mezzotint.sim.core.worker import Worker
from mezzotint.sim.core.workload import SimilarityInputs, Workload, cells, serves_videos
from mezzotint.sim.metrics.attempts import AttemptLog
from mezzotint.sim.metrics.invariants import MAX_STEPS, FinishedRun, check, incomplete
from mezzotint.sim.metrics.recorder import COMPILATIONS, LOADS, STARTS, RunRecord
from mezzotint.sim.metrics.request_columns import RequestColumns
from mezzotint.sim.metrics.usage_log import UsageLog
from mezzotint.sim.protocols import Client, Controller, Executor, FrontEnd, Scheduler

RESULTS_VERSION = 7
"""Version of the results: raise it with a change that alters any number, so that the scorecard repeats its runs."""

MAX_IDLE_SAMPLES = 1_000
"""Samples in a row without arrival, work or end, after which the run stops: controllers alone would never end it."""

BLOCK = 1 << 12
"""Requests that are made ready together; each is made as it arrives, from columns of the trace."""

MAX_CALLS_EACH = 100
"""Calls at one instant per request in the system and per GPU; more are an endless loop."""

WHOLE_NUMBER, NUMBER = (int, np.integer), (int, float, np.integer, np.floating)
PLAN_NUMBERS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("k", "of_steps", "lookup", "source"), WHOLE_NUMBER),
    **dict.fromkeys(("skip_fraction", "search_s", "source_age_s", "similarity", "fetch_s"), NUMBER),
}
"""Field of a plan -> types of numbers that it may have."""


class Engine:
    """One run: the requests of a trace through one system on one cluster.

    Args:
        models: the models by role, largest first.
        backend: costs on the first kind of GPU of ``cluster``.
        handling: the seconds of a request that need no GPU.
        server: what a start of a server costs, and the first request of each shape after it.
        seed: the run's seed; every random stream is spawned from it by name.
        sample_s: seconds between rows of the time series.
        client: sends the requests; None sends each as it is due, and waits for ever.
    """

    __slots__ = (  # faster to read and write than a dictionary of this many attributes
        "_actors", "_addons", "_admit", "_area_s", "_arrivals", "_arrived_callbacks", "_completed", "_detour",
        "_ended", "_ended_at_sample", "_enders", "_first", "_frames", "_guarded", "_height", "_idle_samples",
        "_idle_since", "_last_progress", "_limit_s", "_lost", "_next", "_open_loop", "_parts", "_pending_rows",
        "_plans", "_request_ended", "_sampling", "_shapes", "_shared", "_shared_plan", "_steps", "_stopping_end",
        "_think_s", "_times", "_tries", "_width", "_write", "add_column", "arrived", "assume", "backend", "client",
        "clock", "cluster", "controllers", "executor", "frontend", "gauge", "gpu_failures", "handling", "hits", "log",
        "lookups", "models", "progress", "record", "rows", "sample_s", "scheduler", "seed", "server", "similarity",
        "workload",
    )  # fmt: skip

    def __init__(
        self,
        *,
        workload: Workload,
        similarity: SimilarityInputs,
        models: Mapping[str, Model],
        cluster: Cluster,
        backend: Backend,
        frontend: FrontEnd,
        scheduler: Scheduler,
        executor: Executor,
        seed: int,
        handling: Handling = NO_HANDLING,
        server: Server = WARM_SERVER,
        controllers: Sequence[Controller] = (),
        sample_s: float = 60.0,
        client: Client | None = None,
    ) -> None:
        self.clock = Clock()
        self.workload = workload
        self.similarity = similarity
        self.models: Mapping[str, Model] = MappingProxyType(dict(models))
        self.cluster = cluster
        self.backend = backend
        self.frontend = frontend
        self.scheduler = scheduler
        self.executor = executor
        self.controllers = controllers
        self.client = client
        self.seed = seed
        self.handling = handling
        self.server = server
        self.sample_s = sample_s
        self.rows = workload.rows
        rows, scratch = self.rows * workload.max_tries, workload.scratch
        names = [model.name for model in models.values()]
        self.record = RunRecord(RequestColumns(rows, names, workload.preload, scratch), UsageLog(scratch))
        self.assume, self.gauge, self.log = self.record.assume, self.record.gauge, self.record.log
        self.add_column = self.record.request_columns.declare
        self.arrived = 0
        self.lookups = 0
        self.hits = 0
        self.gpu_failures = 0
        self.progress: Callable[[int], object] | None = None
        self._first = workload.preload
        native = models.values() if workload.use_model_shape else ()
        self._shapes: dict[str | None, tuple[int, int, int, int]] = {
            each.name: (each.width, each.height, each.steps, each.frames) for each in native
        }
        self._width, self._height, self._steps = workload.width, workload.height, workload.steps
        self._limit_s = workload.limit_s
        self._addons = workload.addons
        column = workload.sampling
        self._sampling = None if column is None else [column.kinds[code] for code in column.codes.tolist()]
        times = workload.schedule.times
        self._think_s = np.broadcast_to(workload.schedule.think_s, self.rows)
        self._open_loop = len(times) == self.rows
        self._times = times
        # Of a closed loop without clients, the rows after those whose arrivals are known.
        head = len(times) if client is None else 0
        self._pending_rows = iter(range(self._first + head, self._first + self.rows))
        self._plans = cells(scratch.full(rows, 0, np.int64))
        is_known = self._open_loop and client is None
        self._arrivals = None if is_known else array("d", times.tobytes()) + array("d", bytes(8 * (rows - len(times))))
        self._arrived_callbacks = [controller.arrived for controller in controllers]
        self._write = self.record.request_columns.end
        if serves_videos(workload, models):
            self._frames = self.add_column("frames", int)
            self._write = self._write_video
        self._last_progress: tuple[float, int] = (-1.0, 0)
        self._ended = 0
        self._ended_at_sample, self._idle_samples, self._idle_since = -1, 0, NEVER
        self._area_s = 0.0
        ignores_ends = type(scheduler).request_ended is Scheduler.request_ended
        self._request_ended = None if ignores_ends else scheduler.request_ended  # saves a call per request
        self._completed = None if type(frontend).completed is FrontEnd.completed else frontend.completed
        self._stopping_end = self.rows if is_known else 0  # an end before it stops no run and sends no request
        self._admit = frontend.admit if not handling.before_s else self._admit_later
        self._detour: Callable[[Request, int], bool] | None = None
        if is_cascade(frontend) or handling.has_after:
            self._detour = Answering(self, frontend, self._offer_again).delays
        self._next, self._tries = scheduler.next, None
        if client is not None:
            self._tries = tries = Tries(self, client, self._detour, self._request_ended)
            self._detour, self._next, self._request_ended = tries.end_given_up, tries.next, tries.request_ended
        self._parts: dict[str, object] = {"frontend": frontend, "scheduler": scheduler, "executor": executor}
        self._parts |= {"backend": backend} | {
            f"controller{number or ''}": controller for number, controller in enumerate(controllers)
        }
        if client is not None:
            self._parts["client"] = client
        self._lost: set[int] = set()
        self._enders: dict[int, str] = {}
        """In a guarded run, by row: the class from outside the package that ended the request, beside executors."""
        self._guarded = guarded_class(self._parts) if has_outsiders(self._parts) else None
        if self._guarded is not None:
            cluster.guard()
            self.clock.__class__ = GuardedClock
            # First: what a controller does to the plan is refused, and what the front end did is checked before.
            self._arrived_callbacks.insert(0, self._guard)
            self.__class__ = GuardedRun
            self._admit = self._admit_checked
        self._actors: dict[simpy.Process, str] = {}
        self._shared_plan: Plan | None = None
        self._shared: tuple[str | None, int, int, int, int] = (None, 0, 0, 0, 0)

    # -- for parts (protocols.Run) -------------------------------------------------------------------------------------

    def rng(self, name: str) -> np.random.Generator:
        return stream(self.seed, name)

    def model(self, role: str) -> Model:
        model = in_role(self.models, role)
        first, *others = self.cluster.kinds.values()
        try:
            first.require(model.name)
        except BackendError:
            if not any(serves(backend, model.name) for backend in others):
                raise
        return model

    def request(self, row: int, now_s: float) -> Request:
        deadline_s, frames = now_s + self._limit_s[row], self.workload.frames[row]
        sampling = None if self._sampling is None else self._sampling[row]
        return Request(row, now_s, self._width[row], self._height[row], self._steps[row], deadline_s, frames, sampling)

    def _known_times(self) -> Iterator[float]:
        # Python's floats: reading a number of NumPy takes longer, and makes all later sums NumPy's.
        return chain.from_iterable(self._times[at : at + BLOCK].tolist() for at in range(0, len(self._times), BLOCK))

    def _blocks(self) -> Iterator[Iterator[Request]]:
        """Yield the requests whose arrival times are known, by `BLOCK`; map is faster than a loop."""
        for start in range(0, len(self._times), BLOCK):
            self.record.release()
            times = self._times[start : start + BLOCK]
            rows = slice(self._first + start, self._first + start + len(times))
            columns: list[Iterable[Any]] = [
                range(rows.start, rows.stop),
                times.tolist(),
                _values(np.asarray(self._width[rows])),
                _values(np.asarray(self._height[rows])),
                _values(np.asarray(self._steps[rows])),
                np.add(times, self._limit_s[rows]).tolist(),
            ]
            if self.workload.has_videos or self._sampling is not None:
                columns.append(_values(np.asarray(self.workload.frames[rows])))
            if self._sampling is not None:
                columns.append(self._sampling[rows])
            yield map(Request, *columns)

    def assign(self, request: Request, plan: Plan) -> None:
        request.plan = plan
        if plan is self._shared_plan:  # faster: many requests have one plan
            request.model, request.width, request.height, steps, request.frames = self._shared
            request.skipped, request.steps, request.steps_left = 0, steps, steps
            return
        request.model = model = plan.model
        if model in self._shapes:
            request.width, request.height, request.steps, request.frames = self._shapes[model]
        k = plan.k
        if k:
            # Rounded down: it may not skip more than the artifact's share of steps
            # (test_k_scales_with_the_steps_of_the_model_that_runs).
            of_steps = plan.of_steps
            request.skipped = k * request.steps // of_steps
            self._plans[request.row - self._first] = k * MAX_STEPS + of_steps
        elif plan.skip_fraction or request.skipped:
            request.skipped = skipped = round(plan.skip_fraction * request.steps)
            self._plans[request.row - self._first] = -skipped
        elif model in self._shapes and self._sampling is None:
            self._shared_plan, self._shared = plan, (model, *self._shapes[model])
        if request.sampling is not None:
            request.skipped = max(request.skipped, request.sampling.skipped(request.steps))
        request.steps_left = request.steps - request.skipped

    def work(self, request: Request) -> Work:
        addons = request.addons
        if request.model is None:
            raise SimulationError(
                f"the plan of the request in row {request.row} names no model; plan it with Run.assign"
            )
        controlnets = () if addons is None else addons.controlnets
        work = Work(
            request.model,
            request.width,
            request.height,
            request.steps,
            request.skipped,
            request.row,
            request.plan.refine,
            request.artifact,
            request.capture,
            () if request.remote_controlnets else controlnets,
            request.loras_now,
            controlnets if request.remote_controlnets else (),
            request.frames,
        )
        # Most runs have no sampling parameters, and a work with three more arguments takes longer to make.
        if request.sampling is None:
            return work
        model = next(each for each in self.models.values() if each.name == work.model)
        return sampled(work, request.sampling, model, self.backend.basis(work.model))

    def attempts(self) -> AttemptLog:
        if self.record.attempts is None:
            self.record.attempts = AttemptLog()
        return self.record.attempts

    def process(self, actor: Generator[simpy.Event, Any, Any]) -> simpy.Process:
        process = self.clock.process(actor)
        self._actors[process] = caller()
        return process

    def record_load(self, asset: Asset, seconds: float) -> None:
        if not 0.0 <= seconds < math.inf:
            raise SimulationError(f"{caller()} loads {asset.name} in {seconds} s; expected 0 or more seconds")
        self.record.logs[LOADS[asset.kind]].add(self.clock._now, seconds)

    def log_decision(self, what: str, **details: Any) -> None:
        self.record.decisions.append((self.clock._now, what, details))

    @property
    def in_system(self) -> int:
        return self.arrived - self._ended

    @property
    def waiting(self) -> int:
        try:
            return len(self.scheduler)
        except (ValueError, TypeError, OverflowError) as error:
            raise self.policy_error("scheduler", f"reports how many requests wait, and {error}") from error

    @property
    def outsiders(self) -> str:
        """The parts from outside the package, by kind and class, for an error; empty if there are none."""
        return part_names(self._parts, *(kind for kind, part in self._parts.items() if has_outsiders({kind: part})))

    def policy_error(self, kind: str, what: str) -> SimulationError:
        return SimulationError(f"{part_name(self._parts, kind)} {what}")

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> tuple[float, float]:
        """Serve every request.

        Returns:
            The wall-clock and processor seconds that simulating took.

        Raises:
            SimulationError: a part broke a law or raised, a request was lost or ended twice, or Little's law fails.
        """
        with attribute_errors(self._actors):
            self.open()
        wall, cpu = time.perf_counter(), time.process_time()
        with attribute_errors(self._actors), uncollected(not self.backend.live):
            if self.server.begin == "cold":
                self.cluster.start_servers()
            # A worker counts as free once the scheduler was asked and had nothing for it
            # (test_step_batcher_of_four_matches_a_worked_example).
            for worker in self.cluster.workers:
                self.pull(worker)
            if self.rows:
                if self._tries is None:
                    self.clock.feed(self._known_times(), ARRIVAL, self._arrive, chain.from_iterable(self._blocks()))
                else:
                    self.clock.feed(self._known_times(), ARRIVAL, self._tries.due, self._pending_rows)
                # From the first arrival on, and before it (test_sample_precedes_the_arrivals_of_its_instant).
                self.clock.at(float(self._times[0]), CONTROL, self._sample)
                self.clock.run()
                # No event is left, so nothing would ever move them.
                for request, reason in self.scheduler.stranded():
                    self.end(request, FAILED, reason)
        took = time.perf_counter() - wall, time.process_time() - cpu
        self._check()
        return took

    def open(self) -> None:
        """Open the cluster and bind every part, as run() does before the clock starts."""
        if self._guarded is not None:
            self.workload.guard()
        scheduler, max_batch = self.scheduler, self.executor.max_batch
        compiles = self._open_servers()
        self.cluster.open(self.clock, self.record, max_batch, self._parts, self.pull, scheduler, self.server, compiles)
        self.clock.overdue = self._overdue
        if self._addons is not None:
            for name in LOADS.values():
                self.record.log(name)
        for assumption in self.handling.assumptions():
            self.assume(assumption.what, assumption.value, assumption.source)
        self.gauge("arrived", lambda _: self.arrived)
        self.gauge("in_system", lambda _: self.in_system)
        self.gauge("queued", lambda _: self.waiting)
        self.gauge("busy", self.cluster.busy)
        self.frontend.bind(self)
        scheduler.bind(self)
        if id(self.executor) != id(scheduler):  # one part may be both
            self.executor.bind(self)
        if self.executor.max_batch != max_batch:
            raise self.policy_error(
                "executor",
                f"has max_batch = {self.executor.max_batch!r} once bound, and {max_batch} before, which the workers "
                "took; set it in its constructor",
            )
        for controller in self.controllers:
            controller.bind(self)
        if self._tries is not None:
            self._tries.bind()

    def _open_servers(self) -> bool:
        """List what starts of servers cost, if one may start; return True if the first request of a shape may cost."""
        server = self.server
        if not (server.is_asked or self.controllers):
            return False  # no server starts
        kinds = [
            (gpu.name, model.name, backend.server_start(model.name))
            for gpu, backend in self.cluster.kinds.items()
            for model in self.models.values()
            if serves(backend, model.name)
        ]
        if not server.is_asked and all(start == ServerStart() for _, _, start in kinds):
            return False
        self.record.log(STARTS)
        self.record.log(COMPILATIONS)
        stated = [each for gpu, model, start in kinds for each in server.of_profile(model, gpu, start)]
        for assumption in (*server.assumptions(), *stated):
            self.assume(assumption.what, assumption.value, assumption.source)
        return any(server.is_known(start) for _, _, start in kinds)

    # -- the path of a request -----------------------------------------------------------------------------------

    def _arrive(self, request: Request) -> None:
        row, now_s = request.row, request.arrival_s
        # The number in the system integrates to the sum of ends less that of arrivals (invariant 4).
        self._area_s -= now_s
        self.arrived += 1
        if self._addons is not None:
            request.addons = self._addons(row)
        took_s = self._admit(request, now_s)
        lookup = request.plan.lookup
        if lookup:
            self.lookups += 1
            if lookup == HIT:
                self.hits += 1
        # After the plan and before the offer: a controller counts what arrives, and its order may change the worker.
        for arrived in self._arrived_callbacks:
            arrived(request, now_s)
        if took_s != 0.0:
            self.clock.at(now_s + took_s, ARRIVAL, self._enter, request)
        elif request.model is None:
            self._enter(request)
        else:
            # As _enter, whose call would take 1 to 2 % of a run of vanilla.
            worker = self.scheduler.offer(request, now_s)
            if worker is not None:
                self.cluster.take(worker)
                if request.worker >= 0:
                    self._refuse(worker, request)
                request.worker = worker.id
                self.executor.accept(worker, request)

    def _admit_later(self, request: Request, now_s: float) -> float:
        return self.frontend.admit(request, now_s) + self.handling.before_s

    def _admit_checked(self, request: Request, now_s: float) -> float:
        took_s, search_s = self.frontend.admit(request, now_s), request.plan.search_s
        if took_s < search_s:
            raise self.policy_error(
                "frontend",
                f"planned the request in row {request.row} with search_s = {search_s} and returned {took_s} s from "
                "admit; return all seconds of planning, those of the search among them",
            )
        return took_s + self.handling.before_s

    def _enter(self, request: Request) -> None:
        now_s = self.clock._now
        if self._tries is not None and self._tries.drops(request):
            return
        if request.model is None:
            if request.plan.source == MISSING:
                what = f"planned for row {request.row} neither a model nor an artifact as the answer; call Run.assign"
                raise self.policy_error("frontend", what)
            request.start_s = now_s
            self.clock.at(now_s + request.plan.fetch_s, COMPLETION, self.end, request)
            return
        worker = self.scheduler.offer(request, now_s)
        if worker is not None:
            self.cluster.take(worker)
            if request.worker >= 0:
                self._refuse(worker, request)
            request.worker = worker.id
            self.executor.accept(worker, request)

    def pull(self, worker: Worker) -> None:
        while worker.open and worker.running < worker.max_batch:
            request = self._next(worker, self.clock._now)
            if request is None:
                if worker.open:  # next() may have disbanded it or changed its role
                    self.cluster.mark_free(worker)
                return
            if worker.bucket is None and worker.open:
                # Already taken out of the free workers by the cluster, which counts on this loop to put it back.
                worker.running += 1  # as Cluster.take, without its check for capacity
            else:
                self.cluster.take(worker)
            # As in _enter, and written here too, since a call for each request costs 1 to 2 % of a run.
            try:
                if request.worker >= 0:
                    self._refuse(worker, request)
            except AttributeError:  # a scheduler's next() may return anything
                self._refuse(worker, request)
            request.worker = worker.id
            self.executor.accept(worker, request)

    def _refuse(self, worker: Worker, request: object) -> None:
        if not isinstance(request, Request):
            raise self.policy_error("scheduler", f"handed {request!r} to {worker}; expected a request or None")
        raise self.policy_error(
            "scheduler",
            f"handed the request in row {request.row} to {worker} and, before, to worker {request.worker}; hand over "
            "each request once",
        )

    def _guard(self, request: Request, now_s: float) -> None:
        """Check the plan of ``request``, and refuse changes of it from now on."""
        self._check_plan(request)
        self._check_request(request, now_s)
        assert self._guarded is not None
        request.__class__ = self._guarded

    def _check_plan(self, request: Request) -> None:
        plan, skipped, steps = request.plan, request.skipped, request.steps
        model, k, took = plan.model, plan.k, (plan.search_s, plan.fetch_s)
        names = [each.name for each in self.models.values()]
        if model is not None and model not in names:
            what = f"the model {model!r}; expected one of {', '.join(names)}"
        elif not (0 <= k <= plan.of_steps and 0 <= skipped <= steps and int(k) == k and int(skipped) == skipped):
            what = f"{skipped} of {steps} steps skipped (K = {k} of {plan.of_steps}); expected 0 to {steps}"
        elif model is not None and request.steps_left != steps - skipped:
            what = f"{skipped} of {steps} steps skipped and {request.steps_left} left"
        elif not all(0.0 <= seconds < math.inf for seconds in took):
            what = f"seconds of {took[0]} to search and {took[1]} to fetch; expected 0 or more"
        elif plan.source == MISSING and (k or plan.lookup == HIT):
            found = LOOKUPS[plan.lookup] or "none"
            what = f"{skipped} of {steps} steps skipped after a lookup ({found}), and no source of what they made"
        elif not 0 <= plan.lookup < len(LOOKUPS):
            what = f"the outcome {plan.lookup!r} of a lookup; expected a code of LOOKUPS"
        elif plan.then is not None and getattr(plan.then, "model", None) not in names:
            what = f"the next try {plan.then!r}; expected a Plan of one of the models"
        else:
            return
        raise self.policy_error("frontend", f"planned for row {request.row} {what}")

    def _check_request(self, request: Request, now_s: float) -> None:
        """Check that what the trace and the model say of ``request`` is unchanged, and that no worker has it."""
        row, found = request.row, (request.width, request.height, request.steps, request.frames)
        own = self._width[row], self._height[row], self._steps[row], self.workload.frames[row]
        size = found if request.model is None else self._shapes.get(request.model, own)
        if request.arrival_s == now_s and request.worker == MISSING and found == size:
            return
        known = {"arrival_s": now_s, "worker": MISSING}
        known |= zip(("width", "height", "steps", "frames"), size, strict=True)
        for name, value in known.items():
            if getattr(request, name) != value:
                raise SimulationError(
                    f"{part_names(self._parts, 'frontend', 'client')} changed {name} of the request in row {row} from "
                    f"{value!r} to {getattr(request, name)!r}; a front end plans a request by Run.assign alone"
                )

    @property
    def may_give_up(self) -> bool:
        return self.client is not None and self.client.gives_up and self.client.cancellation != "never"

    def is_given_up(self, request: Request) -> bool:
        return self._tries is not None and self._tries.is_given_up(request)

    def keep_artifact(self, request: Request, work: Work) -> None:
        request.made = work.made
        if work.quality is not None:
            self.record.request_columns.quality[request.row] = work.quality

    def end(self, request: Request, outcome: int = COMPLETED, reason: str = "") -> None:
        # Before the record is written: it may end later, go on with another try, or have been given up.
        if self._detour is not None and self._detour(request, outcome):
            return
        clock, write = self.clock, self._write  # reading and then calling is faster than calling an attribute
        now_s = clock._now
        try:
            # First, since it refuses a second end, before anything is counted twice
            # (test_request_that_ends_twice_is_reported).
            write(request, now_s, outcome, reason)
        except (KeyError, TypeError, OverflowError, struct.error) as error:
            raise SimulationError(
                f"{caller()} ended the request in row {request.row} with values that cannot be recorded "
                f"({type(error).__name__}: {error})"
            ) from error
        self._area_s += now_s
        self._ended += 1
        if self._request_ended is not None:
            self._request_ended(request, now_s)
        if self._completed is not None and outcome == COMPLETED and self._completed(request):
            clock.at(now_s, INSERTION, self._insert, request)
        if self._ended < self._stopping_end:
            return
        if self._tries is not None:
            self._tries.ended(request, outcome)
        else:
            self.stop_if_over()
            self.next_due(self._arrive_row)

    # -- for clients (mezzotint.sim.client.tries) ----------------------------------------------------------------------

    def arrive(self, request: Request, first: Request | None) -> None:
        assert self._arrivals is not None
        now_s = self._arrivals[request.row - self._first] = request.arrival_s
        if first is None:
            self._arrive(request)
            return
        self._area_s -= now_s
        self.arrived += 1
        request.addons, plan = first.addons, first.plan
        # No front end looks for another artifact, and the lookup counts once, with the first try.
        self.assign(request, plan._replace(lookup=0) if plan.lookup else plan)
        for arrived in self._arrived_callbacks:
            arrived(request, now_s)
        took_s = plan.search_s + self.handling.before_s
        self.clock.at(now_s + took_s, ARRIVAL, self._enter, request)

    def refuse(self, request: Request, reason: str) -> None:
        assert self._arrivals is not None
        self._arrivals[request.row - self._first] = request.arrival_s
        self._area_s -= request.arrival_s
        self.arrived += 1
        self.end(request, DISCARDED, reason)

    def next_due(self, due: Callable[[int], None]) -> None:
        if self._open_loop:
            return
        for row in self._pending_rows:
            # One arrival for each end, after the completions of the instant.
            self.clock.at(self.clock._now + float(self._think_s[row - self._first]), ARRIVAL, due, row)
            break

    def _arrive_row(self, row: int) -> None:
        self.arrive(self.request(row, self.clock._now), None)

    def insert_later(self, request: Request) -> None:
        self.clock.at(self.clock._now, INSERTION, self._insert, request)

    def stop_if_over(self) -> None:
        if self._ended == self.rows:
            # After whatever else the instant holds: its insertions and controllers are part of the run
            # (test_each_admission_policy_keeps_the_images_it_names).
            self.clock.at(self.clock._now, LAST, self._stop)

    def _write_video(self, request: Request, now_s: float, outcome: int, reason: str) -> None:
        self.record.request_columns.end(request, now_s, outcome, reason)
        self._frames[request.row] = request.frames

    def _insert(self, request: Request) -> None:
        made = request if self._tries is None else self._tries.artifact_of(request)
        if made is not None:
            self.frontend.insert(made, self.clock._now)

    def _stop(self, _: None) -> None:
        """End the run after all other calls of the last request's instant; processes end too."""
        self.cluster.stop()
        self.clock.stop()

    # -- GPUs that fail ------------------------------------------------------------------------------------------

    def fail(self, worker: Worker) -> list[Request]:
        now_s = self.clock._now
        lost = self.executor.abort(worker, now_s)
        if len(lost) > worker.running:
            raise self.policy_error(
                "executor", f"lost {len(lost)} requests with {worker}, which has {worker.running} running"
            )
        self._lost.update(request.row for request in lost)
        self.gpu_failures += 1
        # The cluster refuses to take down a busy worker; what ran is the caller's now.
        worker.running = 0
        self.cluster.fail(worker, now_s)
        return lost

    def requeue(self, request: Request) -> None:
        if request.row not in self._lost:
            raise SimulationError(
                f"{caller()} requeues the request in row {request.row}, which was not lost; take those of Run.fail"
            )
        self._lost.remove(request.row)
        # From the start: its state was in the memory of the GPU.
        request.steps_left = request.steps - request.skipped
        self._offer_again(request, request.plan)

    def _offer_again(self, request: Request, plan: Plan) -> None:
        """Offer ``request``, which a worker had, to the scheduler anew; it runs ``plan`` as if it had never run."""
        if self._request_ended is not None:
            self._request_ended(request, self.clock._now)
        request.worker = MISSING
        request.forget_execution()
        if plan is not request.plan:
            self.assign(request, plan)
        self._enter(request)

    # -- samples and checks --------------------------------------------------------------------------------------

    def _sample(self, _: None) -> None:
        """Read every gauge, and schedule the next sample; a pause without events is one row."""
        now_s = self.clock._now
        self.record.sample(now_s)
        if self.progress is not None:
            self.progress(self._ended)
        # Only after the last arrival: before, a pause is one of the trace's.
        is_idle = self.arrived == self.rows and self._ended == self._ended_at_sample and not self.cluster.serving()
        self._idle_samples = self._idle_samples + 1 if is_idle else 0
        self._ended_at_sample = self._ended
        due_s = self.clock.peek()
        # What began before the idle time may take longer: a judge, an answer, a load or a client's patience.
        stalled = self._idle_samples > MAX_IDLE_SAMPLES and not self.clock.has_call_before(self._idle_since)
        if stalled:
            self.clock.stop()
        if due_s == math.inf or stalled:
            return
        # On the grid of samples, and not beyond the next event (test_pause_is_one_row_weighted_by_its_duration).
        pause_s = max(1.0, (due_s - now_s) // self.sample_s) * self.sample_s
        at_s = now_s + pause_s
        if not now_s < at_s < math.inf:
            # So late that a sample interval is less than the spacing of floats: else the clock would stand still.
            at_s = math.nextafter(due_s, math.inf)
        entry = self.clock.at(at_s, CONTROL, self._sample)
        if self._idle_samples <= 1:
            self._idle_since = entry

    def _overdue(self, instant_s: float) -> int:
        """Allow more calls at ``instant_s``. Raises SimulationError if the last ones moved no request."""
        progress = self.arrived + self._ended
        max_calls = MAX_CALLS_EACH * (self.in_system + self.cluster.gpus)
        # Progress since the last check: many requests may arrive or end at one instant.
        if (instant_s, progress) != self._last_progress:
            self._last_progress = instant_s, progress
            return max_calls
        raise SimulationError(
            f"{caller()} asks for calls at {instant_s} s without end, and no request arrived or ended in {max_calls:,} "
            "of them; wait for longer"
        )

    def _finished(self) -> FinishedRun:
        return FinishedRun(
            self.record, self._parts, self.cluster, self.cluster.last_order, self.workload, self.models, self._area_s,
            self._times if self._arrivals is None else self._arrivals, self._plans, self.handling.holds_gpus,
        )  # fmt: skip

    def _check(self) -> None:
        if self._ended != self.rows or self.arrived != self.rows:
            raise incomplete(self._finished(), self.rows, self.arrived, self.waiting, self.gpu_failures)
        if self.waiting:
            raise self.policy_error("scheduler", f"says that {self.waiting} requests wait, and all have ended")
        self.record.request_columns.make_contiguous()
        check(self._finished())


class GuardedRun(Engine):
    """A run with classes from outside the package: they read it, and only an executor completes requests."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "progress" and not is_ours(sys._getframe(1).f_globals["__name__"]):
            raise SimulationError(f"{caller()} sets {name} of the run to {value!r}; a part reads the run")
        object.__setattr__(self, name, value)

    def request(self, row: int, now_s: float) -> Request:
        return hashed_by_row(Engine.request(self, row, now_s))

    def _blocks(self) -> Iterator[Iterator[Request]]:
        return (map(hashed_by_row, block) for block in super()._blocks())

    def end(self, request: Request, outcome: int = COMPLETED, reason: str = "") -> None:
        kind = calling_kind(self._parts)
        if outcome not in (COMPLETED, DISCARDED, FAILED):
            raise SimulationError(
                f"{caller()} ended the request in row {request.row} as {outcome!r}; expected COMPLETED, DISCARDED or "
                "FAILED"
            )
        if not isinstance(reason, str):
            raise SimulationError(
                f"{caller()} ended the request in row {request.row} for the reason {reason!r}; expected text"
            )
        if kind not in ("executor", None) and (outcome == COMPLETED or request.worker >= 0):
            how = "completed" if outcome == COMPLETED else f"{OUTCOMES[outcome]}, which runs on worker {request.worker}"
            raise self.policy_error(
                kind, f"ended the request in row {request.row} as {how}; it may end those that wait, unserved"
            )
        is_other = kind != "executor" and not is_ours(sys._getframe(1).f_globals["__name__"])
        who = caller() if is_other else ""
        try:
            Engine.end(self, request, outcome, reason)
        except SimulationError as error:
            if first := self._enders.get(request.row):
                raise SimulationError(f"{error} by {first}") from None
            raise
        if who:
            self._enders[request.row] = who

    def assign(self, request: Request, plan: Plan) -> None:
        if not isinstance(request, Request) or not isinstance(plan, Plan):
            raise SimulationError(
                f"{caller()} called Run.assign with {request!r:.100} and {plan!r:.100}; expected a Request and a Plan"
            )
        if request.worker != MISSING:
            raise SimulationError(
                f"{caller()} planned the request in row {request.row} anew, which runs on worker {request.worker}; plan"
                " those that wait"
            )
        for name, kinds in PLAN_NUMBERS.items() if plan is not self._shared_plan else ():
            value = getattr(plan, name)
            if not isinstance(value, kinds) or (name == "of_steps" and plan.of_steps < 1):
                expected = "a whole number" if kinds is WHOLE_NUMBER else "a number"
                raise SimulationError(
                    f"{caller()} planned the request in row {request.row} with {name} = {value!r:.100}; expected "
                    f"{expected}{' from 1 on' if name == 'of_steps' else ''}"
                )
        if plan.source == MISSING and plan.k:
            raise SimulationError(
                f"{caller()} planned that the request in row {request.row} skips steps, and no source of what they made"
            )
        Engine.assign(self, request, plan)


@contextmanager
def attribute_errors(actors: Mapping[simpy.Process, str]) -> Iterator[None]:
    """Turn an exception of a part into one that names the part; others of the system, and ours that name it, pass.

    ``actors`` names the parts of SimPy's processes, which SimPy resumes without them on the stack.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError | MemoryError) and not is_raised_outside(error):
            raise
        ours = is_ours(type(error).__module__)
        attributed_to_part = unnamed_refusal(error) if ours else attributed_error(error, actors)
        if attributed_to_part is None:
            raise
        # contextlib takes a RuntimeError whose cause is a StopIteration for its own.
        raise attributed_to_part from (None if isinstance(error, StopIteration) else error)


def _values(column: NDArray[Any]) -> Iterable[Any]:
    """Return the numbers of ``column`` as Python's; one number again and again costs no memory."""
    first = column[0].item()
    return repeat(first) if (column == first).all() else column.tolist()


@contextmanager
def uncollected(wanted: bool) -> Iterator[None]:
    """Pause the garbage collector in the block, if ``wanted``: it takes a tenth of a simulated run and finds nothing.

    It must stay on for live pipelines, whose reference cycles may hold tensors.
    """
    wanted = wanted and gc.isenabled()
    if wanted:
        gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()
