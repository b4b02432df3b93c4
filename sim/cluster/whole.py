"""The whole-request executor: a worker runs one request at a time, from load to decode (batch size 1)."""

from dataclasses import dataclass, field

from backends.base import Asset, WorkFailed, whole
from sim.clock import COMPLETION
from sim.cluster.worker import Worker
from sim.engine import Engine
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
        work = engine.work(request)
        if worker.model != work.model:
            request.load_s = engine.backend.load(Asset("model", work.model, work.model)).seconds
            worker.model = work.model
            request.switched = True
        engine.busy += 1
        try:
            cost = whole(engine.backend, work)
        except WorkFailed as failure:
            engine.clock.at(engine.clock._now, COMPLETION, self._failed, (worker, request, str(failure)))
            return
        now_s = engine.clock._now
        request.worker = worker.id
        request.start_s = now_s
        request.denoise_s = cost.denoise_s
        request.decode_s = cost.other_s
        busy_s = request.load_s + request.fetch_s + cost.denoise_s + cost.other_s
        request.energy_j = engine.gpu.energy_j(busy_s) if cost.energy_j is None else cost.energy_j
        request.made = work.made
        if work.quality is not None:
            request.quality = work.quality
        engine.clock.at(now_s + busy_s, COMPLETION, self._done, (worker, request))

    def _done(self, ran: tuple[Worker, Request]) -> None:
        worker, request = ran
        self._engine.busy -= 1
        self._engine.complete(request)
        self._engine.pull(worker)

    def _failed(self, ran: tuple[Worker, Request, str]) -> None:
        worker, request, reason = ran
        self._engine.busy -= 1
        self._engine.fail(request, reason)
        self._engine.pull(worker)
