"""The whole-request executor: a worker runs one request at a time, from load to decode (batch size 1)."""

from dataclasses import dataclass, field

from backends.base import Work
from sim.clock import COMPLETION, Call
from sim.cluster.worker import Worker
from sim.engine import Engine
from sim.errors import SimulationError
from sim.request import Request


@dataclass(slots=True)
class WholeRequest:
    """Load the model if it is not resident, fetch the artifact, denoise steps K..N, decode.

    Production systems serve SDXL this way, since a batch of two takes nearly twice as long (SwiftDiffusion,
    2.3), and so do NIRVANA (7.1) and MoDM's artifact.
    """

    _engine: Engine = field(init=False, repr=False)

    def bind(self, engine: Engine) -> None:
        """See Executor.bind."""
        self._engine = engine

    def accept(self, worker: Worker, request: Request) -> None:
        """See Executor.accept."""
        engine = self._engine
        if request.model is None:
            raise SimulationError(f"request in row {request.row} was scheduled without a model")
        if worker.model != request.model:
            request.load_s = engine.backend.load_s(request.model)
            worker.model = request.model
            worker.switches += 1
            worker.switch_s += request.load_s
        cost = engine.backend.whole(
            Work(
                request.model,
                request.width,
                request.height,
                request.steps,
                request.skipped,
                request.row,
                request.source,
                request.refine,
            )
        )
        now_s = engine.clock._now
        request.worker = worker.id
        request.start_s = now_s
        request.denoise_s = cost.denoise_s
        request.decode_s = cost.other_s
        busy_s = request.load_s + request.fetch_s + cost.denoise_s + cost.other_s
        request.energy_j = engine.gpu.active_w * busy_s if cost.energy_j is None else cost.energy_j
        engine.busy += 1
        engine.clock.at(now_s + busy_s, COMPLETION, self._done, (worker, request))

    def _done(self, event: Call) -> None:
        worker, request = event.arg
        self._engine.busy -= 1
        self._engine.complete(request)
        self._engine.pull(worker)
