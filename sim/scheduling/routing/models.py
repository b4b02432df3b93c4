"""Routing by model: prefer workers that hold a request's model, if waiting for them pays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import Worker
from mezzotint.sim.protocols.cluster import IN_HOST
from mezzotint.sim.scheduling.resident_first import holds_model, model_lists
from mezzotint.sim.scheduling.routing.holders import Among, Key
from mezzotint.sim.scheduling.routing.routers import WorkAndLoads


@dataclass(slots=True)
class ByModel(WorkAndLoads):
    """Send a request to the worker with the least work left, counting the load of its model as work if it is missing.

    A worker is expected to hold the models of its last requests, outstanding ones included, as many as its memory
    takes.
    """

    _slots: dict[str, int] = field(init=False, default_factory=dict, repr=False)
    """Models that a GPU of each kind keeps."""

    kinds = ("model", IN_HOST)

    def assets(self, request: Request) -> list[tuple[str, str]]:
        return [("model", request.model or "")]

    def lists(self, request: Request, among: Among) -> Iterator[tuple[list[Key], float]]:
        return model_lists(self._run.cluster, among, request.model or "")

    def missing_load_s(self, worker: Worker, request: Request) -> float:
        model, outstanding = request.model or "", self._outstanding.get(worker, ())
        held = model in self._expected(worker, outstanding) if outstanding else holds_model(worker, model)
        # From where its weights are now: where they will be by then is not known.
        return 0.0 if held else self._run.cluster.load_s(worker, model)

    def _expected(self, worker: Worker, outstanding: Sequence[Request]) -> set[str]:
        """Return the models that ``worker`` is expected to hold after its ``outstanding`` requests."""
        slots = self._slots.get(worker.gpu.name)
        if slots is None:
            slots = self._slots[worker.gpu.name] = self._run.cluster.slots(worker)
        held: set[str] = set()
        resident = (asset.name for asset in reversed(worker.resident) if asset.kind == "model")
        for model in (*(sent.model or "" for sent in reversed(outstanding)), *resident):
            held.add(model)
            if len(held) == slots:
                break
        return held
