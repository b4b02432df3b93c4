"""What lies in the memory of GPUs: models and add-ons, and the room that is left for what runs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from backends.base import Asset, WorkFailed
from sim.core.culprit import caller, part_name
from sim.core.errors import SimulationError
from sim.core.gpu import Gpu
from sim.core.worker import Worker


@dataclass(frozen=True, slots=True)
class Memory:
    """What lies on a worker, held against what its GPUs, all of kind ``gpu``, have; errors name one of ``parts``."""

    gpu: Gpu
    parts: Mapping[str, object]

    def admit(
        self, worker: Worker, asset: Asset, bytes: int | None, keep: Collection[Asset] = (), room: int = 0
    ) -> list[Asset] | None:
        if (bytes or 0) < 0 or room < 0:
            raise SimulationError(f"{caller()} puts {asset.name} of {bytes} bytes on {worker} beside {room}")
        resident, most = worker.resident, self.gpu.memory_bytes
        present = asset in resident
        if present:
            resident[asset] = resident.pop(asset)  # used last
        needed, own = 0 if present else bytes or 0, own_model(worker)
        gone: list[Asset] = []
        if most is not None:
            over = sum(resident.values()) + needed + room - most
            gone = _oldest(resident, over, {own, asset, *keep})
            if over > sum(resident[other] for other in gone):
                return None
        for other in gone:
            del resident[other]
        if not present:
            resident[asset] = needed
        return gone

    def evict(self, worker: Worker, asset: Asset) -> None:
        if asset not in worker.resident:
            raise SimulationError(f"{caller()} evicts the {asset.kind} {asset.name} from {worker}, where it is not")
        if asset == own_model(worker):
            raise SimulationError(f"{caller()} evicts {asset.name} from {worker}, which serves with it; order a role")
        del worker.resident[asset]

    def check(self, worker: Worker, peak_bytes: int | None, runs: Sequence[Collection[Asset]] | None = None) -> None:
        """The peak has the add-ons in it that all of ``runs`` have in common; those of some of them lie beside it.

        Raises SimulationError where it is more than the GPU has, WorkFailed where that is for the add-ons of one.
        """
        most = self.gpu.memory_bytes
        if most is None or peak_bytes is None:
            return
        if not peak_bytes >= 0:
            raise SimulationError(f"{caller()} says that what runs on {worker} takes {peak_bytes} bytes")
        own, resident = own_model(worker), worker.resident
        counted = {own}.union(set(runs[0]).intersection(*runs) if runs else ())
        beside = sum(size for asset, size in resident.items() if asset not in counted)
        if runs is not None and peak_bytes + beside > most:
            for other in _oldest(resident, peak_bytes + beside - most, {own}.union(*runs)):
                beside -= resident.pop(other)
        if peak_bytes + beside > most:
            takes = f"takes {(peak_bytes + beside) / 1e9:.1f} GB of the {self._memory}"
            if runs is not None and len(runs) == 1 and runs[0]:
                names = ", ".join(asset.name for asset in runs[0])
                raise WorkFailed(f"with {names} it {takes}; choose another cluster= or addons=ignore")
            who = part_name(self.parts, "executor")
            raise SimulationError(
                f"{who} runs {worker.running} requests on {worker}, which {takes}; lower the batch limit"
            )

    def install(self, worker: Worker, size: int) -> None:
        """The model of ``worker`` alone lies there. Raises SimulationError where it is larger than the GPU's memory."""
        worker.resident.clear()
        most = self.gpu.memory_bytes
        if most is not None and size > most:
            raise SimulationError(
                f"{worker.model} takes {size / 1e9:.1f} GB of the {self._memory}; choose another models= or cluster="
            )
        worker.resident[own_model(worker)] = size

    @property
    def _memory(self) -> str:
        return f"{(self.gpu.memory_bytes or 0) / 1e9:.1f} GB that a {self.gpu.name} has (cluster.gpu.memory_bytes)"


def own_model(worker: Worker) -> Asset:
    return Asset("model", worker.model, worker.model)


def _oldest(resident: Mapping[Asset, int], bytes: int, keep: Collection[Asset]) -> list[Asset]:
    """Those of ``resident`` that free ``bytes``, or all that may go: longest unused first, and none of ``keep``."""
    going: list[Asset] = []
    for asset, size in resident.items():
        if bytes <= 0:
            break
        if asset not in keep:
            going.append(asset)
            bytes -= size
    return going


def common(residents: Sequence[Mapping[Asset, int]]) -> dict[Asset, int]:
    """What lies on each of several GPUs, in the order of the first."""
    return {asset: size for asset, size in residents[0].items() if all(asset in other for other in residents)}
