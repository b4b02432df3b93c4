"""Latency predictors: the seconds that a scheduler expects of a step of a mixed batch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Annotated, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge, Gt, Le

from mezzotint.backends.base import Work
from mezzotint.settings.ranges import Seconds
from mezzotint.sim.core.gpu import check_one_kind
from mezzotint.sim.core.request import Request
from mezzotint.sim.core.sampling import Sampling, cfg_beside_usual, sampled
from mezzotint.sim.core.streams import LATENCY
from mezzotint.sim.protocols import Run, Stepper


class RequestKind(NamedTuple):
    """Requests whose steps take the same seconds: of one size, with the same sampling parameters that count."""

    width: int
    height: int
    frames: int
    sampling: Sampling | None = None

    @property
    def pixels(self) -> int:
        """Pixels of all frames of all images."""
        return self.width * self.height * self.frames * (1 if self.sampling is None else self.sampling.images)


Counts = tuple[int, ...]
"""Requests of each kind in a batch, in the order of ``ExpectedLatency.kinds``."""

MS = 1e3
MIN_STEP_S = 1e-6
"""Lower bound of a prediction, which a regression may put at or below 0."""

MAX_CACHED = 100_000
"""Cached batches: 16 requests of three sizes form 968, and of forty sizes more than memory holds."""


@runtime_checkable
class LatencyPredictor(Protocol):
    """Predicts the seconds of one step of a batch for a scheduler."""

    def bind(self, run: Run, executor: Stepper, kinds: Sequence[RequestKind]) -> None:
        """Take the executor, which prices a batch's mean step, and the kinds of requests of the run."""

    def step_s(self, model: str, counts: Counts) -> Seconds:
        """Return the expected seconds of one step of a batch with ``counts[i]`` requests of the i-th kind."""


@dataclass(slots=True)
class Known:
    """A perfect predictor: the cost that the backend will charge."""

    _step_s: Callable[[str, Counts], float] = field(init=False, repr=False)

    def bind(self, run: Run, executor: Stepper, kinds: Sequence[RequestKind]) -> None:
        def priced_s(model: str, counts: Counts) -> float:
            return executor.price(sample_works(run, model, kinds, counts)).seconds

        self._step_s = lru_cache(MAX_CACHED)(priced_s)

    def step_s(self, model: str, counts: Counts) -> float:
        return self._step_s(model, counts)


@dataclass(slots=True)
class Svr:
    """Support vector regression on random batches (PatchedServe, 6.1.2).

    Standardised features: requests of each kind, number of sizes, and pixels. A share of the batches is the training
    set. The others give the test error, which the summary states. Each model's regression is fitted at its first use.

    Args:
        combinations: number of batches, with a uniform number of requests of uniform kinds.
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
    _kinds: Sequence[RequestKind] = field(init=False, repr=False)
    _regressions: dict[str, Any] = field(init=False, default_factory=dict, repr=False)
    _step_s: Callable[[str, Counts], float] = field(init=False, repr=False)

    def bind(self, run: Run, executor: Stepper, kinds: Sequence[RequestKind]) -> None:
        self._run, self._executor, self._kinds = run, executor, kinds
        self._step_s = lru_cache(MAX_CACHED)(self._predicted_s)

    def step_s(self, model: str, counts: Counts) -> float:
        return self._step_s(model, counts)

    def _predicted_s(self, model: str, counts: Counts) -> float:
        if model not in self._regressions:
            self._regressions[model] = self._fit(model)
        predicted_ms = float(self._regressions[model].predict([self._features(counts)])[0])
        return max(predicted_ms / MS, MIN_STEP_S)

    def _fit(self, model: str) -> Any:
        from sklearn.pipeline import make_pipeline  # imported here: it takes a second
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR

        rng, kinds = self._run.rng(LATENCY.format(model)), len(self._kinds)
        batches = [
            tuple(int(n) for n in np.bincount(rng.integers(kinds, size=count), minlength=kinds))
            for count in rng.integers(1, self._executor.max_batch + 1, self.combinations)
        ]
        samples = [sample_works(self._run, model, self._kinds, counts) for counts in batches]
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
        pixels = sum(n * kind.pixels for n, kind in zip(counts, self._kinds, strict=True))
        sizes = {kind[:3] for n, kind in zip(counts, self._kinds, strict=True) if n}
        return [*counts, len(sizes), pixels]


def sample_works(run: Run, name: str, kinds: Sequence[RequestKind], counts: Counts) -> list[Work]:
    """Return the works on the model called ``name`` of a batch of no requests, with the most steps of any request."""
    steps = max(run.workload.steps)
    return [_sample(run, name, kind, steps) for kind, n in zip(kinds, counts, strict=True) for _ in range(n)]


def _sample(run: Run, name: str, kind: RequestKind, steps: int) -> Work:
    """Return a work that belongs to no request.

    Row 0 gives a live backend a prompt; for others no row, since a row may draw its own seconds.
    """
    work = Work(name, kind.width, kind.height, steps, row=0 if run.backend.live else -1, frames=kind.frames)
    if kind.sampling is None:
        return work
    model = next(model for model in run.models.values() if model.name == name)
    return sampled(work, kind.sampling, model, run.backend.basis(name))


@dataclass(slots=True)
class ExpectedLatency:
    """Expected seconds of steps and stages, for a discipline of the queues in front of ``executor``.

    Raises ConfigError for several kinds of GPU.
    """

    run: Run
    executor: Stepper
    latency_predictor: LatencyPredictor
    kinds: list[RequestKind] = field(init=False)
    step_s: Callable[[str, Counts], float] = field(init=False, repr=False)
    _of_steps: dict[Sampling | None, Sampling | None] = field(init=False, default_factory=dict, repr=False)
    """Sampling parameters -> the first ones whose steps cost the same; None if that is a usual request."""
    _index: dict[RequestKind, int] = field(init=False, default_factory=dict, repr=False)
    _stages: dict[tuple[str, RequestKind], tuple[float, float]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        remedy = "choose discipline=fifo, edf or pixel-budget"
        check_one_kind(self.run.cluster.kinds, "discipline", "it expects the seconds of a step on", remedy)
        workload = self.run.workload
        asked: list[Sampling | None] = [None] * len(workload.width)
        if workload.sampling is not None:
            asked = [workload.sampling.kinds[code] for code in workload.sampling.codes.tolist()]
        self._of_steps = self._alike(set(asked))
        of_steps = [self._of_steps[sampling] for sampling in asked]
        kinds = set(map(RequestKind, workload.width, workload.height, workload.frames, of_steps))
        if workload.use_model_shape:
            shapes = {(model.width, model.height, model.frames) for model in self.run.models.values()}
            kinds |= {RequestKind(*shape, sampling) for shape in shapes for sampling in set(of_steps)}
        # Parameters that may be None have no order of their own; that of text is the same in every process.
        self.kinds = sorted(kinds, key=lambda kind: (prod(kind[:3]), kind[:3], repr(kind.sampling)))
        self._index = {kind: index for index, kind in enumerate(self.kinds)}
        self.latency_predictor.bind(self.run, self.executor, self.kinds)
        self.step_s = self.latency_predictor.step_s

    def _alike(self, asked: Iterable[Sampling | None]) -> dict[Sampling | None, Sampling | None]:
        models = list(self.run.models.values())
        first: dict[tuple[object, ...], Sampling | None] = {(1, *[None] * len(models)): None}
        alike: dict[Sampling | None, Sampling | None] = {None: None}
        for sampling in sorted(filter(None, asked), key=repr):
            cfg = [cfg_beside_usual(sampling, model, self.run.backend.basis(model.name)) for model in models]
            alike[sampling] = first.setdefault((sampling.images, *cfg), sampling)
        return alike

    def kind_index(self, request: Request) -> int:
        sampling = self._of_steps[request.sampling]
        return self._index[RequestKind(request.width, request.height, request.frames, sampling)]

    def stages_s(self, request: Request) -> tuple[float, float]:
        """Return the seconds before the first step and after the last one of ``request`` alone."""
        model, kind = request.model or "", RequestKind(request.width, request.height, request.frames, request.sampling)
        stages = self._stages.get((model, kind))
        if stages is None:
            backend, works = self.run.backend, [_sample(self.run, model, kind, steps=1)]
            before_s = backend.begin(works).seconds
            backend.steps(works)
            stages = self._stages[model, kind] = before_s, backend.end(works).seconds
        return stages
