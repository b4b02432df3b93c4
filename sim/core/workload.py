"""What a run is fed: the rows that arrive, and how alike their prompts are."""

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backends.base import Backend, Work, standalone_cost
from sim.core.model import Model
from sim.core.request import Addons
from traces.arrivals.base import Schedule
from traces.error import TraceError
from traces.similarity.search import Search
from traces.similarity.similarity_map import Identity, SimilarityMap
from traces.table.trace import ADDON_BYTES, Trace

Shapes = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""Width, height and steps of every trace row, (preload + rows,) each."""


@dataclass(frozen=True, slots=True)
class StandaloneLatency:
    """Seconds of every trace row, (preload + rows,), in full on the reference model, alone on a GPU (the standalone
    latency): of its steps, and of all of it."""

    denoise_s: NDArray[np.float64]
    total_s: NDArray[np.float64]


def standalone_s(backend: Backend, model: Model, batch: int = 1) -> float:
    """The standalone latency at the model's own shape, in seconds; of several together, with a ``batch``."""
    if batch == 1:
        cost = standalone_cost(backend, Work(model.name, model.width, model.height, model.steps))
        return cost.denoise_s + cost.other_s
    works = [Work(model.name, model.width, model.height, model.steps) for _ in range(batch)]
    stages = (backend.begin(works), backend.steps(works, model.steps), backend.end(works))
    return sum(stage.seconds for stage in stages)


def capacity_rpm(backend: Backend, model: Model, batch: int = 1) -> float:
    """Full generations per minute of a GPU that serves ``batch`` of them at once."""
    return 60 * batch / standalone_s(backend, model, batch)


def standalone(backend: Backend, model: Model, shapes: Shapes, native: bool) -> StandaloneLatency:
    """What every row takes in full on ``model``: of its own shape or, with ``use_model_shape``, of the model's. Raises
    BackendError where a shape is outside what was measured."""
    rows = len(shapes[0])
    asked = np.array([[model.width], [model.height], [model.steps]]) if native else np.stack(shapes)
    kinds, which = np.unique(asked, axis=1, return_inverse=True)
    costs = [standalone_cost(backend, Work(model.name, int(w), int(h), int(n))) for w, h, n in kinds.T]
    denoise_s = np.array([cost.denoise_s for cost in costs])[which]
    total_s = np.array([cost.denoise_s + cost.other_s for cost in costs])[which]
    return StandaloneLatency(np.broadcast_to(denoise_s, rows), np.broadcast_to(total_s, rows))


def addon_bytes(trace: Trace) -> Mapping[str, int]:
    """Bytes of the add-ons whose size ``trace`` says in its notes, by name. Raises TraceError where they are no mapping
    of names to positive whole numbers."""
    sizes = trace.notes.get(ADDON_BYTES, {})
    if not isinstance(sizes, dict) or not all(type(size) is int and 0 < size < 2**53 for size in sizes.values()):
        raise TraceError(
            f"trace {trace.name}: notes: {ADDON_BYTES}: expected a mapping of names to bytes, found {sizes!r:.100}; "
            "correct the file's notes, or import it again"
        )
    return sizes


@dataclass(slots=True)
class Workload:
    """The rows of a trace as they arrive.

    Args:
        schedule: when the served rows arrive (traces.arrivals).
        shapes: of every trace row, those that only fill caches included.
        full: what each takes alone.
        use_model_shape: every request takes the shape and steps of the model that its plan names, not its own.
        preload: rows at the head of the trace that fill the caches at the start and are not served.
        deadline: a request's deadline, as a multiple of its standalone latency; infinite is none.
        deadline_s: its deadline in seconds after its arrival; infinite is none. Of both, the earlier one counts.
        addons: the add-ons of each row; None where none are served.
        addon_bytes: of those whose size the trace says, by name.

    Attributes:
        rows: rows that are served: trace rows ``preload`` to ``preload + rows - 1``.
        width, height, steps: of every trace row.
        limit_s: from the arrival of every trace row to its deadline.
    """

    schedule: Schedule
    shapes: Shapes
    standalone: StandaloneLatency
    use_model_shape: bool = True
    preload: int = 0
    deadline: float = float("inf")
    deadline_s: float = float("inf")
    addons: Callable[[int], Addons | None] | None = None
    addon_bytes: Mapping[str, int] = field(default_factory=dict)
    rows: int = field(init=False)
    width: "array[int]" = field(init=False, repr=False)
    height: "array[int]" = field(init=False, repr=False)
    steps: "array[int]" = field(init=False, repr=False)
    limit_s: "array[float]" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.rows = len(self.shapes[0]) - self.preload
        self.width, self.height, self.steps = (array("i", column.astype(np.int32).tobytes()) for column in self.shapes)
        none = self.deadline == float("inf")  # also of what takes no time
        limit_s = np.full(len(self.standalone.total_s), np.inf) if none else self.deadline * self.standalone.total_s
        self.limit_s = array("d", np.minimum(limit_s, self.deadline_s).tobytes())


@dataclass(slots=True)
class SimilarityInputs:
    """How alike the prompts of the trace are, and how the most similar is found.

    Attributes:
        embeddings: gives the text embeddings of all rows, float32 (preload + rows, d).
        search: how caches are searched; every way finds the same.
        similarity_map: from the encoder's similarity to the one that thresholds are on.
        content: names the trace and its encoder, for what is remembered on disk; None keeps nothing.
    """

    embeddings: Callable[[], NDArray[np.float32]]
    search: Search
    similarity_map: SimilarityMap = field(default_factory=Identity)
    content: str | None = None
