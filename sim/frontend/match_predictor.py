"""Match predictors: whether a search is worth its time (NIRVANA, 5.2)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray

from conf.ranges import Count, Number, Seconds
from sim.core.errors import ConfigError
from sim.core.model import reference
from sim.core.streams import PREDICTOR
from sim.core.workload import standalone_s
from sim.metrics.recorder import TRAININGS
from sim.protocols import Change, Log, MatchPredictor, Run, Selector
from traces.similarity.similarities import SimilaritySource

BLOCK = 512
"""Coming rows that are decided at a time."""

STRETCH, LEAST_STRETCH = 1000, 50
"""Prompts that a threshold is chosen on: at most, and at least."""


@dataclass(slots=True)
class Always(MatchPredictor):
    """No predictor: every prompt is searched for."""

    def expects(self, row: int, now_s: float) -> bool:
        return True


@dataclass(slots=True)
class OneClassSvm(MatchPredictor):
    """A one-class SVM of the vectors in the database; outliers are not searched for (NIRVANA, 5.2 and 6).

    Linear, trained by stochastic gradient descent (scikit-learn's SGDOneClassSVM), or on a Nystroem map of the
    Gaussian kernel where ``landmarks`` are given. It is trained beside the requests, with a batch of the
    database's changes; the new model is in force when training is done, and before the first one every prompt is
    searched for. Predicting takes no time (5.2: orders of magnitude less than a search).

    Args:
        nu: bound on the share of training errors, over 0 and at most 1 (6: 0.001).
        threshold: what the decision function must exceed; 0 is scikit-learn's own. Null chooses one, as 7.7 does (by
            latency overhead; its value is not printed), once: when it is first trained, on the last fifth of the
            preloaded prompts, and on what a search for each finds among those before them.
        retrain_share: insertions and deletions over vectors at the last training (5.2: 0.05).
        per_10k_s: simulated seconds to train on 10,000 vectors (5.4: 0.04).
        sample: vectors that are trained on at most, drawn anew each time; null is all, whose seconds it always takes.
        landmarks: vectors that the kernel's map is made of; null is linear.
        gamma: of the kernel exp(-gamma |x - y|^2), with ``landmarks``.
        search_s: seconds of a search in vain, where no threshold is given (l_s, 4.1).
        selector: says how many steps a match spares; needed where no threshold is given.
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
    _stretch: NDArray[np.int64] | None = field(init=False, default=None, repr=False)
    _asked: Any = field(init=False, default=None, repr=False)
    _searched: int = field(init=False, default=0)
    _run: Run = field(init=False, repr=False)
    _trainings: Log = field(init=False, repr=False)
    _similarity: SimilaritySource = field(init=False, repr=False)
    _rng: np.random.Generator = field(init=False, repr=False)
    _rows: dict[int, int] = field(init=False, default_factory=dict, repr=False)
    _changed: int = field(init=False, default=0)
    _trained_on: int = field(init=False, default=0)
    _model: "Trained | None" = field(init=False, default=None, repr=False)
    _coming: "Trained | None" = field(init=False, default=None, repr=False)
    _ready_s: float = field(init=False, default=inf)
    _start: int = field(init=False, default=0)
    _block: list[bool] = field(init=False, default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.threshold is None and self.selector is None:
            raise ConfigError(
                "match_predictor.threshold: found null, for which a selector is needed; add selector=nirvana"
            )

    def bind(self, run: Run, space: SimilaritySource) -> None:
        self._run = run
        self._trainings = run.log(TRAININGS)
        self._similarity = space
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
        self._changed += len(changes)
        if self._rows and now_s >= self._ready_s:
            self._take_over()
        if self._coming is None and self._rows and self._changed > self.retrain_share * self._trained_on:
            self._train(now_s)

    def expects(self, row: int, now_s: float) -> bool:
        if now_s >= self._ready_s:
            self._take_over()
        if self._model is None:
            return True
        at = row - self._start
        if at >= len(self._block):
            self._start, at = row, 0
            work = self._run.workload
            stop = min(row + BLOCK, work.preload + work.rows)
            self._block = (self._model.scores(self._similarity.queries(row, stop)) > self._model.line).tolist()
        return self._block[at]

    def _take_over(self) -> None:
        self._model, self._coming, self._ready_s = self._coming, None, inf
        self._start, self._block = 0, []

    def _train(self, now_s: float) -> None:
        rows = np.fromiter(self._rows.values(), np.int64, len(self._rows))
        self._trained_on, self._changed = len(rows), 0
        if self.threshold is None and self._stretch is None:
            self._choose(np.sort(rows))
        seconds = self._trained_on * self.per_10k_s / 10_000
        self._coming = self._learnt(rows)
        self._ready_s = now_s + seconds
        self._trainings.add(now_s, seconds)

    def _learnt(self, rows: NDArray[np.int64]) -> "Trained":
        if self._stretch is not None:
            rows = np.setdiff1d(rows, self._stretch)
        if self.sample is not None and len(rows) > self.sample:
            rows = np.sort(self._rng.choice(rows, self.sample, replace=False))
        trained = Trained(self._similarity.artifacts(rows), self, int(self._rng.integers(2**31)))
        if self._asked is not None:
            trained.line = self._line(np.sort(trained.scores(self._asked)))
        return trained

    def _line(self, scores: NDArray[np.float64]) -> float:
        """The line above which ``scores``, ascending, hold as many of the stretch as were chosen: scores have no
        scale."""
        spared = len(scores) - self._searched
        return float(scores[spared - 1]) if spared else -inf

    def _choose(self, rows: NDArray[np.int64]) -> None:
        """Choose how many of the last ``rows``, ascending, to search for. They are never learnt: a prompt that was
        would be more like the class than one that comes."""
        stretch = min(STRETCH, len(rows) // 5)
        if stretch < LEAST_STRETCH:
            return
        assert self.selector is not None
        earlier = rows[:-stretch]
        asked = np.concatenate([self._similarity.queries(row, row + 1) for row in rows[-stretch:].tolist()])
        nearest = np.full(stretch, -inf)
        for start in range(0, len(earlier), BLOCK):
            near = asked @ self._similarity.artifacts(earlier[start : start + BLOCK]).T
            np.maximum(nearest, near.max(1), out=nearest)
        spared = [
            self.selector.skip(self._similarity.similar(near)) / self.selector.of_steps for near in nearest.tolist()
        ]
        run = self._run
        forgone = np.array(spared) * standalone_s(run.backend, reference(run.models)) / self.search_s
        if forgone.all() or not forgone.any():
            return
        scores = np.asarray(self._learnt(earlier).scores(asked), np.float64)
        self._searched = int((scores > cheapest(scores, forgone)).sum())
        self._stretch, self._asked = rows[-stretch:], asked


class Trained:
    """A trained one-class SVM: ``vectors`` (n, d) are the class."""

    def __init__(self, vectors: Any, settings: OneClassSvm, seed: int) -> None:
        from sklearn.kernel_approximation import Nystroem  # a slow import, not always needed
        from sklearn.linear_model import SGDOneClassSVM

        self._map = None
        if settings.landmarks is not None:
            landmarks = min(settings.landmarks, len(vectors))
            self._map = Nystroem(gamma=settings.gamma, n_components=landmarks, random_state=seed)
            vectors = self._map.fit_transform(vectors)
        self._svm = SGDOneClassSVM(nu=settings.nu, random_state=seed).fit(vectors)
        self.line = settings.threshold or 0.0

    def scores(self, vectors: Any) -> Any:
        """The decision function of ``vectors`` (n, d), shape (n,): what is more like the class scores higher."""
        return self._svm.decision_function(vectors if self._map is None else self._map.transform(vectors))


def cheapest(scores: NDArray[np.float64], forgone: NDArray[np.float64]) -> float:
    """The threshold whose errors add the least latency (NIRVANA, 7.7, Figure 18); of equal ones the lowest.

    Args:
        scores: of the decision function, (n,); what scores more than the threshold is searched for.
        forgone: what not to search for each costs, in searches, (n,); 0 where a search finds nothing.
    """
    order = np.argsort(-scores, kind="stable")
    lost = forgone[order]
    cost = np.cumsum(lost == 0) + (lost.sum() - np.cumsum(lost))
    ordered = scores[order]
    # a line can be drawn only where scores differ, and below all of them
    below = np.append(ordered[1:], ordered[-1] - 1.0)
    cost[ordered == below] = np.inf
    at = len(cost) - 1 - int(np.argmin(cost[::-1]))
    return float((ordered[at] + below[at]) / 2)
