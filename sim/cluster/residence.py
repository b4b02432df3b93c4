"""What an executor does first: see that the model and the add-ons of a request are on its worker."""

from collections.abc import Iterable

from backends.base import Asset, Cost
from sim.errors import SimulationError
from sim.parts import Run, Worker
from sim.request import Addons, Request

Loads = list[tuple[str, Cost]]
"""What is loaded, in order: its kind as the ledger has it, and what it costs on all GPUs of the worker."""

NONE = Addons()


def addons(model: str, controlnets: Iterable[str], loras: Iterable[str]) -> list[Asset]:
    """Add-ons of ``model`` as they lie in memory, in the order in which they are applied."""
    nets = [Asset("controlnet", name, model) for name in controlnets]
    return nets + [Asset("lora", name, model) for name in loras]


def ensure(run: Run, worker: Worker, request: Request, active: Iterable[Request] = ()) -> Loads:
    """Put what ``request`` runs with on ``worker``, as far as it is not there; to be spent by the caller (``spend``).

    As diffusers does it (SwiftDiffusion, 2.3): one after another before the first step. A ControlNet stays until the
    memory is needed, the one that was not used for the longest goes first, and none that one of ``active`` runs
    with. LoRAs are patched into the weights, which
    then serve those that ask for just these.

    Raises SimulationError where nothing is planned, others are aboard that what is there serves, or it does not fit.
    """
    model = request.model
    if model is None:
        raise SimulationError(f"request in row {request.row} is to be run and its plan names no model")
    loads: Loads = []
    if worker.model != model:
        _alone(worker, request, f"a request for {model}", worker.model, "models")
        run.cluster.install(worker, model)
        loads.append(("load", _load(run, worker, Asset("model", model, model))))
    if run.workload.addons is not None:
        _add(run, worker, request, model, active, loads)
    return loads


def seconds(loads: Loads) -> float:
    """How long they take, one after another."""
    return sum((cost.seconds for _, cost in loads), 0.0)


def spend(run: Run, worker: Worker, loads: Loads, from_s: float, until_s: float) -> tuple[float, float]:
    """Tell the cluster of ``loads``, which began at ``from_s``; none ends after ``until_s``, whatever the rounding.

    Returns when they were done, and the joules that they drew.
    """
    joules = 0.0
    for kind, cost in loads:
        done_s = min(from_s + cost.seconds, until_s)
        joules += run.cluster.spend(worker, from_s, done_s, kind, cost.joules)
        from_s = done_s
    return from_s, joules


def joules_of(run: Run, loads: Loads) -> float:
    """What ``loads`` draw; NaN where the power is not known."""
    gpu = run.cluster.gpu
    return sum((gpu.energy_j(cost.seconds) if cost.joules is None else cost.joules for _, cost in loads), 0.0)


def cut(run: Run, worker: Worker, from_s: float, until_s: float, joules: float | None) -> None:
    """Tell the cluster of work that was to last from ``from_s`` until ``until_s`` and draw ``joules``, and that is lost
    now: as much of it as there was."""
    now_s = run.clock._now
    share = (now_s - from_s) / (until_s - from_s) if until_s > from_s else 0.0
    run.cluster.spend(worker, from_s, now_s, "lost", None if joules is None else joules * share)


def _add(run: Run, worker: Worker, request: Request, model: str, active: Iterable[Request], loads: Loads) -> None:
    wanted = request.addons or NONE
    patched = [asset for asset in worker.resident if asset.kind == "lora"]
    if {asset.name for asset in patched} != set(wanted.loras):
        there = "the LoRAs " + (", ".join(asset.name for asset in patched) or "of none")
        _alone(worker, request, f"a request for the LoRAs {', '.join(wanted.loras) or 'of none'}", there, "LoRAs")
        for asset in patched:
            run.cluster.evict(worker, asset)
    needed = addons(model, *wanted)
    keep = {asset for other in active for asset in addons(model, *(other.addons or NONE))}.union(needed)
    for asset in needed:
        absent = asset not in worker.resident
        if run.cluster.admit(worker, asset, run.backend.bytes(asset), keep) is not None and absent:
            loads.append((asset.kind, _load(run, worker, asset)))
    for asset in needed:
        if asset not in worker.resident:
            raise SimulationError(
                f"the {asset.kind} {asset.name} of the request in row {request.row} does not fit into the memory of a "
                f"{run.cluster.gpu.name} beside {model} and its other add-ons; choose another cluster= or addons=ignore"
            )


def _load(run: Run, worker: Worker, asset: Asset) -> Cost:
    """What ``asset`` costs on every GPU of ``worker`` at once."""
    cost = run.backend.load(asset)
    return cost if cost.joules is None else Cost(cost.seconds, cost.joules * len(worker.gpus))


def _alone(worker: Worker, request: Request, asks: str, there: str, what: str) -> None:
    if worker.aboard > 1:
        raise SimulationError(
            f"{asks} (row {request.row}) was given to worker {worker.id} while others aboard run on {there}; a "
            f"scheduler must keep {what} apart"
        )
