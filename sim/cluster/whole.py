"""The whole-request executor: a worker runs one request at a time, from load to decode (batch size 1)."""

from dataclasses import dataclass, field
from typing import NamedTuple

from backends.base import Cost, WorkFailed, whole
from sim.clock import COMPLETION
from sim.cluster.residence import ensure
from sim.errors import ConfigError
from sim.parts import Run, Worker
from sim.request import FAILED, Request


class Took(NamedTuple):
    """A whole request alone on one GPU, its model and its artifact being there.

    ``joules`` are measured, or None: then it draws ``watts``.
    """

    denoise_s: float
    other_s: float
    busy_s: float
    joules: float | None
    watts: float


@dataclass(slots=True)
class WholeRequest:
    """Load the model if it is not resident, fetch the artifact, denoise steps K..N, decode.

    Production systems serve SDXL this way, since a batch of two takes nearly twice as long (SwiftDiffusion,
    2.3), and so do NIRVANA (7.1) and MoDM's artifact.

    Args:
        speedup: GPUs of a gang -> how many times faster than on one its steps are.

    Raises:
        ConfigError: a speedup that is not positive, or a gang of a size that has none.
    """

    speedup: dict[int, float] = field(default_factory=dict)
    limit: int = field(init=False, default=1)
    _run: Run = field(init=False, repr=False)
    _watts: float = field(init=False, repr=False)
    _known: dict[tuple[object, ...], Took] = field(init=False, default_factory=dict, repr=False)
    """By plan: rows of one are asked for once, where the backend does not tell them apart."""

    def __post_init__(self) -> None:
        if not all(gpus > 1 and factor > 0 for gpus, factor in self.speedup.items()):
            raise ConfigError(f"executor.speedup: found {self.speedup}, expected GPUs (2 or more) -> times faster")

    def bind(self, run: Run) -> None:
        """See Executor.bind."""
        self._run = run
        self._watts = run.cluster.gpu.energy_j(1.0)

    def accept(self, worker: Worker, request: Request) -> None:
        """See Executor.accept."""
        run = self._run
        load: Cost | None = None
        if worker.model != request.model:
            load = ensure(run, worker, request)
            request.load_s = load.seconds
        key = (
            request.model, request.width, request.height, request.steps, request.skipped, request.refine, request.addons
        )  # fmt: skip
        took = self._known.get(key)
        if took is None:
            try:
                took = self._ask(request)
            except WorkFailed as failure:
                at_s = run.clock._now + request.load_s
                run.clock.at(at_s, COMPLETION, self._failed, (worker, request, load, str(failure)))
                return
            if not run.backend.by_row:
                self._known[key] = took
        denoise_s, other_s, busy_s, joules, watts = took
        if len(worker.gpus) > 1:  # what one GPU was measured to draw says nothing of a gang
            denoise_s /= self._times_faster(len(worker.gpus))
            joules, watts = None, watts * len(worker.gpus)
            busy_s = denoise_s + other_s
        if request.fetch_s or load is not None:
            busy_s = request.load_s + request.fetch_s + denoise_s + other_s
        now_s = run.clock._now
        request.worker = worker.id
        request.start_s = now_s
        request.denoise_s = denoise_s
        request.decode_s = other_s
        request.energy_j = watts * (busy_s - request.load_s) if joules is None else joules
        run.clock.at(now_s + busy_s, COMPLETION, self._done, (worker, request, load))

    def _done(self, ran: tuple[Worker, Request, Cost | None]) -> None:
        worker, request, load = ran
        run = self._run
        from_s, joules = request.start_s, request.energy_j
        if load is not None:
            until_s = from_s + load.seconds
            request.energy_j += run.cluster.spend(worker, from_s, until_s, "load", load.joules)
            from_s = until_s
        run.cluster.spend(worker, from_s, run.clock._now, "serve", joules, 1, request.row)
        run.end(request)
        run.cluster.release(worker)

    def _failed(self, ran: tuple[Worker, Request, Cost | None, str]) -> None:
        worker, request, load, reason = ran
        now_s = self._run.clock._now
        if load is not None:
            self._run.cluster.spend(worker, now_s - load.seconds, now_s, "load", load.joules)
        self._run.end(request, FAILED, reason)
        self._run.cluster.release(worker)

    def _ask(self, request: Request) -> "Took":
        """What ``request`` takes, and what a live backend made of it."""
        work = self._run.work(request)
        cost = whole(self._run.backend, work)
        self._run.made(request, work)
        busy_s = cost.denoise_s + cost.other_s
        return Took(cost.denoise_s, cost.other_s, busy_s, cost.energy_j, self._watts)

    def _times_faster(self, gpus: int) -> float:
        if gpus not in self.speedup:
            raise ConfigError(
                f"executor.speedup: a request runs on {gpus} GPUs and nothing says how much faster that is; give a "
                f"figure, executor.speedup={{{gpus}: ...}}"
            )
        return self.speedup[gpus]
