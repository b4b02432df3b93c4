"""LoRAs before the first step: read, put into the model, fused, one after another (diffusers, PEFT)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.base import FREE, AddonBackend, Asset, Cost, WorkFailed
from conf.ranges import Positive
from sim.addons.assets import activations, asked, check_addon_backend, in_use, load, on_all_gpus
from sim.addons.quantiles import Drawn
from sim.core.errors import SimulationError
from sim.core.request import Request
from sim.core.streams import LORA_LOADS
from sim.protocols import Loads, LoraLoading, Run, Worker


@dataclass(slots=True)
class SyncLoading(LoraLoading):
    """The weights then serve those that ask for just these LoRAs.

    Args:
        create: whether side branches are created, then fused, as PEFT does (SwiftDiffusion, 4.2); if not, a LoRA is
            merged into the weights in place.
        keep_resident: whether they stay until others are asked for; if not, every request brings its own.
        factor: what its seconds are multiplied with.
        spread: quantiles of a LoRA's seconds over their mean, as of `Drawn`. Null: the profile's, if any.

    Raises ConfigError for quantiles that are none.
    """

    create: bool = False
    keep_resident: bool = True
    factor: Positive = 1.0
    spread: list[float] | None = None
    _run: Run = field(init=False, repr=False)
    _drawn: dict[str, Drawn | None] = field(init=False, default_factory=dict, repr=False)
    """By model; None where every LoRA takes its mean."""

    def __post_init__(self) -> None:
        if self.spread is not None:
            Drawn("lora_loading.spread", self.spread)

    def bind(self, run: Run, interrupt: Callable[[Worker], None] | None = None) -> None:
        self._run = run
        if self.create:
            check_addon_backend(
                run, "lora_loading.create: %s does not tell the stages of a LoRA apart", "or lora_loading.create=false"
            )

    def load_addons(self, worker: Worker, request: Request, active: Sequence[Request] = ()) -> Loads:
        run, loads = self._run, Loads()
        loras = asked(run, request, "lora")
        there = patched(worker)
        if set(there) != set(loras):
            refuse_mixed(request, active, loras, there, worker)
            for asset in there:
                run.cluster.evict(worker, asset)
        keep, room = in_use([*active, request]), activations(run, request)
        for n, lora in enumerate(loras):
            absent = lora not in worker.resident
            if run.cluster.admit(worker, lora, run.backend.bytes(lora), keep, room) is None:
                raise no_room(run, request, lora)
            if absent:
                loads.append(("lora", self._cost(worker, lora, loras[:n])))
                run.record_load(lora, loads[-1][1].seconds)
        return loads

    def _cost(self, worker: Worker, lora: Asset, beside: Sequence[Asset]) -> Cost:
        backend = self._run.backend
        if not self.create:
            cost = load(self._run, worker, lora)
        else:
            assert isinstance(backend, AddonBackend)
            cost = on_all_gpus(worker, backend.read_lora(lora)).plus(
                on_all_gpus(worker, backend.create_lora(lora, beside))
            )
        drawn = self._spread(lora)
        return cost.times(self.factor if drawn is None else self.factor * drawn())

    def _spread(self, lora: Asset) -> Drawn | None:
        if lora.model not in self._drawn:
            found, backend = self.spread, self._run.backend
            if found is None and self.create and isinstance(backend, AddonBackend):
                found = list(backend.lora_spread(lora)) or None
            drawn = None if found is None else Drawn("lora_loading.spread", found, self._run.rng(LORA_LOADS))
            if drawn is not None:
                basis = "lora_loading.spread, or the profile's; each LoRA draws its own (assumed)"
                self._run.assume("seconds of a LoRA before the first step, over their mean", drawn.ends, basis)
            self._drawn[lora.model] = drawn
        return self._drawn[lora.model]

    def request_left(self, worker: Worker, request: Request, active: Sequence[Request]) -> Cost:
        if not self.keep_resident and not active:
            for asset in patched(worker):
                self._run.cluster.evict(worker, asset)
        return FREE


def patched(worker: Worker) -> list[Asset]:
    """The LoRAs in the weights of the model on ``worker``."""
    return [asset for asset in worker.resident if asset.kind == "lora"]


def refuse_mixed(
    request: Request, active: Sequence[Request], loras: Sequence[Asset], there: Sequence[Asset], worker: Worker
) -> None:
    """Raise SimulationError where ``active`` run on the LoRAs that are ``there``, and ``request`` asks for others."""
    if worker.running > 1:
        asks, has = (", ".join(asset.name for asset in which) or "of none" for which in (loras, there))
        raise SimulationError(
            f"a request for the LoRAs {asks} (row {request.row}) was given to worker {worker.id} while others aboard "
            f"run on the LoRAs {has}; a scheduler must keep LoRAs apart"
        )


def no_room(run: Run, request: Request, lora: Asset) -> WorkFailed:
    gpu = run.cluster.gpu
    return WorkFailed(
        f"the LoRA {lora.name} does not fit into the {(gpu.memory_bytes or 0) / 1e9:.1f} GB of a {gpu.name} beside "
        f"{request.model}, what it runs and its other add-ons; choose another cluster= or addons=ignore"
    )
