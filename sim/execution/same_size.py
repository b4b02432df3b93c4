"""What the stages of step-by-step execution cost when the backend alone decides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.base import FREE, Cost, Work
from sim.addons.assets import addons, on_all_gpus
from sim.core.request import Request
from sim.execution.speedup import Speedup, speedup_of
from sim.protocols import Run, Steps, Worker


@dataclass(slots=True)
class SameSizeSteps(Steps):
    """Steps as the backend has them: text encoding at the start, one batch of all active, decoding at the end.

    Args:
        speedup: GPUs of a group -> how many times faster than on one its steps are, of a batch as of one request; goes
            before the backend's profile.

    Raises ConfigError for a group of a size that has none there and was not measured.
    """

    speedup: Speedup = field(default_factory=dict)
    _run: Run = field(init=False, repr=False)
    _bounded: bool = field(init=False, default=False, repr=False)
    _works: dict[int, Work] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        self._run = run
        self._bounded = run.cluster.gpu.memory_bytes is not None and run.backend.measures_memory

    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        work = self._works[request.row] = self._run.work(request)
        return on_all_gpus(worker, self._run.backend.begin([work]))

    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        cost = self._run.backend.steps(self.works(worker, active))
        if len(worker.gpus) == 1:
            return cost
        faster = (speedup_of(self._run, worker, each, self.speedup, "batching.speedup") for each in active)
        return on_all_gpus(worker, cost.over(min(faster)))

    def works(self, worker: Worker, active: Sequence[Request]) -> list[Work]:
        """Those of ``active``, which fit into the memory of ``worker`` together: else SimulationError is raised."""
        works = [self._done(request) for request in active]
        if self._bounded:
            peak = self._run.backend.peak_bytes(works)
            runs = [addons(work.model, work.controlnets, work.loras) for work in works]
            if peak is not None:
                peak -= sum(request.swapped_bytes for request in active)
            self._run.cluster.check_memory(worker, peak, runs)
        return works

    def price(self, works: Sequence[Work]) -> Cost:
        self.begin_live(works)
        return self._run.backend.steps(works)

    def begin_live(self, works: Sequence[Work]) -> None:
        if self._run.backend.live:
            self._run.backend.begin(works)

    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        work = self._done(request)
        del self._works[request.row]
        cost = self._run.backend.end([work])
        self._run.keep_artifact(request, work)
        return on_all_gpus(worker, cost), FREE

    def _done(self, request: Request) -> Work:
        """The work of ``request`` as it stands: steps were jumped over, LoRAs may have come."""
        work = self._works[request.row]
        work.done = request.steps - request.steps_left
        if request.addons is not None:
            work.loras = () if request.loras_pending else request.addons.loras
        return work
