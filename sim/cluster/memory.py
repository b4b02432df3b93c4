"""GPU memory: resident models and add-ons, and the bytes left for running requests."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from mezzotint.backends.base import Asset, WorkFailed, weights_of
from mezzotint.sim.addons.assets import least_recent
from mezzotint.sim.core.culprit import caller, part_name
from mezzotint.sim.core.errors import SimulationError
from mezzotint.sim.core.gpu import Gpu
from mezzotint.sim.core.worker import Worker


@dataclass(slots=True)
class Memory:
    """Checks the assets on workers against the memory of their GPUs.

    Args:
        parts: errors name one of them.
        changed: is told of each asset that comes to a worker or leaves it: the worker, the asset, and True if it comes.
    """

    parts: Mapping[str, object]
    changed: Callable[[Worker, Asset, bool], None]

    def admit(
        self, worker: Worker, asset: Asset, bytes: int | None, keep: Collection[Asset] = (), free_bytes: int = 0
    ) -> list[Asset] | None:
        if not (bytes or 0) >= 0 or not free_bytes >= 0:  # so that NaN is refused
            raise SimulationError(
                f"{caller()} puts {asset.name} of {bytes} bytes on {worker}, with {free_bytes} bytes to stay free; "
                "expected 0 or more"
            )
        resident, capacity = worker.resident, worker.gpu.memory_bytes
        present = asset in resident
        if present:
            resident[asset] = resident.pop(asset)  # most recently used last
        needed, model = 0 if present else bytes or 0, weights_of(worker.model)
        # Decided before anything is evicted: an asset that does not fit leaves the memory as it was.
        evicted = make_room(resident, needed + free_bytes, capacity, {model, asset, *keep})
        if evicted is None:
            return None
        for other in evicted:
            self._drop(worker, other)
        if not present:
            resident[asset] = needed
            self.changed(worker, asset, True)
        return evicted

    def evict(self, worker: Worker, asset: Asset) -> None:
        if asset not in worker.resident:
            raise SimulationError(f"{caller()} evicts the {asset.kind} {asset.name} from {worker}, where it is not")
        if asset == weights_of(worker.model):
            raise SimulationError(
                f"{caller()} evicts {asset.name} from {worker}, which serves with it; change its role"
            )
        self._drop(worker, asset)

    def check(self, worker: Worker, peak_bytes: int | None, runs: Sequence[Collection[Asset]] | None = None) -> None:
        """Check ``peak_bytes`` of the running requests, plus the assets it does not include, against the memory.

        The peak includes the model, and the add-ons that all of ``runs`` share. Other add-ons are counted on top; those
        that no run needs are evicted as far as necessary, the least recently used first.

        Raises SimulationError if the batch needs more than the GPU has, WorkFailed if one request with add-ons does.
        """
        capacity = worker.gpu.memory_bytes
        if capacity is None or peak_bytes is None:
            return
        if not peak_bytes >= 0:
            raise SimulationError(f"{caller()} gives a peak of {peak_bytes} bytes on {worker}; expected 0 or more")
        model, resident = weights_of(worker.model), worker.resident
        # An add-on of some runs only is not in the peak, which was measured with those of all.
        counted = {model}.union(set(runs[0]).intersection(*runs) if runs else ())
        uncounted = sum(size for asset, size in resident.items() if asset not in counted)
        if runs is not None and peak_bytes + uncounted > capacity:
            for other in least_recent(resident, peak_bytes + uncounted - capacity, {model}.union(*runs)):
                uncounted -= resident[other]
                self._drop(worker, other)
        if peak_bytes + uncounted > capacity:
            takes = f"takes {(peak_bytes + uncounted) / 1e9:.1f} GB of the {_memory(worker.gpu)}"
            if runs is not None and len(runs) == 1 and runs[0]:
                names = ", ".join(asset.name for asset in runs[0])
                raise WorkFailed(f"with {names} it {takes}; choose another cluster= or addons=ignore")
            executor = part_name(self.parts, "executor")
            raise SimulationError(
                f"{executor} runs {worker.running} requests on {worker}, which {takes}; lower the batch limit"
            )

    def install(self, worker: Worker, size: int, max_models: int | None = 1, free_bytes: int = 0) -> None:
        """Make the model of ``worker`` resident there, and evict add-ons and, as necessary, other models.

        Args:
            size: bytes of the model.
            max_models: most models to stay, this one included; None is as many as fit.
            free_bytes: bytes to stay free of weights, as far as other models can make room.

        Raises SimulationError if the model is larger than the GPU's memory.
        """
        resident, model = worker.resident, weights_of(worker.model)
        capacity = inf if worker.gpu.memory_bytes is None else worker.gpu.memory_bytes
        if max_models == 1:
            self.clear(worker)
        else:
            # Add-ons are those of a model, and useless to the next one.
            for asset in [asset for asset in resident if asset.kind != "model"]:
                self._drop(worker, asset)
            others = {asset: held for asset, held in resident.items() if asset != model}
            surplus = 0 if max_models is None else len(others) - max_models + 1
            for victim in least_recent(others, sum(others.values()) + size + free_bytes - capacity, count=surplus):
                self._drop(worker, victim)
        if size > capacity:
            raise SimulationError(
                f"{worker.model} takes {size / 1e9:.1f} GB of the {_memory(worker.gpu)}; choose another models= or "
                "cluster="
            )
        if model in resident:
            del resident[model]  # most recently used last
        else:
            self.changed(worker, model, True)
        resident[model] = size

    def clear(self, worker: Worker) -> None:
        """Evict everything from ``worker``."""
        for asset in worker.resident:
            self.changed(worker, asset, False)
        worker.resident.clear()

    def _drop(self, worker: Worker, asset: Asset) -> None:
        del worker.resident[asset]
        self.changed(worker, asset, False)


def make_room(
    resident: Mapping[Asset, int], needed: int, capacity: int | None, keep: Collection[Asset] = ()
) -> list[Asset] | None:
    """Return the assets to evict, least recently used first and none of ``keep``, so that ``needed`` bytes are free.

    Args:
        resident: bytes of each asset, longest unused first.
        capacity: bytes in all; None is without a bound.

    Returns:
        None if that cannot be.
    """
    if capacity is None:
        return []
    over = sum(resident.values()) + needed - capacity
    victims = least_recent(resident, over, keep)
    return None if over > sum(resident[victim] for victim in victims) else victims


def _memory(gpu: Gpu) -> str:
    return f"{(gpu.memory_bytes or 0) / 1e9:.1f} GB that a {gpu.name} has (cluster.gpu.memory_bytes)"
