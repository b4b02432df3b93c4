"""The match predictor: what and when it learns, its cost and its savings."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import SGDOneClassSVM

from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import FORGONE_MATCH, HIT, MISS, PREDICTED_MISS
from mezzotint.sim.core.request import Request
from mezzotint.sim.engine import Engine
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.sim.frontend.match_predictor import Always, OneClassSvm, cheapest_threshold
from mezzotint.sim.metrics.recorder import TRAININGS
from mezzotint.sim.metrics.summary import MeasuredWindow
from mezzotint.sim.protocols import Change, MatchPredictor, Run
from mezzotint.traces.similarity.similarities import SimilaritySource, TextToText
from tests.sim.lab import engine, simulated

PRELOAD, SEARCH_S, FULL_S = 300, 0.1, 8.0


class Nothing:
    """Admits nothing: the cache stays as preloaded, so that a match depends on no other request."""

    def bind(self, run: Run) -> None:
        pass

    def admits(self, request: Request) -> bool:
        return False


class Drawn:
    """A predictor with arbitrary answers."""

    def __init__(self, expected: Sequence[bool]) -> None:
        self.expected = expected

    def bind(self, run: Run, similarity: SimilaritySource) -> None:
        run.log(TRAININGS)

    def applied(self, changes: Sequence[Change], now_s: float) -> None:
        pass

    def expects(self, row: int, now_s: float) -> bool:
        return self.expected[row]


def prompts(seed: int, rows: int, dim: int = 12) -> np.ndarray:
    """Half of the prompts on one side of the sphere, the others anywhere."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(rows, dim))
    vectors[:PRELOAD] = 0.6 * vectors[:PRELOAD] + 1
    vectors[PRELOAD::2] = 0.6 * vectors[PRELOAD::2] + 1
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def served(vectors: np.ndarray, predictor: MatchPredictor, admission: object = None) -> Engine:
    """Preload ``PRELOAD`` prompts and serve the rest with one GPU per request."""
    frontend = CachedFrontEnd(
        ArtifactCache(None, TextToText(), Fifo()),
        Thresholds({25: 0.9}),
        admission or Nothing(),  # type: ignore[arg-type]
        search_s=SEARCH_S,
        match_predictor=predictor,
    )
    rows = len(vectors) - PRELOAD
    run = engine(
        np.arange(rows), [FULL_S] * len(vectors), rows, frontend=frontend, embeddings=lambda: vectors, preload=PRELOAD
    )
    run.run()
    return run


def counted(run: Engine) -> dict[str, int]:
    codes = {"hits": HIT, "in_vain": MISS, "spared": PREDICTED_MISS, "forgone": FORGONE_MATCH}
    return {name: int(np.count_nonzero(run.record.request_columns["lookup"] == code)) for name, code in codes.items()}


def check_proportions(without: Engine, run: Engine) -> None:
    """NIRVANA, 5.2: recall is the share of the hits that is kept, 1 - precision the share of vain searches."""
    before, after = counted(without), counted(run)
    predictor = MeasuredWindow(run, run.record, 0).cache()["predictor"]
    searches = after["hits"] + after["in_vain"]
    assert after["hits"] + after["forgone"] == before["hits"]
    assert after["in_vain"] + after["spared"] == before["in_vain"]
    if before["hits"]:
        assert after["hits"] == pytest.approx(predictor["recall"] * before["hits"])
    if searches:
        assert after["in_vain"] == pytest.approx((1 - predictor["precision"]) * searches)
    assert predictor["predicted_misses"] == after["spared"] + after["forgone"]
    assert predictor["wasted_searches"] == after["in_vain"]
    assert predictor["wasted_search_s"] == pytest.approx(SEARCH_S * after["in_vain"])
    took_s = np.array(run.record.request_columns["finish_s"]) - np.arange(run.rows)
    plan = {HIT: SEARCH_S + FULL_S / 2, MISS: SEARCH_S + FULL_S, PREDICTED_MISS: FULL_S, FORGONE_MATCH: FULL_S}
    np.testing.assert_allclose(took_s, [plan[code] for code in run.record.request_columns["lookup"]], atol=1e-9)


@settings(max_examples=30)
@given(seed=st.integers(0, 1000), chances=st.integers(0, 2**40 - 1))
def test_hits_and_wasted_searches_fall_with_recall_and_precision(seed: int, chances: int) -> None:
    """Holds for any predictor over a cache that does not change."""
    vectors = prompts(seed, PRELOAD + 40)
    expected = [False] * PRELOAD + [bool(chances >> bit & 1) for bit in range(40)]
    check_proportions(served(vectors, Always()), served(vectors, Drawn(expected)))


@pytest.mark.parametrize("landmarks", [None, 50])
def test_one_class_svm_saves_wasted_searches_and_costs_hits(landmarks: int | None) -> None:
    vectors = prompts(5, PRELOAD + 600)
    without = served(vectors, Always())
    run = served(vectors, OneClassSvm(nu=0.1, per_10k_s=0.0, landmarks=landmarks))
    check_proportions(without, run)
    predictor = MeasuredWindow(run, run.record, 0).cache()["predictor"]
    assert 0 < counted(run)["in_vain"] < 0.5 * counted(without)["in_vain"]
    assert 0 < counted(run)["forgone"] < 0.5 * counted(without)["hits"]
    assert predictor["precision"] > counted(without)["hits"] / 600
    silent = MeasuredWindow(without, without.record, 0).cache()["predictor"]
    assert silent["wasted_searches"] == counted(without)["in_vain"]
    assert {silent[key] for key in ("precision", "recall", "predicted_misses", "retrainings", "retrain_s")} == {None}


def test_one_class_svm_decides_as_scikit_learn() -> None:
    vectors = prompts(2, PRELOAD + 200)
    run = served(vectors, OneClassSvm(nu=0.3, per_10k_s=0.0))
    svm = SGDOneClassSVM(nu=0.3, random_state=int(run.rng("predictor").integers(2**31))).fit(vectors[:PRELOAD])
    outlier = np.isin(run.record.request_columns["lookup"], (PREDICTED_MISS, FORGONE_MATCH))
    np.testing.assert_array_equal(outlier, svm.predict(vectors[PRELOAD:]) < 0)
    assert 0 < outlier.sum() < 200


class Everything(Nothing):
    def admits(self, request: Request) -> bool:
        return True


@settings(max_examples=20)
@given(share=st.sampled_from([0.0, 0.05, 0.3]), per_10k_s=st.sampled_from([0.0, 40.0]), rows=st.integers(1, 60))
def test_predictor_retrains_after_a_share_of_the_embeddings_changed(share: float, per_10k_s: float, rows: int) -> None:
    """One image a second enters the database; a training under way is not started again."""
    run = served(
        prompts(1, PRELOAD + rows), OneClassSvm(nu=0.5, retrain_share=share, per_10k_s=per_10k_s), Everything()
    )
    expected, trained_on, held, changed, ready_s = [(0.0, PRELOAD)], PRELOAD, PRELOAD, 0, PRELOAD * per_10k_s / 10_000
    for finish_s in sorted(run.record.request_columns["finish_s"]):
        held, changed = held + 1, changed + 1
        if finish_s >= ready_s and changed > share * trained_on:
            expected.append((finish_s, held))
            trained_on, changed, ready_s = held, 0, finish_s + held * per_10k_s / 10_000
    assert list(run.record.logs[TRAININGS].at_s) == [at_s for at_s, _ in expected]
    assert list(run.record.logs[TRAININGS].seconds) == pytest.approx(
        [count * per_10k_s / 10_000 for _, count in expected]
    )


def test_trained_model_applies_only_after_its_training_time() -> None:
    """The preloaded embeddings take 20 s to train on: until then every prompt is searched for."""
    run = served(prompts(3, PRELOAD + 60), OneClassSvm(nu=0.3, per_10k_s=20 * 10_000 / PRELOAD))
    predicted = np.isin(run.record.request_columns["lookup"], (PREDICTED_MISS, FORGONE_MATCH))
    assert not predicted[:20].any()
    assert predicted[20:].any()


def test_match_predictor_forgets_deleted_embeddings() -> None:
    """Two opposite clusters of prompts; once the first is deleted, its prompts are outliers."""
    rng = np.random.default_rng(0)
    crowd = rng.normal(0, 0.1, (400, 4)) + np.where(np.arange(400) < 200, 1, -1)[:, None]
    vectors = (crowd / np.linalg.norm(crowd, axis=1, keepdims=True)).astype(np.float32)
    run = engine(np.arange(400), [1.0] * 400, embeddings=lambda: vectors)
    similarity = TextToText()
    similarity.bind(vectors, rng)
    svm = OneClassSvm(nu=0.05, per_10k_s=0.0)
    svm.bind(run, similarity)
    svm.applied([(0.0, None, row, row, True) for row in range(400)], 0.0)
    svm.applied([(1.0, None, row, row, False) for row in range(200)], 1.0)
    assert np.mean([svm.expects(row, 2.0) for row in range(400)][:200]) < 0.1
    svm.applied([], 3.0)
    assert list(run.record.logs[TRAININGS].at_s) == [0.0, 1.0]


def test_nirvana_runs_with_and_without_a_match_predictor() -> None:
    common = ("trace.requests=400", "preload=150", "arrivals.rate_rpm=10", "cluster=a10g", "cluster.count=4")
    chosen = ("system=nirvana",), ("system=nirvana", "match_predictor=kernel-svm"), ("system=nirvana-no-predictor",)
    paper, kernel, without = (simulated(*common, *words) for words in chosen)
    caches = [run.summary["cache"] for run in (paper, kernel, without)]
    assert [cache["lookups"] for cache in caches] == [250] * 3
    assert caches[0]["predictor"]["retrainings"] > 0
    assert caches[1]["predictor"]["wasted_search_s"] < caches[2]["predictor"]["wasted_search_s"]
    assert caches[1]["hits"] < caches[2]["hits"]
    assert caches[2]["predictor"]["precision"] is None
    rows = kernel.requests.to_pandas()
    predicted = rows.lookup.isin(["predicted miss", "forgone match"])
    assert predicted.sum() == caches[1]["predictor"]["predicted_misses"] > 0
    assert (rows.search_s[predicted] == 0).all()
    assert (rows.skipped[predicted] == 0).all()


@pytest.mark.parametrize("override", ["nu=0", "nu=1.5", "retrain_share=-1", "sample=0", "landmarks=0", "gamma=0"])
def test_invalid_match_predictor_setting_is_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=rf"predictor\.{override.split('=')[0]}: found"):
        simulated("system=nirvana", "trace.requests=20", f"match_predictor.{override}")


@settings(max_examples=60)
@given(
    data=st.lists(st.tuples(st.integers(-5, 5), st.sampled_from([0, 0, 1, 8, 32])), min_size=2, max_size=40),
    search_s=st.sampled_from([0.5, 1.0, 16.0]),
)
def test_cheapest_threshold_minimizes_the_search_cost(data: list[tuple[int, int]], search_s: float) -> None:
    scores, forgone = np.array([float(one) for one, _ in data]), np.array([two / search_s for _, two in data])

    def cost(line: float) -> float:
        searched = scores > line
        return float((searched & (forgone == 0)).sum() + forgone[~searched].sum())

    assert cost(cheapest_threshold(scores, forgone)) == min(cost(line) for line in scores - 0.5)


def test_threshold_is_chosen_on_preloaded_prompts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal preloaded prompts give equal thresholds, whatever prompts follow."""
    vectors = prompts(5, PRELOAD + 400)
    vectors[: PRELOAD // 2] = vectors[PRELOAD : PRELOAD + PRELOAD // 2]  # half on one side, half anywhere
    other = np.concatenate([vectors[:PRELOAD], prompts(9, PRELOAD + 400)[PRELOAD:]])
    chosen: list[int] = []

    def watched(scores: np.ndarray, forgone: np.ndarray) -> float:
        threshold = cheapest_threshold(scores, forgone)
        chosen.append(int((scores > threshold).sum()))
        return threshold

    monkeypatch.setattr("mezzotint.sim.frontend.match_predictor.cheapest_threshold", watched)
    for rows in (vectors, other):
        predictor = OneClassSvm(
            nu=0.1, per_10k_s=0.0, threshold=None, search_s=FULL_S / 2 / 0.3, selector=Thresholds({25: 0.9})
        )
        run = served(rows, predictor)
        check_proportions(served(rows, Always()), run)
    first, second = chosen
    assert first == second
    assert 0 < first < PRELOAD // 5
