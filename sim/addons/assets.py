"""Add-ons as they lie in memory."""

from collections.abc import Iterable
from dataclasses import replace

from backends.base import AddonBackend, Asset, Cost, Work
from sim.core.culprit import checked_cost
from sim.core.errors import ConfigError
from sim.core.request import NO_ADDONS, Request
from sim.protocols import Run, Worker


def addons(model: str, controlnets: Iterable[str], loras: Iterable[str]) -> list[Asset]:
    """Add-ons of ``model``, in the order in which they are applied."""
    nets = [Asset("controlnet", name, model) for name in controlnets]
    return nets + [Asset("lora", name, model) for name in loras]


def asked(run: Run, request: Request, kind: str) -> list[Asset]:
    """Those of ``kind`` that ``request`` asks for, each with its bytes, where the trace says them."""
    wanted, model, sizes = request.addons or NO_ADDONS, request.model, run.workload.addon_bytes
    return [replace(asset, size=sizes.get(asset.name)) for asset in addons(model or "", *wanted) if asset.kind == kind]


def in_use(requests: Iterable[Request]) -> set[Asset]:
    return {asset for each in requests for asset in addons(each.model or "", *(each.addons or NO_ADDONS))}


def load(run: Run, worker: Worker, asset: Asset) -> Cost:
    return on_all_gpus(worker, checked_cost(run.backend.load(asset), run.backend, "load"))


def on_all_gpus(worker: Worker, cost: Cost) -> Cost:
    return cost if cost.joules is None else Cost(cost.seconds, cost.joules * len(worker.gpus))


def activations(run: Run, request: Request) -> int:
    """Bytes that ``request`` allocates besides weights while it runs; 0 where nobody measured them."""
    backend, model = run.backend, request.model or ""
    peak = backend.peak_bytes([Work(model, request.width, request.height, request.steps)])
    weights = backend.bytes(Asset("model", model, model))
    return 0 if peak is None or weights is None else max(peak - weights, 0)


def check_addon_backend(run: Run, problem: str, instead: str) -> None:
    """Raise ConfigError where add-ons are served on a backend that is not Taken, named for %s in ``problem``."""
    if run.workload.addons is not None and not isinstance(run.backend, AddonBackend):
        raise ConfigError(f"{problem % type(run.backend).__name__}; add backend=profiled {instead}")
