"""Residency: the components that each GPU holds, and the loads of those that it lacks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mezzotint.backends.base import Backend, ComponentWeights
from mezzotint.sim.core.plan import COMPONENTS


@dataclass(slots=True)
class Residency:
    """The components in the memory of each GPU; the least recently used one makes room for another.

    At the start a GPU holds the components placed on it if they fit together, else none. A component larger than the
    memory takes all of it and stays on the host: its measured times include the reading of its weights.

    Args:
        memory_bytes: memory of each GPU; None holds everything.
    """

    backend: Backend
    memory_bytes: int | None
    placed: dict[int, Sequence[str]] = field(default_factory=dict)
    _resident: dict[int, dict[tuple[str, str], int]] = field(init=False, default_factory=dict, repr=False)
    _weights: dict[tuple[str, str], ComponentWeights | None] = field(init=False, default_factory=dict, repr=False)

    def weights(self, model: str, component: str) -> ComponentWeights | None:
        """Return the weights of ``component`` of ``model``; None if nobody measured them."""
        key = model, component
        if key not in self._weights:
            self._weights[key] = self.backend.component_weights(component, model)
        return self._weights[key]

    def load_s(self, gpus: Sequence[int], model: str, components: Sequence[str]) -> float:
        """Make ``components`` resident on ``gpus``, one after another; return the seconds, of GPUs side by side."""
        if self.memory_bytes is None:
            return 0.0
        return max(sum(self._load_s(gpu, model, component) for component in components) for gpu in gpus)

    def forget(self, gpu: int) -> None:
        """Restore what ``gpu`` held at the start: it failed, and its repair loads that."""
        self._resident.pop(gpu, None)

    def _load_s(self, gpu: int, model: str, component: str) -> float:
        key, weights, memory_bytes = (model, component), self.weights(model, component), self.memory_bytes
        if weights is None or memory_bytes is None:
            return 0.0
        resident = self._resident.get(gpu)
        if resident is None:
            resident = self._resident[gpu] = self._at_start(gpu, model, memory_bytes)
        if key in resident:
            resident[key] = resident.pop(key)  # most recently used last
            return 0.0
        # It streams through the whole memory, which drives out the others and leaves nothing of itself
        # (test_component_larger_than_the_memory_is_loaded_at_every_step_and_drives_out_the_others).
        if weights.bytes > memory_bytes:
            resident.clear()
            return 0.0
        while sum(resident.values()) + weights.bytes > memory_bytes:
            del resident[next(iter(resident))]
        resident[key] = weights.bytes
        return weights.load_s

    def _at_start(self, gpu: int, model: str, memory_bytes: int) -> dict[tuple[str, str], int]:
        components = self.placed.get(gpu, COMPONENTS)
        known = {(model, component): self.weights(model, component) for component in components}
        resident = {key: weights.bytes for key, weights in known.items() if weights is not None}
        # Which of them would be there is not known; none is the cautious answer, and is paid once.
        return resident if sum(resident.values()) <= memory_bytes else {}
