"""Stage costs of continuous batching when all requests of a batch share a size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mezzotint.backends.base import FREE, Backend, Cost, Work
from mezzotint.sim.core.request import Request
from mezzotint.sim.execution.loading import check_memory
from mezzotint.sim.protocols import Run, Steps, Worker


@dataclass(slots=True)
class SameSizeSteps(Steps):
    """The backend's own costs: text encoding when a request joins, a step of the whole batch, decoding at the end."""

    _run: Run = field(init=False, repr=False)
    _checks_memory: bool = field(init=False, default=False, repr=False)
    _works: dict[int, Work] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        self._run = run
        kinds = run.cluster.kinds.items()
        self._checks_memory = any(gpu.memory_bytes is not None and backend.measures_memory for gpu, backend in kinds)

    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        work = self._works[request.row] = self._run.work(request)
        return worker.backend.begin([work])

    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        works = [self._current_work(request) for request in active]
        if self._checks_memory:
            check_memory(self._run.cluster, worker, works, active)
        return self.on_one_gpu(worker.backend, works)

    def on_one_gpu(self, backend: Backend, works: Sequence[Work]) -> Cost:
        """Return the cost of one step of ``works`` on one GPU with the costs of ``backend``."""
        return backend.steps(works)

    def price(self, works: Sequence[Work]) -> Cost:
        backend = self._run.backend
        if backend.live:
            backend.begin(works)
        return self.on_one_gpu(backend, works)

    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        work = self._current_work(request)
        del self._works[request.row]
        cost = worker.backend.end([work])
        self._run.keep_artifact(request, work)
        return cost, FREE

    def _current_work(self, request: Request) -> Work:
        """Return the work of ``request`` with its steps done so far and the LoRAs loaded so far."""
        work = self._works[request.row]
        work.done = request.steps - request.steps_left
        if request.addons is not None:
            work.loras = request.loras_now
        return work
