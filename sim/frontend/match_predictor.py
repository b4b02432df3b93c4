"""Match predictors: decide if a search is worth its time (NIRVANA, 5.2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import inf
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from mezzotint.settings.ranges import Count, Number, Seconds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import reference
from mezzotint.sim.core.streams import PREDICTOR
from mezzotint.sim.core.workload import standalone_s
from mezzotint.sim.metrics.recorder import TRAININGS
from mezzotint.sim.protocols import Change, Log, MatchPredictor, Run, Selector
from mezzotint.traces.similarity.similarities import SimilaritySource

BLOCK = 512
"""Rows per call of the decision function."""

MAX_HOLDOUT, MIN_HOLDOUT = 1000, 50
"""Bounds on the number of held-out prompts that a threshold is chosen on."""


@dataclass(slots=True)
class Always(MatchPredictor):
    """Search for every prompt."""

    def expects(self, row: int, now_s: float) -> bool:
        return True


@dataclass(slots=True)
class OneClassSvm(MatchPredictor):
    """One-class SVM of the indexed vectors; outliers are not searched for (NIRVANA, 5.2 and 6).

    It is linear and trained by stochastic gradient descent (scikit-learn's SGDOneClassSVM); with ``landmarks`` it works
    on a Nystroem map of the Gaussian kernel. It is trained in the background, after a batch of index changes. A new
    model is used once its training is done; before the first one every prompt is searched for. Predicting takes no time
    (5.2: orders of magnitude less than a search).

    Args:
        nu: bound on the share of training errors, over 0 and at most 1 (6: 0.001).
        threshold: value that the decision function must exceed; 0 is scikit-learn's own. Null chooses the one of least
            latency overhead, as 7.7 does (its value is not printed). It is chosen once, at the first training: the last
            fifth of the preloaded prompts is held out and searched for among those before them.
        retrain_share: insertions and deletions per vector of the last training that start the next one (5.2: 0.05).
        per_10k_s: simulated seconds to train on 10,000 vectors (5.4: 0.04).
        sample: largest number of training vectors, drawn anew each time; null is all, whose seconds it always takes.
        landmarks: number of vectors that the kernel's map is made of; null is linear.
        gamma: gamma of the kernel exp(-gamma |x - y|^2), with ``landmarks``.
        search_s: seconds wasted by a search without a match, to choose a threshold with (l_s, 4.1).
        selector: similarity -> steps that a match saves; needed to choose a threshold.
    """

    nu: Annotated[float, Ge(1e-6), Le(1)] = 0.001
    threshold: Number | None = 0.0
    retrain_share: Annotated[float, Ge(0), Le(1e9)] = 0.05
    per_10k_s: Seconds = 0.04
    sample: Count | None = 10_000
    landmarks: Count | None = None
    gamma: Annotated[float, Ge(1e-6), Le(1e6)] = 1.0
    search_s: Annotated[float, Ge(1e-6), Le(1e6)] = 0.1
    selector: Selector | None = None
    _holdout: NDArray[np.int64] | None = field(init=False, default=None, repr=False)
    _holdout_queries: Any = field(init=False, default=None, repr=False)
    _searched_holdouts: int = field(init=False, default=0)
    _run: Run = field(init=False, repr=False)
    _trainings: Log = field(init=False, repr=False)
    _similarity: SimilaritySource = field(init=False, repr=False)
    _rng: np.random.Generator = field(init=False, repr=False)
    _rows: dict[int, int] = field(init=False, default_factory=dict, repr=False)
    _changes: int = field(init=False, default=0)
    _trained_on: int = field(init=False, default=0)
    _model: "Callable[[], TrainedSvm] | None" = field(init=False, default=None, repr=False)
    _pending_model: "Callable[[], TrainedSvm] | None" = field(init=False, default=None, repr=False)
    _ready_s: float = field(init=False, default=inf)
    _start: int = field(init=False, default=0)
    _block: list[bool] = field(init=False, default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.threshold is None and self.selector is None:
            raise ConfigError(
                "match_predictor.threshold: found null, for which a selector is needed; add selector=nirvana"
            )

    def bind(self, run: Run, similarity: SimilaritySource) -> None:
        self._run = run
        self._trainings = run.log(TRAININGS)
        self._similarity = similarity
        self._rng = run.rng(PREDICTOR)
        if self.threshold is None:
            run.assume(
                "threshold of the match predictor",
                f"the least latency overhead on preloaded prompts, a search in vain costing {self.search_s:g} s",
                "NIRVANA, 7.7 and Figure 18; its value is not printed",
            )
        if self.sample is not None:
            run.assume("vectors that the match predictor is trained on at most", self.sample, "not NIRVANA's")
        if self.landmarks is not None:
            run.assume("kernel of the match predictor", f"Nystroem, {self.landmarks} landmarks", "not NIRVANA's")

    def applied(self, changes: Sequence[Change], now_s: float) -> None:
        for _, _, entry, row, insert in changes:
            if insert:
                self._rows[entry] = row
            else:
                del self._rows[entry]
        self._changes += len(changes)
        if self._rows and now_s >= self._ready_s:
            self._activate_pending()
        if self._pending_model is None and self._rows and self._changes > self.retrain_share * self._trained_on:
            self._train(now_s)

    def expects(self, row: int, now_s: float) -> bool:
        if now_s >= self._ready_s:
            self._activate_pending()
        if self._model is None:
            return True
        offset = row - self._start
        if offset >= len(self._block):
            self._start, offset = row, 0
            work = self._run.workload
            stop = min(row + BLOCK, work.preload + work.rows)
            model = self._model()
            self._block = (model.scores(self._similarity.queries(row, stop)) > model.threshold).tolist()
        return self._block[offset]

    def _activate_pending(self) -> None:
        self._model, self._pending_model, self._ready_s = self._pending_model, None, inf
        self._start, self._block = 0, []

    def _train(self, now_s: float) -> None:
        rows = np.fromiter(self._rows.values(), np.int64, len(self._rows))
        self._trained_on, self._changes = len(rows), 0
        if self.threshold is None and self._holdout is None:
            self._choose_threshold(np.sort(rows))
        seconds = self._trained_on * self.per_10k_s / 10_000
        self._pending_model = self._fit(rows)
        self._ready_s = now_s + seconds
        self._trainings.add(now_s, seconds)

    def _fit(self, rows: NDArray[np.int64]) -> "Callable[[], TrainedSvm]":
        """Return a function that trains a model on ``rows`` once: half of the models are never used."""
        if self._holdout is not None:
            rows = np.setdiff1d(rows, self._holdout)
        if self.sample is not None and len(rows) > self.sample:
            rows = np.sort(self._rng.choice(rows, self.sample, replace=False))
        seed, holdout_queries = int(self._rng.integers(2**31)), self._holdout_queries

        @cache
        def train() -> TrainedSvm:
            model = TrainedSvm(self._similarity.artifacts(rows), self, seed)
            if holdout_queries is not None:
                model.threshold = self._matching_threshold(np.sort(model.scores(holdout_queries)))
            return model

        return train

    def _matching_threshold(self, scores: NDArray[np.float64]) -> float:
        """Return the threshold that as many held-out ``scores``, ascending, exceed as when it was chosen. The number is
        kept and not the threshold, since models differ in the scale of their scores."""
        skipped = len(scores) - self._searched_holdouts
        return float(scores[skipped - 1]) if skipped else -inf

    def _choose_threshold(self, rows: NDArray[np.int64]) -> None:
        """Choose how many of the last ``rows``, ascending, to search for. They are never trained on: a training prompt
        scores higher than a new one."""
        holdout = min(MAX_HOLDOUT, len(rows) // 5)
        if holdout < MIN_HOLDOUT:
            return
        assert self.selector is not None
        earlier = rows[:-holdout]
        queries = np.concatenate([self._similarity.queries(row, row + 1) for row in rows[-holdout:].tolist()])
        nearest = np.full(holdout, -inf)
        for start in range(0, len(earlier), BLOCK):
            products = queries @ self._similarity.artifacts(earlier[start : start + BLOCK]).T
            np.maximum(nearest, products.max(1), out=nearest)
        saved = [
            self.selector.skip(self._similarity.similar(product)) / self.selector.of_steps
            for product in nearest.tolist()
        ]
        run = self._run
        forgone = np.array(saved) * standalone_s(run.backend, reference(run.models)) / self.search_s
        if forgone.all() or not forgone.any():
            return
        scores = np.asarray(self._fit(earlier)().scores(queries), np.float64)
        self._searched_holdouts = int((scores > cheapest_threshold(scores, forgone)).sum())
        self._holdout, self._holdout_queries = rows[-holdout:], queries


class TrainedSvm:
    """One-class SVM trained on ``vectors`` (n, d)."""

    def __init__(self, vectors: Any, settings: OneClassSvm, seed: int) -> None:
        from sklearn import config_context  # a slow import, not always needed
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import SGDOneClassSVM

        self._map = None
        # Settings and vectors were checked before.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            if settings.landmarks is not None:
                landmarks = min(settings.landmarks, len(vectors))
                self._map = Nystroem(gamma=settings.gamma, n_components=landmarks, random_state=seed)
                vectors = self._map.fit_transform(vectors)
            self._svm = SGDOneClassSVM(nu=settings.nu, random_state=seed).fit(vectors)
        self.threshold = settings.threshold or 0.0

    def scores(self, vectors: Any) -> Any:
        """Return the decision function of ``vectors`` (n, d), shape (n,); higher is more like the training vectors."""
        return self._svm.decision_function(vectors if self._map is None else self._map.transform(vectors))


def cheapest_threshold(scores: NDArray[np.float64], forgone: NDArray[np.float64]) -> float:
    """Return the threshold whose errors add the least latency (NIRVANA, 7.7, Figure 18); of equal ones the lowest.

    Args:
        scores: scores of prompts, (n,); a prompt above the threshold is searched for.
        forgone: cost of not searching for each prompt, in searches, (n,); 0 if a search finds nothing.
    """
    order = np.argsort(-scores, kind="stable")
    lost = forgone[order]
    cost = np.cumsum(lost == 0) + (lost.sum() - np.cumsum(lost))
    ordered = scores[order]
    # A threshold separates only scores that differ, or lies below all of them.
    below = np.append(ordered[1:], ordered[-1] - 1.0)
    cost[ordered == below] = np.inf
    last = len(cost) - 1 - int(np.argmin(cost[::-1]))
    return float((ordered[last] + below[last]) / 2)
