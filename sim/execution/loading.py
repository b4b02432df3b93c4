"""What an executor does first: see that the model and the add-ons of a request are on its worker."""

from collections.abc import Callable, Sequence
from typing import Any

from backends.base import Asset, WorkFailed
from sim.addons.assets import load
from sim.addons.inline import InlineControlNets
from sim.addons.sync_loading import SyncLoading
from sim.core.errors import SimulationError
from sim.core.request import Request
from sim.protocols import Loads, Run, Worker


class DoesNotFit(WorkFailed):
    """The add-ons of a request do not fit; ``loads`` came before that was found."""

    def __init__(self, reason: str, loads: Loads) -> None:
        super().__init__(reason)
        self.loads = loads


LoadAddons = Callable[[Worker, Request, Sequence[Request]], Loads | None]


def ensure(
    run: Run, worker: Worker, request: Request, active: Sequence[Request] = (), load_addons: LoadAddons | None = None
) -> Loads:
    """Put what ``request`` runs with on ``worker``, as far as it is not there; to be spent by the caller (``record_busy``).

    Unless ``load_addons`` does that, all of it one after another before the first step: ControlNets stay until the memory is
    needed, LoRAs are patched into the weights, which then serve those that ask for just these (SwiftDiffusion, 2.3).

    Raises SimulationError without a plan or where others run on what is there, DoesNotFit where add-ons do not fit.
    """
    model = request.model
    if model is None:
        raise SimulationError(f"request in row {request.row} is to be run and its plan names no model")
    loads: Loads = []
    if worker.model != model:
        if worker.running > 1:
            raise SimulationError(
                f"a request for {model} (row {request.row}) was given to worker {worker.id} while others aboard run on "
                f"{worker.model}; a scheduler must keep models apart"
            )
        run.cluster.install(worker, model)
        loads.append(("load", load(run, worker, Asset("model", model, model))))
    if run.workload.addons is not None:
        try:
            brought = None if load_addons is None else load_addons(worker, request, active)
            loads += _in_series(run)(worker, request, active) if brought is None else brought
        except WorkFailed as failure:
            raise DoesNotFit(str(failure), loads) from None
    return loads


def _in_series(run: Run) -> Callable[[Worker, Request, Sequence[Request]], Loads]:
    controlnets, loras = InlineControlNets(offload=False), SyncLoading()
    controlnets.bind(run)
    loras.bind(run)
    return lambda *to: controlnets.load_addons(*to) + loras.load_addons(*to)


def seconds(loads: Loads) -> float:
    return sum((cost.seconds for _, cost in loads), 0.0)


def record_loads(run: Run, worker: Worker, loads: Loads, from_s: float, until_s: float) -> tuple[float, float]:
    """Spend ``loads``, which began at ``from_s``, until ``until_s`` at most; return when they were done, and joules."""
    joules = 0.0
    for kind, cost in loads:
        done_s = min(from_s + cost.seconds, until_s)
        joules += run.cluster.record_busy(worker, from_s, done_s, kind, cost.joules)
        from_s = done_s
    return from_s, joules


def joules_of(run: Run, loads: Loads) -> float:
    """Return the joules of ``loads``; NaN where the power is not known."""
    gpu = run.cluster.gpu
    return sum((gpu.energy_j(cost.seconds) if cost.joules is None else cost.joules for _, cost in loads), 0.0)


def cancel_due(run: Run, worker: Worker) -> tuple[float, Any] | None:
    """Take back the call that is due on ``worker``: its time and its argument; None where there is none."""
    entry, worker.due = worker.due, None
    return (entry[0], entry[4]) if entry is not None and run.clock.cancel(entry) else None


def record_interrupted(run: Run, worker: Worker, from_s: float, until_s: float, joules: float | None) -> None:
    """Spend what there was of work that is lost now, and was to last until ``until_s`` and draw ``joules``."""
    now_s = run.clock._now
    share = (now_s - from_s) / (until_s - from_s) if until_s > from_s else 0.0
    run.cluster.record_busy(worker, from_s, now_s, "request_lost", None if joules is None else joules * share)
