"""The life of a request, from its row in the trace to its one end.

trace row -> front door -> scheduler -> worker -> record. The engine owns the clock and hands each request
from one to the next; what they decide is theirs. Every part is given the engine once, before the clock starts
(``bind``), and finds in it the clock, the backend, the models, the workers and its random stream.
"""

import math
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend, Work
from conf.assumption import Assumption
from sim.clock import ARRIVAL, COMPLETION, CONTROL, INSERTION, Clock
from sim.cluster.worker import Gpu, Worker
from sim.errors import ConfigError, SimulationError
from sim.record.columns import COMPLETED, DISCARDED, FAILED, Columns
from sim.record.series import Series
from sim.request import Request
from sim.reuse.outage import Outages
from traces.arrivals.base import Schedule
from traces.similarity.scale import Identity, Scale
from traces.similarity.search import Search


@dataclass(frozen=True, slots=True)
class Model:
    """A model in a role: its name in the profiles, and the shape and steps that it is made for."""

    name: str
    steps: int
    width: int
    height: int

    def __post_init__(self) -> None:
        if not (0 < self.steps <= 10_000 and 0 < self.width <= 65_536 and 0 < self.height <= 65_536):
            raise ConfigError(
                f"models: {self.name}: expected 1 to 10,000 steps and sides of 1 to 65,536 pixels, found {self}"
            )


def in_role(models: Mapping[str, Model], role: str) -> Model:
    """The model in ``role``. Raises ConfigError where ``models`` has none."""
    if role not in models:
        raise ConfigError(
            f"models: the system needs a model in role {role!r}, found only {', '.join(models)}; choose another models="
        )
    return models[role]


@runtime_checkable
class Door(Protocol):
    """The front door: decides what will run for a request. It takes time but no GPU."""

    def bind(self, engine: "Engine") -> None: ...

    def admit(self, request: Request, now_s: float) -> float:
        """Write the plan into ``request``; return the seconds that deciding took."""

    def completed(self, request: Request) -> bool:
        """Whether the image just made leaves an artifact that ``insert`` must be called for."""

    def insert(self, request: Request, now_s: float) -> None:
        """Make the artifacts of ``request`` visible to searches."""


@runtime_checkable
class Scheduler(Protocol):
    """Who runs next, and where."""

    def bind(self, engine: "Engine") -> None: ...

    def offer(self, request: Request, now_s: float) -> Worker | None:
        """A request is ready: return the idle worker that takes it now, or keep it and return None."""

    def free(self, worker: Worker, now_s: float) -> Request | None:
        """A worker has room: return what it runs next, or remember it as idle and return None."""

    def __len__(self) -> int:
        """Requests that wait."""


@runtime_checkable
class Executor(Protocol):
    """How a worker turns plans into time."""

    def bind(self, engine: "Engine") -> None: ...

    def accept(self, worker: Worker, request: Request) -> None:
        """Start ``request`` on ``worker`` now; call Engine.complete when it is done."""


class Engine:
    """One run: the requests of a trace through one system on one cluster.

    Args:
        schedule: when requests arrive (traces.arrivals).
        shapes: width, height and steps of every row, int32 (preload + n,) each, the preloaded ones first.
        models: the models by role.
        gpu: the kind of GPU, its power draw and its price.
        workers: the cluster.
        seed: the run's seed; every random stream is spawned from it by name.
        search: how caches are searched; every way finds the same.
        scale: of the encoder's similarity; None takes it as CLIP's.
        content: names the trace and its encoder, for what is remembered on disk; None keeps nothing.
        embeddings: gives the text embeddings (preload + n, d) of all rows, the preloaded ones first.
        native: every request takes the shape and steps of the model that its plan names, not its own.
        preload: rows at the head of the trace that fill the caches at the start and are not served.
        sample_s: seconds between rows of the time series.
    """

    def __init__(
        self,
        *,
        schedule: Schedule,
        shapes: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]],
        models: Mapping[str, Model],
        gpu: Gpu,
        workers: Sequence[Worker],
        backend: Backend,
        door: Door,
        scheduler: Scheduler,
        executor: Executor,
        seed: int,
        embeddings: Callable[[], NDArray[np.float32]],
        search: Search,
        scale: Scale | None = None,
        content: str | None = None,
        native: bool = True,
        preload: int = 0,
        sample_s: float = 60.0,
    ) -> None:
        self.clock = Clock()
        self.models = models
        self.gpu = gpu
        self.workers = workers
        self.backend = backend
        self.door = door
        self.scheduler = scheduler
        self.executor = executor
        self.seed = seed
        self.embeddings = embeddings
        self.search = search
        self.scale: Scale = scale or Identity()
        self.content = content
        self.native = native
        self.preload = preload
        self.sample_s = sample_s
        self.rows = len(shapes[0]) - preload
        self.columns = Columns(self.rows, [model.name for model in models.values()])
        self.series = Series()
        self.alpha: float | None = None
        self.outages: dict[str, Outages] = {}
        self.arrived = 0
        self.in_system = 0
        self.busy = 0
        self.progress: Callable[[int], object] | None = None
        self._assumptions: list[Assumption] = []
        self.shapes = tuple(array("i", np.roll(column, -preload).tobytes()) for column in shapes)
        self._width, self._height, self._steps = self.shapes
        self._times = array("d", schedule.times.tobytes())
        self._think_s = schedule.think_s
        self._called = 0
        self._area_s = 0.0
        self._since_s = 0.0

    def rng(self, name: str) -> np.random.Generator:
        """The random stream called ``name``: the same for the same seed, whatever else the run draws."""
        return stream(self.seed, name)

    def assume(self, what: str, value: Any, source: str) -> None:
        """Put something that the result rests on into the summary."""
        said = Assumption(what, value, source)
        if said not in self._assumptions:
            self._assumptions.append(said)

    def assumptions(self) -> list[Assumption]:
        """Everything said by ``assume``, then what the backend says."""
        return [*self._assumptions, *self.backend.assumptions()]

    def run(self) -> "Wall":
        """Serve every request. Returns the time that simulating took.

        Raises SimulationError when a request was lost or ended twice, or Little's law does not hold.
        """
        for part in (self.door, self.scheduler, self.executor):
            part.bind(self)
        wall, cpu = time.perf_counter(), time.process_time()
        for worker in self.workers:
            self.pull(worker)
        if self.rows:
            self._call_next(0.0)
            for _ in range(1, self._open_at_once()):
                self._call_next(0.0)
            self.clock.at(self._times[0], CONTROL, self._sample)
        self.clock.run()
        spent = Wall(time.perf_counter() - wall, time.process_time() - cpu)
        self._check()
        return spent

    def request(self, row: int, now_s: float) -> Request:
        """What ``row`` asks for. Rows -preload..-1 are those that fill the caches and are not served."""
        return Request(row, now_s, self._width[row], self._height[row], self._steps[row])

    def model(self, role: str) -> Model:
        """The model in ``role``, which the backend can serve. Raises ConfigError where there is none."""
        model = in_role(self.models, role)
        self.backend.require(model.name)
        return model

    def assign(self, request: Request, model: Model) -> None:
        """Plan ``request`` for ``model``: with native shapes it takes that model's; K keeps its share of N."""
        request.model = model.name
        if self.native:
            request.width, request.height, request.steps = model.width, model.height, model.steps
        if request.k:
            request.skipped = request.k * request.steps // request.of_steps

    def work(self, request: Request) -> Work:
        """The plan of ``request`` as its backend runs it. Raises SimulationError where no model is planned."""
        if request.model is None:
            raise SimulationError(f"request in row {request.row} is to be run and its plan names no model")
        return Work(
            request.model,
            request.width,
            request.height,
            request.steps,
            request.skipped,
            request.row + self.preload,
            request.refine,
            request.artifact,
            request.capture,
        )

    # -- the way of a request ------------------------------------------------------------------------------

    def _open_at_once(self) -> int:
        """Arrivals to hold on the clock: one for an open loop, all outstanding ones for a closed loop."""
        return 1 if len(self._times) == self.rows else len(self._times)

    def _call_next(self, closed_at_s: float) -> None:
        row = self._called
        if row < self.rows:
            self._called = row + 1
            at_s = self._times[row] if row < len(self._times) else closed_at_s
            self.clock.at(at_s, ARRIVAL, self._arrive, row)

    def _arrive(self, row: int) -> None:
        now_s = self.clock._now
        if len(self._times) == self.rows:
            self._call_next(now_s)
        self._area_s += self.in_system * (now_s - self._since_s)
        self._since_s = now_s
        self.in_system += 1
        self.arrived += 1
        request = self.request(row, now_s)
        took_s = self.door.admit(request, now_s)
        if took_s > 0.0:
            self.clock.at(now_s + took_s, ARRIVAL, self.enter, request)
        else:
            self.enter(request)

    def enter(self, request: Request) -> None:
        """The front door is done with ``request``: queue it, or answer it with the artifact itself."""
        now_s = self.clock._now
        if request.model is None:
            request.start_s = now_s
            self.clock.at(now_s + request.fetch_s, COMPLETION, self.complete, request)
            return
        worker = self.scheduler.offer(request, now_s)
        if worker is not None:
            self.executor.accept(worker, request)

    def pull(self, worker: Worker) -> None:
        """Give ``worker`` its next request, if any waits for it."""
        request = self.scheduler.free(worker, self.clock._now)
        if request is not None:
            self.executor.accept(worker, request)

    def complete(self, request: Request) -> None:
        """The image of ``request`` is done: the first of the three ways to end."""
        self._end(request, COMPLETED, "")
        if self.door.completed(request):
            self.clock.at(self.clock._now, INSERTION, self._insert, request)

    def discard(self, request: Request, reason: str) -> None:
        """A policy gives ``request`` up, for ``reason``: the second way to end."""
        self._end(request, DISCARDED, reason)

    def fail(self, request: Request, reason: str) -> None:
        """A worker could not finish ``request``, for ``reason``: the third way to end."""
        self._end(request, FAILED, reason)

    def _insert(self, request: Request) -> None:
        self.door.insert(request, self.clock._now)

    def _end(self, request: Request, outcome: int, reason: str) -> None:
        now_s = self.clock._now
        self.columns.end(request, now_s, outcome, reason)
        self._area_s += self.in_system * (now_s - self._since_s)
        self._since_s = now_s
        self.in_system -= 1
        if self._called < self.rows and len(self._times) < self.rows:
            self._call_next(now_s + self._think_s)

    # -- what is written beside the requests ---------------------------------------------------------------

    def _sample(self, _: None) -> None:
        now_s = self.clock._now
        self.series.sample(now_s, self.arrived, self.in_system, len(self.scheduler), self.busy)
        if self.progress is not None:
            self.progress(self.arrived - self.in_system)
        # Nothing changes between events: a pause is one row, and where nothing is due the clock may stop.
        due_s = self.clock.peek()
        if due_s < float("inf"):
            pause_s = max(1.0, (due_s - now_s) // self.sample_s) * self.sample_s
            at_s = now_s + pause_s
            if not now_s < at_s < float("inf"):
                at_s = math.nextafter(due_s, float("inf"))
            self.clock.at(at_s, CONTROL, self._sample)

    def _check(self) -> None:
        ended = int(np.count_nonzero(self.columns["outcome"]))
        if self.arrived != self.rows or ended != self.rows:
            raise SimulationError(
                f"of {self.rows} requests {self.arrived} arrived and {ended} ended; {len(self.scheduler)} "
                "still wait: a scheduler kept requests that no worker may run"
            )
        stays = self.columns["finish_s"] - self.columns["arrival_s"]
        if not np.isclose(self._area_s, stays.sum(), rtol=1e-6, atol=1e-6):
            raise SimulationError(
                f"Little's law fails: the number in the system integrates to {self._area_s} request-seconds, "
                f"the requests' times sum to {stays.sum()}"
            )


@dataclass(frozen=True, slots=True)
class Wall:
    """Seconds that simulating took, by the clock on the wall and on the processor."""

    simulate_s: float
    cpu_s: float


def stream(seed: int, name: str) -> np.random.Generator:
    """The random stream ``name`` of ``seed``; streams of different names are independent."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(name.encode())))
