"""The life of a request, from its row in the trace to its one end.

trace row -> front door -> scheduler -> worker -> record. The engine owns the clock and hands each request
from one to the next; what they decide is theirs. Every part is given the run once, before the clock starts
(``bind``), and finds in it what sim.parts.Run says.
"""

import gc
import math
import time
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import simpy

from backends.base import Asset, Backend, Work
from sim.clock import ARRIVAL, COMPLETION, CONTROL, INSERTION, LAST, Clock
from sim.cluster.cluster import Cluster
from sim.errors import SimulationError
from sim.model import Model, in_role
from sim.parts import Controller, Door, Executor, Scheduler
from sim.record.facts import Fact, Facts
from sim.record.record import LOADS, Log, Record
from sim.request import COMPLETED, HIT, MISSING, Request
from sim.streams import stream
from sim.workload import Similarity, Workload

PATIENCE = 1_000
"""Samples in a row in which nothing came, ran or ended: then nothing ever will, whatever controllers still do."""


class Engine:
    """One run: the requests of a trace through one system on one cluster.

    Args:
        workload: what arrives, and when.
        similarity: how alike the prompts are, and how the most similar is found.
        models: the models by role, largest first.
        cluster: the GPUs.
        seed: the run's seed; every random stream is spawned from it by name.
        controllers: slow loops that change the cluster.
        sample_s: seconds between rows of the time series.
    """

    def __init__(
        self,
        *,
        workload: Workload,
        similarity: Similarity,
        models: Mapping[str, Model],
        cluster: Cluster,
        backend: Backend,
        door: Door,
        scheduler: Scheduler,
        executor: Executor,
        seed: int,
        controllers: Sequence[Controller] = (),
        sample_s: float = 60.0,
    ) -> None:
        self.clock = Clock()
        self.workload = workload
        self.similarity = similarity
        self.models = models
        self.cluster = cluster
        self.backend = backend
        self.door = door
        self.scheduler = scheduler
        self.executor = executor
        self.controllers = controllers
        self.seed = seed
        self.sample_s = sample_s
        self.rows = workload.rows
        self.record = Record(Facts(self.rows, [model.name for model in models.values()], workload.preload))
        self.arrived = 0
        self.lookups = 0
        self.hits = 0
        self.gpu_failures = 0
        self.progress: Callable[[int], object] | None = None
        self._first = workload.preload
        self._native = workload.native
        self._width, self._height, self._steps = workload.width, workload.height, workload.steps
        self._limit_s = workload.limit_s
        self._addons = workload.addons
        times = array("d", workload.schedule.times.tobytes())
        self._think_s = workload.schedule.think_s
        self._open_loop = len(times) == self.rows
        self._times = times
        self._coming = iter(range(self._first, self._first + self.rows))
        self._ended = 0
        self._seen, self._idle = -1, 0
        self._area_s = 0.0
        self._tell_ended: Callable[[Request, float], None] | None = getattr(scheduler, "ended", None)

    # -- what a part is given and declares: see sim.parts.Run ----------------------------------------------------

    def rng(self, name: str) -> np.random.Generator:
        """See Run.rng."""
        return stream(self.seed, name)

    def model(self, role: str) -> Model:
        """See Run.model."""
        model = in_role(self.models, role)
        self.backend.require(model.name)
        return model

    def request(self, row: int, now_s: float) -> Request:
        """See Run.request."""
        return Request(row, now_s, self._width[row], self._height[row], self._steps[row])

    def assign(self, request: Request, model: Model) -> None:
        """See Run.assign."""
        request.model = model.name
        if self._native:
            request.width, request.height, request.steps = model.width, model.height, model.steps
        if request.k:
            request.skipped = request.k * request.steps // request.of_steps
            request.left = request.steps - request.skipped
        else:
            request.left = request.steps

    def work(self, request: Request) -> Work:
        """See Run.work."""
        if request.model is None:
            raise SimulationError(f"request in row {request.row} is to be run and its plan names no model")
        addons = request.addons
        controlnets, loras = ((), ()) if addons is None else addons
        return Work(
            request.model,
            request.width,
            request.height,
            request.steps,
            request.skipped,
            request.row,
            request.refine,
            request.artifact,
            request.capture,
            () if request.apart else controlnets,
            () if request.bare else loras,
            controlnets if request.apart else (),
        )

    def assume(self, what: str, value: Any, source: str) -> None:
        """See Run.assume."""
        self.record.assume(what, value, source)

    def fact(
        self, name: str, kind: type = float, *, default: float | int | bool | None = None, shown: bool = True
    ) -> Fact:
        """See Run.fact."""
        return self.record.facts.declare(name, kind, shown, default)

    def gauge(self, name: str, read: Callable[[float], float | int | bool]) -> None:
        """See Run.gauge."""
        self.record.gauge(name, read)

    def log(self, name: str) -> Log:
        """See Run.log."""
        return self.record.log(name)

    def process(self, actor: Generator[simpy.Event, Any, Any]) -> simpy.Process:
        """See Run.process."""
        return self.clock.process(actor)

    def loaded(self, asset: Asset, seconds: float) -> None:
        """See Run.loaded."""
        self.record.logs[LOADS[asset.kind]].add(self.clock._now, seconds)

    def decided(self, what: str, **details: Any) -> None:
        """See Run.decided."""
        self.record.decisions.append((self.clock._now, what, details))

    @property
    def in_system(self) -> int:
        """See Run."""
        return self.arrived - self._ended

    @property
    def waiting(self) -> int:
        """See Run."""
        return len(self.scheduler)

    # -- the run -------------------------------------------------------------------------------------------------

    def run(self) -> "Wall":
        """Serve every request. Returns the time that simulating took.

        Raises SimulationError when a request was lost or ended twice, or Little's law does not hold, and when a part
        did what cannot be.
        """
        self._open()
        wall, cpu = time.perf_counter(), time.process_time()
        with uncollected(not self.backend.live):
            for worker in self.cluster.workers:
                self.pull(worker)
            if self.rows:
                self.clock.feed(self._times, ARRIVAL, self._arrive, self._coming)
                self.clock.at(self._times[0], CONTROL, self._sample)
                self.clock.run()
        spent = Wall(time.perf_counter() - wall, time.process_time() - cpu)
        self._check()
        return spent

    def _open(self) -> None:
        """Bind every part to this run."""
        parts: dict[str, object] = {"scheduler": self.scheduler, "executor": self.executor, "door": self.door}
        limit = getattr(self.executor, "limit", 1)
        keeps = getattr(self.scheduler, "keeps", None)  # most schedulers keep nothing for one worker
        self.cluster.open(self.clock, self.record, limit, parts, self.pull, self.scheduler.moved, keeps)
        if self._addons is not None:
            for name in LOADS.values():
                self.record.log(name)
        self.gauge("arrived", lambda _: self.arrived)
        self.gauge("in_system", lambda _: self.in_system)
        self.gauge("queued", lambda _: len(self.scheduler))
        self.gauge("busy", self.cluster.busy)
        for part in (self.door, self.scheduler, self.executor, *self.controllers):
            cast(Any, part).bind(self)

    # -- the way of a request ------------------------------------------------------------------------------------

    def _arrive(self, row: int) -> None:
        now_s = self.clock._now
        self._area_s -= now_s
        self.arrived += 1
        request = Request(row, now_s, self._width[row], self._height[row], self._steps[row], now_s + self._limit_s[row])
        if self._addons is not None:
            request.addons = self._addons(row)
        took_s = self.door.admit(request, now_s)
        if request.lookup:
            self.lookups += 1
            self.hits += request.lookup == HIT
        for controller in self.controllers:
            controller.arrived(request, now_s)
        if took_s > 0.0:
            self.clock.at(now_s + took_s, ARRIVAL, self._enter, request)
        else:
            self._enter(request)

    def _enter(self, request: Request) -> None:
        """The front door is done with ``request``: queue it, or answer it with the artifact itself."""
        now_s = self.clock._now
        if request.model is None:
            request.start_s = now_s
            self.clock.at(now_s + request.fetch_s, COMPLETION, self.end, request)
            return
        worker: Any = self.scheduler.offer(request, now_s)
        if worker is not None:
            self.cluster.take(worker)
            self.executor.accept(worker, request)

    def pull(self, worker: Any) -> None:
        """See Run.pull."""
        while worker.open and worker.aboard < worker.limit:
            request = self.scheduler.next(worker, self.clock._now)
            if request is None:
                if worker.open:  # not disbanded or ordered elsewhere by what was asked
                    self.cluster.rest(worker)
                return
            if worker.lane is None and worker.open:
                worker.aboard += 1  # as Cluster.take, which would look for what was just seen: it has room
            else:
                self.cluster.take(worker)
            self.executor.accept(worker, request)

    def made(self, request: Request, work: Work) -> None:
        """See Run.made."""
        request.made = work.made
        if work.quality is not None:
            self.record.facts.quality[request.row] = work.quality

    def end(self, request: Request, outcome: int = COMPLETED, reason: str = "") -> None:
        """See Run.end."""
        now_s = self.clock._now
        self.record.facts.end(request, now_s, outcome, reason)
        self._area_s += now_s
        self._ended += 1
        if self._tell_ended is not None:
            self._tell_ended(request, now_s)
        if outcome == COMPLETED and self.door.completed(request):
            self.clock.at(now_s, INSERTION, self._insert, request)
        if self._ended == self.rows:
            self.clock.at(now_s, LAST, self._stop)
        elif not self._open_loop:
            for coming in self._coming:
                self.clock.at(now_s + self._think_s, ARRIVAL, self._arrive, coming)
                break

    def _insert(self, request: Request) -> None:
        self.door.insert(request, self.clock._now)

    def _stop(self, _: None) -> None:
        """All that this instant holds is done, and so is the run: actors end with the last request."""
        self.cluster.stop()
        self.clock.stop()

    # -- GPUs that fail ------------------------------------------------------------------------------------------

    def fail(self, worker: Any) -> list[Request]:
        """See Run.fail. Raises SimulationError where the executor cannot lose a GPU."""
        now_s = self.clock._now
        abort = getattr(self.executor, "abort", None)
        if abort is None:
            executor = type(self.executor)
            raise SimulationError(
                f"{worker} fails and the executor ({executor.__module__}.{executor.__qualname__}) has no method abort; "
                "choose another executor= or failures=none"
            )
        lost: list[Request] = abort(worker, now_s)
        self.gpu_failures += 1
        self.cluster.fail(worker, now_s)
        return lost

    def requeue(self, request: Request) -> None:
        """See Run.requeue."""
        request.worker = MISSING
        request.start_s = request.load_s = request.denoise_s = request.decode_s = request.energy_j = 0.0
        request.left = request.steps - request.skipped
        if self._tell_ended is not None:
            self._tell_ended(request, self.clock._now)
        self._enter(request)

    # -- what is written beside the requests ---------------------------------------------------------------------

    def _sample(self, _: None) -> None:
        """Look at every gauge, and again in a while: a pause in which nothing happens is one row."""
        now_s = self.clock._now
        self.record.sample(now_s)
        if self.progress is not None:
            self.progress(self._ended)
        still = self.arrived == self.rows and self._ended == self._seen and not self.cluster.serving()
        self._idle = self._idle + 1 if still else 0
        self._seen = self._ended
        due_s = self.clock.peek()
        if self._idle > PATIENCE:
            self.clock.stop()
        if due_s == math.inf or self._idle > PATIENCE:
            return
        pause_s = max(1.0, (due_s - now_s) // self.sample_s) * self.sample_s
        at_s = now_s + pause_s
        if not now_s < at_s < math.inf:
            at_s = math.nextafter(due_s, math.inf)
        self.clock.at(at_s, CONTROL, self._sample)

    def _check(self) -> None:
        facts = self.record.facts
        ended = int(np.count_nonzero(facts["outcome"]))
        if self.arrived != self.rows or ended != self.rows:
            scheduler = type(self.scheduler)
            why = (
                f"the scheduler ({scheduler.__module__}.{scheduler.__qualname__}) kept requests that no worker may run"
            )
            if self.gpu_failures:
                why += (
                    f", or GPUs do not stay up for as long as one takes: they failed {self.gpu_failures} times; raise "
                    "failures.mean_up_s, or look at failures.outages"
                )
            raise SimulationError(
                f"of {self.rows} requests {self.arrived} arrived and {ended} ended; {len(self.scheduler)} still wait: "
                f"{why}"
            )
        stays = facts["finish_s"] - facts["arrival_s"]
        rounding = 1e-6 + 1e-15 * self.rows * float(facts["finish_s"].max(initial=0.0))
        if not np.isclose(self._area_s, stays.sum(), rtol=1e-6, atol=rounding):
            raise SimulationError(
                f"Little's law fails: the number in the system integrates to {self._area_s} request-seconds, "
                f"the requests' times sum to {stays.sum()}"
            )


@contextmanager
def uncollected(wanted: bool) -> Iterator[None]:
    """Have Python look for no cycles of garbage meanwhile, if that is ``wanted``.

    What a simulated request leaves behind is freed as it is let go, and looking through all that a large cache holds,
    again and again, is a tenth of a run. A live pipeline's cycles may hold tensors, so that there it goes on.
    """
    wanted = wanted and gc.isenabled()
    if wanted:
        gc.disable()
    try:
        yield
    finally:
        if wanted:
            gc.enable()


@dataclass(frozen=True, slots=True)
class Wall:
    """Seconds that simulating took, by the clock on the wall and on the processor."""

    simulate_s: float
    cpu_s: float
