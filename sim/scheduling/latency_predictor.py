"""Latency predictors: the seconds that a scheduler expects of a step of a mixed batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge, Gt, Le

from mezzotint.backends.base import Cost, Work
from mezzotint.settings.ranges import Seconds
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.streams import LATENCY
from mezzotint.sim.protocols import Run, Stepper

Size = tuple[int, int, int]
"""Width, height and frames."""

Counts = tuple[int, ...]
"""Requests of each size in a batch, in the order of ``ExpectedLatency.sizes``."""

MS = 1e3
MIN_STEP_S = 1e-6
"""Lower bound of a prediction, which a regression may put at or below 0."""

MAX_CACHED = 100_000
"""Cached batches: 16 requests of three sizes form 968, and of forty sizes more than memory holds."""


@runtime_checkable
class LatencyPredictor(Protocol):
    """Predicts the seconds of one step of a batch for a scheduler."""

    def bind(self, run: Run, executor: Stepper, sizes: Sequence[Size]) -> None:
        """Take the executor, which prices a batch's mean step, and the sizes of the run."""

    def step_s(self, model: str, counts: Counts) -> Seconds:
        """Return the expected seconds of one step of a batch with ``counts[i]`` images of the i-th size."""


@dataclass(slots=True)
class Known:
    """A perfect predictor: the cost that the backend will charge."""

    _run: Run = field(init=False, repr=False)
    _price: Callable[[Sequence[Work]], Cost] = field(init=False, repr=False)
    _sizes: Sequence[Size] = field(init=False, repr=False)
    _cached: dict[tuple[str, Counts], float] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, executor: Stepper, sizes: Sequence[Size]) -> None:
        self._run, self._price, self._sizes = run, executor.price, sizes

    def step_s(self, model: str, counts: Counts) -> float:
        step_s = self._cached.get((model, counts))
        if step_s is None:
            if len(self._cached) >= MAX_CACHED:
                self._cached.clear()
            works = sample_works(self._run, model, self._sizes, counts)
            step_s = self._cached[model, counts] = self._price(works).seconds
        return step_s


@dataclass(slots=True)
class Svr:
    """Support vector regression on random batches (PatchedServe, 6.1.2).

    Standardised features: requests of each size, number of sizes, and pixels. A share of the batches is the training
    set. The others give the test error, which the summary states. Each model's regression is fitted at its first use.

    Args:
        combinations: number of batches, with a uniform number of requests of uniform sizes.
        train: share of the batches in the training set.
        regularisation: scikit-learn's C; the target is in milliseconds.
        epsilon_ms: half-width of the tube within which errors cost nothing.
    """

    combinations: Annotated[int, Ge(10), Le(100_000)] = 300
    train: Annotated[float, Gt(0), Le(0.95)] = 0.8
    regularisation: Annotated[float, Gt(0), Le(1e9)] = 1000.0
    epsilon_ms: Annotated[float, Ge(0), Le(1e6)] = 0.1
    _run: Run = field(init=False, repr=False)
    _executor: Stepper = field(init=False, repr=False)
    _sizes: Sequence[Size] = field(init=False, repr=False)
    _regressions: dict[str, Any] = field(init=False, default_factory=dict, repr=False)
    _cached: dict[tuple[str, Counts], float] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, executor: Stepper, sizes: Sequence[Size]) -> None:
        self._run, self._executor, self._sizes = run, executor, sizes

    def step_s(self, model: str, counts: Counts) -> float:
        step_s = self._cached.get((model, counts))
        if step_s is None:
            if len(self._cached) >= MAX_CACHED:
                self._cached.clear()
            if model not in self._regressions:
                self._regressions[model] = self._fit(model)
            predicted_ms = float(self._regressions[model].predict([self._features(counts)])[0])
            step_s = self._cached[model, counts] = max(predicted_ms / MS, MIN_STEP_S)
        return step_s

    def _fit(self, model: str) -> Any:
        from sklearn.pipeline import make_pipeline  # imported here: it takes a second
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR

        rng, kinds = self._run.rng(LATENCY.format(model)), len(self._sizes)
        batches = [
            tuple(int(n) for n in np.bincount(rng.integers(kinds, size=count), minlength=kinds))
            for count in rng.integers(1, self._executor.max_batch + 1, self.combinations)
        ]
        samples = [sample_works(self._run, model, self._sizes, counts) for counts in batches]
        step_ms = np.array([self._executor.price(works).seconds * MS for works in samples])
        features = np.array([self._features(counts) for counts in batches])
        trained = max(round(self.train * self.combinations), 1)
        regression = make_pipeline(StandardScaler(), SVR(C=self.regularisation, epsilon=self.epsilon_ms))
        regression.fit(features[:trained], step_ms[:trained])
        error = float(np.mean((regression.predict(features[trained:]) - step_ms[trained:]) ** 2))
        self._run.assume(
            f"mean squared error of the predicted step of {model} [ms^2]",
            float(f"{error:.4g}"),
            f"support vector regression on {trained} random batches, of {len(batches) - trained} others",
        )
        return regression

    def _features(self, counts: Counts) -> list[float]:
        pixels = sum(n * prod(size) for n, size in zip(counts, self._sizes, strict=True))
        return [*counts, sum(n > 0 for n in counts), pixels]


def sample_works(run: Run, model: str, sizes: Sequence[Size], counts: Counts) -> list[Work]:
    """Return the works of a batch that belongs to no request, with the most steps of any request.

    Row 0 gives a live backend a prompt; for others no row, since a row may draw its own seconds.
    """
    steps, row = max(run.workload.steps), 0 if run.backend.live else -1
    return [
        Work(model, width, height, steps, row=row, frames=frames)
        for (width, height, frames), n in zip(sizes, counts, strict=True)
        for _ in range(n)
    ]


@dataclass(slots=True)
class ExpectedLatency:
    """Expected seconds of steps and stages, for a discipline of the queues in front of ``executor``.

    Raises ConfigError for several kinds of GPU.
    """

    run: Run
    executor: Stepper
    latency_predictor: LatencyPredictor
    sizes: list[Size] = field(init=False)
    step_s: Callable[[str, Counts], float] = field(init=False, repr=False)
    _index: dict[Size, int] = field(init=False, default_factory=dict, repr=False)
    _stages: dict[tuple[str, Size], tuple[float, float]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        remedy = "choose discipline=fifo, edf or pixel-budget"
        check_one_kind(self.run.cluster.kinds, "discipline", "it expects the seconds of a step on", remedy)
        workload = self.run.workload
        sizes = set(zip(workload.width, workload.height, workload.frames, strict=True))
        if workload.use_model_shape:
            sizes |= {(model.width, model.height, model.frames) for model in self.run.models.values()}
        self.sizes = sorted(sizes, key=lambda size: (prod(size), size))
        if workload.sampling is not None:
            self.run.assume(
                "what the discipline expects of a request",
                "one image with usual guidance",
                "latency_predictor: by size",
            )
        self._index = {size: index for index, size in enumerate(self.sizes)}
        self.latency_predictor.bind(self.run, self.executor, self.sizes)
        self.step_s = self.latency_predictor.step_s

    def size_index(self, request: Request) -> int:
        return self._index[request.width, request.height, request.frames]

    def stages_s(self, request: Request) -> tuple[float, float]:
        """Return the seconds before the first step and after the last one of ``request`` alone."""
        model, size = request.model or "", (request.width, request.height, request.frames)
        key = (model, size)
        stages = self._stages.get(key)
        if stages is None:
            backend = self.run.backend
            works = [Work(model, *size[:2], 1, row=0 if backend.live else -1, frames=size[2])]
            before_s = backend.begin(works).seconds
            backend.steps(works)
            stages = self._stages[key] = before_s, backend.end(works).seconds
        return stages
