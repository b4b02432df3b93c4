"""What a scheduler expects a step of a mixed batch to take: predicted from a few that were tried, or known exactly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from annotated_types import Ge, Gt, Le

from backends.base import Cost, Work
from sim.core.streams import LATENCY
from sim.protocols import Run, Stepper

Size = tuple[int, int]

Counts = tuple[int, ...]
"""Requests of each size in a batch, in the order of ``Expected.sizes``."""

MS = 1e3
LEAST_S = 1e-6
"""Of a step: what is predicted is not trusted to be positive."""

MOST_KNOWN = 100_000
"""Batches that are remembered: of three sizes and 16 requests there are 968, of forty sizes more than memory holds."""


@runtime_checkable
class LatencyPredictor(Protocol):
    """Seconds of one step of a batch, as a scheduler expects them."""

    def bind(self, run: Run, executor: Stepper, sizes: Sequence[Size]) -> None:
        """Take the executor and the sizes of images; what changes between steps counts on average."""

    def step_s(self, model: str, counts: Counts) -> float:
        """One step of ``counts[i]`` images of the i-th size."""


@dataclass(slots=True)
class Known:
    """Exactly what the backend will charge: what a perfect predictor would say."""

    _price: Callable[[Sequence[Work]], Cost] = field(init=False, repr=False)
    _sizes: Sequence[Size] = field(init=False, repr=False)
    _steps: int = field(init=False, repr=False)
    _seen: dict[tuple[str, Counts], float] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, executor: Stepper, sizes: Sequence[Size]) -> None:
        self._price, self._sizes, self._steps = executor.price, sizes, max(run.workload.steps)

    def step_s(self, model: str, counts: Counts) -> float:
        found = self._seen.get((model, counts))
        if found is None:
            if len(self._seen) >= MOST_KNOWN:
                self._seen.clear()
            found = self._seen[model, counts] = self._price(batch(model, self._sizes, counts, self._steps)).seconds
        return found


@dataclass(slots=True)
class Svr:
    """Support vector regression on random batches that were tried (PatchedServe, 6.1.2).

    Features, standardised: how many requests of each size, how many sizes, and how many pixels. A share of the batches
    teaches, the others tell the error, which the summary states. A model is learned when it is first asked for.

    Args:
        combinations: batches that are tried, of a uniform number of requests of uniform sizes.
        train: the share of them that teaches.
        regularisation: scikit-learn's C; what is fitted is in milliseconds.
        epsilon_ms: what an error may be before it counts.
    """

    combinations: Annotated[int, Ge(10), Le(100_000)] = 300
    train: Annotated[float, Gt(0), Le(0.95)] = 0.8
    regularisation: Annotated[float, Gt(0), Le(1e9)] = 1000.0
    epsilon_ms: Annotated[float, Ge(0), Le(1e6)] = 0.1
    _run: Run = field(init=False, repr=False)
    _executor: Stepper = field(init=False, repr=False)
    _sizes: Sequence[Size] = field(init=False, repr=False)
    _learned: dict[str, Any] = field(init=False, default_factory=dict, repr=False)
    _seen: dict[tuple[str, Counts], float] = field(init=False, default_factory=dict, repr=False)

    def bind(self, run: Run, executor: Stepper, sizes: Sequence[Size]) -> None:
        self._run, self._executor, self._sizes = run, executor, sizes

    def step_s(self, model: str, counts: Counts) -> float:
        found = self._seen.get((model, counts))
        if found is None:
            if len(self._seen) >= MOST_KNOWN:
                self._seen.clear()
            if model not in self._learned:
                self._learned[model] = self._learn(model)
            predicted_ms = float(self._learned[model].predict([self._features(counts)])[0])
            found = self._seen[model, counts] = max(predicted_ms / MS, LEAST_S)
        return found

    def _learn(self, model: str) -> Any:
        from sklearn.pipeline import make_pipeline  # importing it takes a second
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR

        rng, kinds = self._run.rng(LATENCY.format(model)), len(self._sizes)
        drawn = [
            tuple(int(n) for n in np.bincount(rng.integers(kinds, size=count), minlength=kinds))
            for count in rng.integers(1, self._executor.max_batch + 1, self.combinations)
        ]
        steps = max(self._run.workload.steps)
        tried = [batch(model, self._sizes, each, steps) for each in drawn]
        took_ms = np.array([self._executor.price(works).seconds * MS for works in tried])
        features = np.array([self._features(each) for each in drawn])
        taught = max(round(self.train * self.combinations), 1)
        learned = make_pipeline(StandardScaler(), SVR(C=self.regularisation, epsilon=self.epsilon_ms))
        learned.fit(features[:taught], took_ms[:taught])
        error = float(np.mean((learned.predict(features[taught:]) - took_ms[taught:]) ** 2))
        self._run.assume(
            f"mean squared error of the predicted step of {model} [ms^2]",
            float(f"{error:.4g}"),
            f"support vector regression on {taught} random batches, of {len(drawn) - taught} others",
        )
        return learned

    def _features(self, counts: Counts) -> list[float]:
        pixels = sum(n * width * height for n, (width, height) in zip(counts, self._sizes, strict=True))
        return [*counts, sum(n > 0 for n in counts), pixels]


def batch(model: str, sizes: Sequence[Size], counts: Counts, steps: int) -> list[Work]:
    """Works that belong to no request (to the first, of a live backend: it needs a prompt)."""
    return [Work(model, *size, steps, row=0) for size, n in zip(sizes, counts, strict=True) for _ in range(n)]


@dataclass(slots=True)
class Expected:
    """What a discipline expects of requests and batches of ``executor``, whose step takes ``latency_predictor``."""

    run: Run
    executor: Stepper
    latency_predictor: LatencyPredictor
    sizes: list[Size] = field(init=False)
    step_s: Callable[[str, Counts], float] = field(init=False, repr=False)
    _places: dict[Size, int] = field(init=False, default_factory=dict, repr=False)
    _stages: dict[tuple[str, int, int], tuple[float, float]] = field(init=False, default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        workload = self.run.workload
        sizes = set(zip(workload.width, workload.height, strict=True))
        if workload.use_model_shape:
            sizes |= {(model.width, model.height) for model in self.run.models.values()}
        self.sizes = sorted(sizes, key=lambda size: (size[0] * size[1], size))
        self._places = {size: place for place, size in enumerate(self.sizes)}
        self.latency_predictor.bind(self.run, self.executor, self.sizes)
        self.step_s = self.latency_predictor.step_s

    def place(self, width: int, height: int) -> int:
        return self._places[width, height]

    def stages_s(self, model: str, width: int, height: int) -> tuple[float, float]:
        """Seconds before the first step and after the last one, of a request alone."""
        key = (model, width, height)
        found = self._stages.get(key)
        if found is None:
            backend = self.run.backend
            works = [Work(model, width, height, 1, row=0 if backend.live else -1)]
            before_s = backend.begin(works).seconds
            backend.steps(works)
            found = self._stages[key] = before_s, backend.end(works).seconds
        return found
