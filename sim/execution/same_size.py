"""Stage costs of continuous batching when all requests of a batch share a size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mezzotint.backends.base import FREE, Backend, Cost, Work
from mezzotint.sim.addons.assets import on_all_gpus
from mezzotint.sim.core.request import Request
from mezzotint.sim.execution.loading import check_memory
from mezzotint.sim.execution.speedup import Speedup, step_on_group
from mezzotint.sim.protocols import Run, Steps, Worker


@dataclass(slots=True)
class SameSizeSteps(Steps):
    """The backend's own costs: text encoding when a request joins, one step for the whole batch, decoding at the end.

    Args:
        speedup: GPUs of a group -> speedup of its steps over one GPU, the same for any batch; overrides the backend's
            profile.

    Raises ConfigError for a group size with neither a speedup here nor one in the profile.
    """

    speedup: Speedup = field(default_factory=dict, kw_only=True)
    _run: Run = field(init=False, repr=False)
    _checks_memory: bool = field(init=False, default=False, repr=False)
    _works: dict[int, Work] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, interrupt: Callable[[Worker], None]) -> None:
        self._run = run
        kinds = run.cluster.kinds.items()
        self._checks_memory = any(gpu.memory_bytes is not None and backend.measures_memory for gpu, backend in kinds)

    def prepare(self, worker: Worker, request: Request, now_s: float) -> Cost:
        work = self._works[request.row] = self._run.work(request)
        return on_all_gpus(worker, worker.backend.begin([work]))

    def step(self, worker: Worker, active: Sequence[Request], now_s: float) -> Cost:
        cost = self.on_one_gpu(worker.backend, self._works_of(worker, active))
        # Asked here too, since a batch calls this for each of its steps that is not known yet.
        return cost if len(worker.gpus) == 1 else step_on_group(worker, active, cost, self.speedup)

    def on_one_gpu(self, backend: Backend, works: Sequence[Work]) -> Cost:
        """Return the cost of one step of ``works`` on one GPU with the costs of ``backend``."""
        return backend.steps(works)

    def _works_of(self, worker: Worker, active: Sequence[Request]) -> list[Work]:
        """Return the works of ``active``. Raises SimulationError if they do not fit into the memory of ``worker``."""
        works = [self._current_work(request) for request in active]
        if self._checks_memory:
            check_memory(self._run.cluster, worker, works, active)
        return works

    def price(self, works: Sequence[Work]) -> Cost:
        backend = self._run.backend
        if backend.live:
            backend.begin(works)
        worker = self._run.cluster.workers[0]  # groups that are formed at the start are of one size
        return step_on_group(worker, works, self.on_one_gpu(backend, works), self.speedup)

    def finish(self, worker: Worker, request: Request, now_s: float) -> tuple[Cost, Cost]:
        work = self._current_work(request)
        del self._works[request.row]
        cost = worker.backend.end([work])
        self._run.keep_artifact(request, work)
        return on_all_gpus(worker, cost), FREE

    def _current_work(self, request: Request) -> Work:
        """Return the work of ``request`` with its steps done so far and the LoRAs loaded so far."""
        work = self._works[request.row]
        work.done = request.steps - request.steps_left
        if request.addons is not None:
            work.loras = () if request.loras_pending else request.addons.loras
        return work
