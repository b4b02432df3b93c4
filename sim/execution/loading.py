"""Loading: put the model and the add-ons of a request on its worker before it runs."""

from collections.abc import Callable, Sequence
from typing import Any

from mezzotint.backends.base import Cost, Work
from mezzotint.sim.addons.assets import activation_bytes, addons
from mezzotint.sim.addons.inline import InlineControlNets
from mezzotint.sim.addons.sync_loading import SyncLoading
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Cluster, Loads, Run, Worker

LoadAddons = Callable[[Worker, Request, Sequence[Request]], Loads | None]


def ensure(
    run: Run,
    worker: Worker,
    request: Request,
    loads: Loads,
    active: Sequence[Request] = (),
    load_addons: LoadAddons | None = None,
) -> None:
    """Load the model and add-ons of ``request`` that ``worker`` lacks; add to ``loads``, for the caller to record.

    Last comes the compilation of its shape, if it is the first of that shape since the server started.

    Unless ``load_addons`` loads them, add-ons come one after another before the first step. ControlNets stay until the
    memory is needed. LoRAs are patched into the weights, which then serve only requests with the same LoRAs
    (SwiftDiffusion, 2.3).

    Raises SimulationError without a plan, ConfigError while others run on another model, WorkFailed if the memory is
    too small for the add-ons.
    """
    model = request.model
    if model is None:
        raise SimulationError(f"the plan of the request in row {request.row} names no model; plan it with Run.assign")
    if worker.model != model:
        # Those that only joined its queue, of this model too, are not active yet.
        if active:
            raise ConfigError(
                f"scheduler: the request in row {request.row}, for {model}, was given to worker {worker.id} while "
                f"others run on {worker.model} there, and a scheduler must not mix models in a batch; choose one that "
                "follows roles or models, as scheduler=per-worker or resident-first, or executor=sequential"
            )
        loads.append(run.cluster.fetch(worker, model, request.row))
        # Before add-ons: installing a model clears the memory of what belonged to the one before.
        run.cluster.install(worker, model, activation_bytes(worker, request) if run.cluster.keeps_models else 0)
    if run.workload.addons is not None:
        addon_loads = None if load_addons is None else load_addons(worker, request, active)
        if addon_loads is None:
            parts = InlineControlNets(offload=False), SyncLoading()
            for part in parts:
                part.bind(run)
            addon_loads = [load for part in parts for load in part.load_addons(worker, request, active)]
        loads += addon_loads
    if run.cluster.compiles and (compile_s := run.cluster.compile_s(worker, request)):
        # Last, as the first step compiles, with all add-ons in place.
        loads.append(("compile", Cost(compile_s)))


def check_memory(cluster: Cluster, worker: Worker, works: Sequence[Work], requests: Sequence[Request] = ()) -> None:
    """Check the peak memory of ``works`` together, less what ``requests`` swap (Cluster.check_memory)."""
    peak_bytes = worker.backend.peak_bytes(works)
    if peak_bytes is not None:
        runs = [addons(work.model, work.controlnets, work.loras) for work in works]
        cluster.check_memory(worker, peak_bytes - sum([request.swapped_bytes for request in requests]), runs)


def seconds(loads: Loads) -> float:
    return sum((cost.seconds for _, cost in loads), 0.0)


def cancel_due(run: Run, worker: Worker) -> tuple[float, Any] | None:
    """Cancel the clock call due on ``worker``; return its time and argument, or None if there is none."""
    entry, worker.due = worker.due, None
    return (entry[0], entry[4]) if entry is not None and run.clock.cancel(entry) else None


def record_interrupted(
    run: Run, worker: Worker, from_s: float, until_s: float, loads: Loads, joules: float | None
) -> None:
    """Record the part up to now of work that is lost; in full it would last until ``until_s``.

    It would take ``joules`` beside those of ``loads``; None where they are not known.
    """
    if joules is not None:
        loads_j = (worker.gpu.energy_j(cost.seconds) if cost.joules is None else cost.joules for _, cost in loads)
        share = (run.clock._now - from_s) / (until_s - from_s) if until_s > from_s else 0.0
        joules = (joules + sum(loads_j, 0.0)) * share
    run.cluster.record_busy(worker, from_s, run.clock._now, "lost", joules)
