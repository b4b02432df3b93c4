"""What the stages of step-by-step execution cost when the backend alone decides."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.base import Cost, Work
from sim.cluster.residence import addons
from sim.errors import SimulationError
from sim.parts import Run, Worker
from sim.request import Request

FREE = Cost(0.0, 0.0)


@dataclass(slots=True)
class Batched:
    """Steps as the backend has them: text encoding at the start, one batch of all active, decoding at the end."""

    _run: Run = field(init=False, repr=False)
    _works: dict[int, Work] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, cut: Callable[[Worker], None]) -> None:
        """See Steps.bind."""
        self._run = run

    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        """See Steps.prepare. Raises SimulationError for a gang, whose speed a backend does not know."""
        if len(worker.gpus) > 1:
            raise SimulationError(
                f"{worker} steps together, and nothing says how fast several GPUs make a step; a gang serves with "
                "executor=whole-request, or with steps= that know"
            )
        work = self._works[request.row] = self._run.work(request)
        return self._run.backend.begin([work])

    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        """See Steps.step. Raises SimulationError where the batch does not fit into the GPU's memory."""
        return self._run.backend.steps(self.works(worker, active))

    def works(self, worker: Worker, active: Sequence[Request]) -> list[Work]:
        """Those of ``active``, which fit into the memory of ``worker`` together: else SimulationError is raised."""
        works = [self._done(request) for request in active]
        if self._run.cluster.gpu.memory_bytes is not None:
            runs = [addons(work.model, work.controlnets, work.loras) for work in works]
            self._run.cluster.check_memory(worker, self._run.backend.peak_bytes(works), runs)
        return works

    def price(self, works: Sequence[Work]) -> Cost:
        """See Priced.price."""
        self.begin_live(works)
        return self._run.backend.steps(works)

    def begin_live(self, works: Sequence[Work]) -> None:
        """Prepare ``works`` where a step is really made."""
        if self._run.backend.live:
            self._run.backend.begin(works)

    def boundary(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        """See Steps.boundary."""
        return FREE

    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        """See Steps.finish."""
        work = self._done(request)
        del self._works[request.row]
        cost = self._run.backend.end([work])
        self._run.made(request, work)
        return cost, FREE

    def _done(self, request: Request) -> Work:
        """The work of ``request``, at the step that it is at: those that were jumped over were not asked for."""
        work = self._works[request.row]
        work.done = request.steps - request.left
        return work
