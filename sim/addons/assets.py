"""Add-ons as assets in GPU memory: their sizes, loads and activations."""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from mezzotint.backends.base import AddonBackend, Asset, Cost, Work, shared_asset, weights_of
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import NO_ADDONS, Request
from mezzotint.sim.protocols import Run, Worker


def addons(model: str, controlnets: Iterable[str], loras: Iterable[str]) -> list[Asset]:
    """Return the add-ons of ``model`` in the order in which they are applied."""
    nets = [shared_asset("controlnet", name, model) for name in controlnets]
    return nets + [shared_asset("lora", name, model) for name in loras]


def requested_addons(run: Run, request: Request, kind: Literal["controlnet", "lora"]) -> list[Asset]:
    """Return the add-ons of ``kind`` that ``request`` asks for, with their bytes if the trace states them."""
    wanted, model, sizes = request.addons or NO_ADDONS, request.model or "", run.workload.addon_bytes
    names = wanted.loras if kind == "lora" else wanted.controlnets
    return [shared_asset(kind, name, model, sizes.get(name)) for name in names]


def in_use(requests: Iterable[Request]) -> set[Asset]:
    """Return the add-ons that ``requests`` ask for."""
    return {asset for request in requests for asset in addons(request.model or "", *(request.addons or NO_ADDONS))}


def least_recent(
    resident: Mapping[Asset, int], bytes: float, keep: Collection[Asset] = (), count: int = 0
) -> list[Asset]:
    """Return the assets to evict so that ``bytes`` are freed and ``count`` go, or all but ``keep`` if that takes more.

    Args:
        resident: bytes of each asset, in the order in which they go: usually the longest unused first.
    """
    victims: list[Asset] = []
    for asset, size in resident.items():
        if bytes <= 0 and len(victims) >= count:
            break
        if asset not in keep:
            victims.append(asset)
            bytes -= size
    return victims


def on_gpus(count: int, cost: Cost) -> Cost:
    """Return ``cost``, with the joules of one GPU, with those of ``count`` GPUs."""
    return cost if cost.joules is None else Cost(cost.seconds, cost.joules * count)


def activation_bytes(worker: Worker, request: Request) -> int:
    """Return the bytes that ``request`` allocates on ``worker`` besides weights while it runs; 0 if not measured."""
    backend, model = worker.backend, request.model or ""
    images = 1 if request.sampling is None else request.sampling.images
    work = Work(model, request.width, request.height, request.steps, frames=request.frames, images=images)
    peak = backend.peak_bytes([work])
    weights = backend.bytes(weights_of(model))
    return 0 if peak is None or weights is None else max(peak - weights, 0)


def check_addon_backend(run: Run, key: str, unknown: str, alternative: str) -> None:
    """Raise ConfigError for ``key`` if add-ons are served on a backend that does not know the ``unknown`` costs."""
    if run.workload.addons is not None and not isinstance(run.backend, AddonBackend):
        raise ConfigError(
            f"{key}: {type(run.backend).__name__} does not tell {unknown} apart; add backend=profiled or {alternative}"
        )
