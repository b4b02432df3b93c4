"""The input of a run: the arriving rows of a trace, and the similarity of their prompts."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.backends.base import Backend, Work, size_text, standalone_cost
from mezzotint.files.scratch import Scratch
from mezzotint.sim.core.culprit import caller, class_name, is_ours
from mezzotint.sim.core.errors import ConfigError, SimulationError
from mezzotint.sim.core.model import Model
from mezzotint.sim.core.plan import Stage
from mezzotint.sim.core.request import Addons
from mezzotint.sim.core.sampling import SamplingColumn, sampled
from mezzotint.traces.arrivals.base import Schedule
from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.search import Search
from mezzotint.traces.similarity.similarity_map import Identity, SimilarityMap
from mezzotint.traces.table.trace import ADDON_BYTES, Trace

BLOCK = 1 << 17
"""Rows that are computed together."""

Shapes = tuple[NDArray[np.int32], ...]
"""Width, height and steps of every trace row, and frames if there are videos, (preload + rows,) each."""


@dataclass(frozen=True, slots=True)
class StandaloneLatency:
    """Standalone latency of every trace row, (preload + rows,): a full run on the reference model, alone on a GPU.

    ``denoise_s`` is the seconds of the steps, ``total_s`` of all stages.
    """

    denoise_s: NDArray[np.float64]
    total_s: NDArray[np.float64]


def own_work(model: Model) -> Work:
    """Return a request of the model's own shape."""
    return Work(model.name, model.width, model.height, model.steps, frames=model.frames)


def standalone_s(backend: Backend, model: Model, batch: int = 1) -> float:
    """Return the seconds that ``batch`` requests of the model's own shape take together, alone on a GPU."""
    if batch == 1:
        cost = standalone_cost(backend, own_work(model))
        return cost.denoise_s + cost.other_s
    works = [own_work(model) for _ in range(batch)]
    stages = (backend.begin(works), backend.steps(works, model.steps), backend.end(works))
    return sum(stage.seconds for stage in stages)


def capacity_rpm(backend: Backend, model: Model, batch: int = 1) -> float:
    """Return the full generations per minute of a GPU that serves ``batch`` at once."""
    return 60 * batch / standalone_s(backend, model, batch)


def standalone(
    backend: Backend,
    model: Model,
    shapes: Shapes,
    use_model_shape: bool,
    sampling: SamplingColumn | None = None,
    others: Sequence[Stage] = (),
) -> StandaloneLatency:
    """Return the standalone latency of every row on ``model``.

    Args:
        use_model_shape: take the model's own shape and steps for every row.
        sampling: sampling parameters of every row; None if none change a cost.
        others: stages of each request besides text encoder, denoiser and VAE, each on the fewest GPUs that it was
            measured on.

    Raises:
        BackendError: a shape is outside the measured ones.
    """
    rows = len(shapes[0])
    own = [[model.width], [model.height], [model.steps], [model.frames]]
    asked = np.array(own) if use_model_shape else np.stack(shapes)
    if sampling is not None:
        asked = np.vstack([np.broadcast_to(asked, (len(asked), rows)), sampling.codes])
    kinds, which = np.unique(asked, axis=1, return_inverse=True)
    works = []
    for width, height, steps, *more in kinds.T.tolist():
        kind = None if sampling is None else sampling.kinds[more.pop()]
        work = Work(model.name, width, height, steps, frames=more[0] if more else 1)
        if kind is not None:
            work.skipped = work.done = kind.skipped(steps)
            work = sampled(work, kind, model, backend.basis(model.name))
        works.append(work)
    costs = [standalone_cost(backend, work) for work in works]
    for work, cost in zip(works, costs, strict=True):
        if not cost.denoise_s > 0:
            found = f"{work.steps} steps of {work.model} at {size_text(work.width, work.height, work.frames)}"
            raise SimulationError(f"{class_name(backend)} runs {found} in {cost.denoise_s} s; a step takes time")
        if not (is_ours(class_name(backend)) or backend.live):
            _check_count(backend, work, cost.denoise_s)
    denoise_s = np.array([cost.denoise_s for cost in costs])[which]
    others_s = [sum(_stage_s(backend, stage, work) for stage in others) for work in works]
    total_s = np.array([cost.denoise_s + cost.other_s + more_s for cost, more_s in zip(costs, others_s, strict=True)])
    total_s = total_s[which]
    return StandaloneLatency(np.broadcast_to(denoise_s, rows), np.broadcast_to(total_s, rows))


def _check_count(backend: Backend, work: Work, denoise_s: float) -> None:
    """Raise SimulationError if ``backend`` charges all steps of ``work`` no more than the first."""
    work = replace(work)
    first_s, count = backend.steps((work,)).seconds, work.steps - work.skipped
    if count > 1 and not first_s < denoise_s:
        raise SimulationError(
            f"{class_name(backend)} runs {count} steps of {work.model} in {denoise_s} s and one in {first_s} s; "
            "steps(works, count) is the cost of all count steps"
        )


def _stage_s(backend: Backend, stage: Stage, work: Work) -> float:
    gpus = min(backend.component_degrees(stage.component, work.model), default=1)
    return stage.steps * backend.component_s(stage.component, work, gpus)


def addon_bytes(trace: Trace) -> Mapping[str, int]:
    """Return the bytes of add-ons by name, from the notes of ``trace``.

    Raises TraceError if they are not a mapping of names to positive integers.
    """
    sizes = trace.notes.get(ADDON_BYTES, {})
    if not isinstance(sizes, dict) or not all(type(size) is int and 0 < size < 2**53 for size in sizes.values()):
        raise TraceError(
            f"trace {trace.name}: notes: {ADDON_BYTES}: expected a mapping of names to bytes, found {sizes!r:.100}; "
            "correct the file's notes, or import it again"
        )
    return sizes


def cells(column: NDArray[Any]) -> "memoryview[Any]":
    """Return a view of ``column`` whose elements are Python's own numbers, which NumPy's are slower than."""
    return memoryview(column)  # type: ignore[arg-type]


@dataclass(slots=True)
class Workload:
    """The rows of a trace as they arrive.

    Args:
        schedule: arrival times of the served rows (mezzotint.traces.arrivals).
        shapes: shape of every trace row, including rows that only fill caches.
        standalone: standalone latency of every trace row.
        use_model_shape: every request takes the shape and steps of the model in its plan, not its own.
        preload: rows at the head of the trace that fill the caches at the start and are not served.
        deadline: deadline as a multiple of the standalone latency; infinite is none.
        deadline_s: deadline in seconds after arrival; infinite is none. The earlier of both counts.
        own_deadline_s: deadline of each trace row's own, in seconds after arrival, (preload + rows,), instead of these;
            NaN where it has none. None if no row has one.
        priority: priority of each trace row, higher first; if empty, 0 for all.
        addons: trace row -> its add-ons; None if none are served.
        addon_bytes: size of add-ons by name, where the trace states it.
        column_codes: trace column -> a whole number for every trace row, (preload + rows,), equal where the values are;
            -1 where there is none. None without a trace.
        column_values: trace column -> its different values, by the number that ``column_codes`` gives them.
        sampling: sampling parameters of each trace row; None if none change a cost.
        max_tries: times that a client may send a request; each try has a row, and the columns above have them all
            (mezzotint.sim.client.tries).
        scratch: where long columns are, those of the record too.

    Attributes:
        rows: number of served rows: trace rows ``preload`` to ``preload + rows - 1``.
        width, height, steps, frames: shape of every trace row.
        has_videos: True if some row has more than one frame.
        limit_s: seconds from arrival to deadline of every trace row.
    """

    schedule: Schedule
    shapes: Shapes
    standalone: StandaloneLatency
    use_model_shape: bool = True
    preload: int = 0
    deadline: float = float("inf")
    deadline_s: float = float("inf")
    own_deadline_s: NDArray[np.float64] | None = None
    priority: "memoryview[int]" = field(default_factory=lambda: cells(np.empty(0, np.int32)), repr=False)
    addons: Callable[[int], Addons | None] | None = None
    addon_bytes: Mapping[str, int] = field(default_factory=dict)
    column_codes: Callable[[str], NDArray[np.int32]] | None = None
    column_values: Callable[[str], Sequence[str]] | None = None
    sampling: SamplingColumn | None = None
    max_tries: int = 1
    scratch: Scratch = field(default_factory=Scratch, repr=False)
    rows: int = field(init=False)
    width: "memoryview[int]" = field(init=False, repr=False)
    height: "memoryview[int]" = field(init=False, repr=False)
    steps: "memoryview[int]" = field(init=False, repr=False)
    frames: "memoryview[int]" = field(init=False, repr=False)
    has_videos: bool = field(init=False)
    limit_s: "memoryview[float]" = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.rows = (len(self.shapes[0]) - self.preload) // self.max_tries
        rows = len(self.shapes[0])
        width, height, steps, frames = (*self.shapes, np.broadcast_to(np.int32(1), rows))[:4]
        self.has_videos = len(self.shapes) > 3 and bool((frames > 1).any())
        self.width, self.height, self.steps, self.frames = (
            cells(self.scratch.copy(column.astype(np.int32, copy=False))) for column in (width, height, steps, frames)
        )
        if not len(self.priority):
            self.priority = cells(np.broadcast_to(np.int32(0), rows))
        self.limit_s = cells(self.scratch.full(rows, np.inf, np.float64))
        for start in range(0, rows, BLOCK):
            block = slice(start, start + BLOCK)
            limit_s = np.asarray(self.limit_s)[block]
            if self.deadline != float("inf"):  # and not NaN, of a standalone latency of 0
                limit_s[:] = self.deadline * self.standalone.total_s[block]
            np.minimum(limit_s, self.deadline_s, out=limit_s)
            if self.own_deadline_s is not None:
                own_s = self.own_deadline_s[block]
                limit_s[:] = np.where(np.isnan(own_s), limit_s, own_s)
            self.scratch.release()

    def take(self, rows: NDArray[np.int64], arrival_s: NDArray[np.float64]) -> "Workload":
        """Return the workload of these rows, in this order; those that only fill caches are among them.

        Args:
            arrival_s: when the served ones arrived; of an open loop, its schedule from now on.
        """
        is_closed = len(self.schedule.times) < self.rows
        sampling = self.sampling
        width, height, steps, frames = (
            np.asarray(getattr(self, name))[rows] for name in ("width", "height", "steps", "frames")
        )
        return replace(
            self,
            schedule=self.schedule if is_closed else replace(self.schedule, times=arrival_s),
            shapes=(width, height, steps, frames),
            standalone=StandaloneLatency(self.standalone.denoise_s[rows], self.standalone.total_s[rows]),
            own_deadline_s=None if self.own_deadline_s is None else self.own_deadline_s[rows],
            priority=cells(np.asarray(self.priority)[rows]),
            sampling=None if sampling is None else replace(sampling, codes=sampling.codes[rows]),
            max_tries=1,
        )

    def guard(self) -> None:
        """Make the workload read-only, where a class from outside the package sees it."""
        for name in ("width", "height", "steps", "frames", "limit_s", "priority"):
            setattr(self, name, memoryview(getattr(self, name)).toreadonly())
        if self.own_deadline_s is not None:
            self.own_deadline_s = read_only(self.own_deadline_s)
        self.schedule = self.schedule.with_times_moved(read_only)
        if isinstance(self.schedule.think_s, np.ndarray):
            self.schedule.think_s.setflags(write=False)
        self.standalone = StandaloneLatency(*map(read_only, (self.standalone.denoise_s, self.standalone.total_s)))
        self.addon_bytes = MappingProxyType(self.addon_bytes)
        self.__class__ = GuardedWorkload


class GuardedWorkload(Workload):
    """A workload that refuses changes, and names who makes one."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if not is_ours(sys._getframe(1).f_globals["__name__"]):
            raise SimulationError(f"{caller()} sets {name} of the workload to {value!r}; a part reads the workload")
        object.__setattr__(self, name, value)


def read_only(column: NDArray[Any]) -> NDArray[Any]:
    """Return a view of ``column`` that cannot be written."""
    view = column.view()
    view.setflags(write=False)
    return view


def serves_videos(workload: Workload, models: Mapping[str, Model]) -> bool:
    """Return True if a request may have more than one frame, by its own shape or that of its model."""
    by_model = workload.use_model_shape and any(model.frames > 1 for model in models.values())
    return workload.has_videos or by_model


@dataclass(slots=True)
class SimilarityInputs:
    """Similarity of the trace's prompts, and the search for the most similar one.

    Attributes:
        embeddings: returns the text embeddings of all rows, float32 (preload + rows, d).
        search: the search method of caches.
        similarity_map: from the encoder's similarity to that of the thresholds.
        named: returns ``content``; None without one.
    """

    embeddings: Callable[[], NDArray[np.float32]]
    search: Search
    similarity_map: SimilarityMap = field(default_factory=Identity)
    named: Callable[[], str] | None = None

    @property
    def content(self) -> str | None:
        """Key of the trace and its encoder in the disk cache; None keeps nothing there."""
        return None if self.named is None else self.named()


def check_equal_steps(
    workload: Workload, models: Iterable[Model], backends: Iterable[Backend], part: str, remedy: str
) -> None:
    """Raise ConfigError if a request may have steps of unequal seconds, which ``part`` takes as equal."""
    for backend, model in product(backends, models):
        unequal = set(backend.unequal_sizes(model.name))
        if not unequal:
            continue
        sizes = set(zip(workload.width, workload.height, workload.frames, strict=True))
        if workload.use_model_shape:
            sizes = {(each.width, each.height, each.frames) for each in models}
        for size in sorted(sizes & unequal):
            raise ConfigError(
                f"{part}: it takes the steps of a request as equal, and those of {model.name} at {size_text(*size)} "
                f"are not (step_shares of its profile); {remedy}"
            )
