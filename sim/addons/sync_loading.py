"""Synchronous LoRA loading: read and merge each LoRA before the first step, one after another (diffusers, PEFT)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from mezzotint.backends.base import FREE, AddonBackend, Asset, Cost, WorkFailed
from mezzotint.settings.ranges import Positive
from mezzotint.sim.addons.assets import (
    activation_bytes,
    check_addon_backend,
    in_use,
    requested_addons,
)
from mezzotint.sim.addons.quantiles import QuantileSampler
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.streams import LORA_LOADS
from mezzotint.sim.protocols import Loads, LoraLoading, Run, Worker


@dataclass(slots=True)
class SyncLoading(LoraLoading):
    """Load the LoRAs of a request before its first step; the weights then serve requests for the same set only.

    Args:
        create: create side branches, then fuse them, as PEFT does (SwiftDiffusion, 4.2); else merge a LoRA into the
            weights in place.
        keep_resident: keep them until others are asked for; else every request loads its own.
        factor: on the seconds of a LoRA.
        spread: quantiles of a LoRA's seconds over their mean, as of `QuantileSampler`. Null: the profile's, if any.

    Raises ConfigError for invalid quantiles.
    """

    create: bool = False
    keep_resident: bool = True
    factor: Positive = 1.0
    spread: list[float] | None = None
    _run: Run = field(init=False, repr=False)
    _draws: dict[tuple[str, str], QuantileSampler | None] = field(init=False, default_factory=dict, repr=False)
    """Spread of a LoRA's seconds, by kind of GPU and model; None if every LoRA takes its mean."""
    _drawn: tuple[tuple[int, float], dict[str, float]] = field(init=False, default=((-1, 0.0), {}), repr=False)
    """Row and instant of the last load, and what was drawn for its LoRAs by name: of GPUs side by side, once."""

    def __post_init__(self) -> None:
        if self.spread is not None:
            QuantileSampler("lora_loading.spread", self.spread)

    def bind(self, run: Run, interrupt: Callable[[Worker], None] | None = None) -> None:
        self._run = run
        if self.create:
            check_addon_backend(run, "lora_loading.create", "the stages of a LoRA", "lora_loading.create=false")

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request] = ()) -> Loads:
        run, loads = self._run, Loads()
        loras = requested_addons(run, request, "lora")
        merged = merged_loras(worker)
        if set(merged) != set(loras):
            refuse_mixed(request, active, loras, merged, worker)
            for asset in merged:
                run.cluster.evict(worker, asset)
        for n, lora in enumerate(loras):
            absent = lora not in worker.resident
            admit_lora(run, worker, lora, worker.backend.bytes(lora), request, active)
            if absent:
                loads.append(("lora", self._cost(worker, request, lora, loras[:n])))
                run.record_load(lora, loads[-1][1].seconds)
        return loads

    def _cost(self, worker: Worker, request: Request, lora: Asset, others: Sequence[Asset]) -> Cost:
        if not self.create:
            cost = worker.backend.load(lora)
        else:
            backend = cast(AddonBackend, worker.backend)
            cost = backend.read_lora(lora).plus(backend.create_lora(lora, others))
        draw = self._spread(worker, lora)
        if draw is None:
            return cost.times(self.factor)
        at = request.row, self._run.clock._now
        if self._drawn[0] != at:
            self._drawn = at, {}
        drawn = self._drawn[1]
        if lora.name not in drawn:
            drawn[lora.name] = draw()
        return cost.times(self.factor * drawn[lora.name])

    def _spread(self, worker: Worker, lora: Asset) -> QuantileSampler | None:
        key = worker.gpu.name, lora.model
        if key not in self._draws:
            spread, backend = self.spread, worker.backend
            if spread is None and self.create and isinstance(backend, AddonBackend):
                spread = list(backend.lora_spread(lora)) or None
            draw = None if spread is None else QuantileSampler("lora_loading.spread", spread, self._run.rng(LORA_LOADS))
            if draw is not None:
                basis = "lora_loading.spread, or the profile's; each LoRA draws its own (assumed)"
                self._run.assume("seconds of a LoRA before the first step, over their mean", draw.ends, basis)
            self._draws[key] = draw
        return self._draws[key]

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> Cost:
        if not self.keep_resident and not active:
            for asset in merged_loras(worker):
                self._run.cluster.evict(worker, asset)
        return FREE


def merged_loras(worker: Worker) -> list[Asset]:
    """Return the LoRAs in the weights of the model on ``worker``."""
    return [asset for asset in worker.resident if asset.kind == "lora"]


def refuse_mixed(
    request: Request, active: Sequence[Request], loras: Sequence[Asset], merged: Sequence[Asset], worker: Worker
) -> None:
    """Raise ConfigError if ``active`` run with the ``merged`` LoRAs and ``request`` asks for other ``loras``."""
    if active:
        asked, in_weights = (", ".join(asset.name for asset in assets) or "(none)" for assets in (loras, merged))
        raise ConfigError(
            f"executor.max_batch: a request for the LoRAs {asked} (row {request.row}) joined a batch with the LoRAs "
            f"{in_weights} on worker {worker.id}, and weights hold one set of LoRAs; set executor.max_batch=1, or "
            "choose a scheduler= that keeps LoRAs apart"
        )


def admit_lora(
    run: Run, worker: Worker, lora: Asset, bytes: int | None, request: Request, active: Sequence[Request]
) -> None:
    """Make ``lora`` resident for ``request``, which joins ``active``. Raises WorkFailed if it does not fit."""
    gpu, keep = worker.gpu, in_use([*active, request])
    if run.cluster.admit(worker, lora, bytes, keep, activation_bytes(worker, request)) is None:
        raise WorkFailed(
            f"the LoRA {lora.name} does not fit into the {(gpu.memory_bytes or 0) / 1e9:.1f} GB of a {gpu.name} beside "
            f"{request.model}, its activations and its other add-ons; choose another cluster= or addons=ignore"
        )
