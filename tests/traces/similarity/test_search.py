"""Search against brute force: the most similar live artifact, and the oldest in a tie."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity import cached, neighbours
from mezzotint.traces.similarity.bound import SLACK, cheapest
from mezzotint.traces.similarity.cached import CachedIndex, CachedSearch
from mezzotint.traces.similarity.exact import Exact, ExactIndex
from mezzotint.traces.similarity.search import Index
from mezzotint.traces.similarity.similarities import SimilaritySource, TextToImage, TextToText, similarity


def unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(norms == 0, 1, norms)).astype(np.float32)


def brute(source: SimilaritySource, live: dict[int, int], row: int, floor: float) -> tuple[int, float] | None:
    """Compare with every artifact; return the most similar, the oldest in a tie, unless it lies below the floor."""
    if not live:
        return None
    query = np.repeat(source.queries(row, row + 1), len(live), axis=0)
    scores = similarity(query, source.artifacts(np.array(list(live.values()))))
    best = max(zip(scores, (-entry for entry in live), strict=True))
    return None if best[0] < floor else (-best[1], float(best[0]))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("head", [1, 3, 12])
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 120),
    dim=st.integers(1, 6),
    block=st.integers(1, 40),
    max_neighbours=st.integers(1, 40),
    floor=st.sampled_from([-np.inf, -0.5, 0.0, 0.2, 0.5, 0.65, 1.0]),
    image=st.booleans(),
    actions=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4)), min_size=120, max_size=120),
)
def test_every_search_matches_brute_force(
    seed: int,
    rows: int,
    dim: int,
    block: int,
    max_neighbours: int,
    floor: float,
    image: bool,
    actions: list[tuple[float, int]],
    head: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Direct and precomputed search agree through inserts and removals, equal vectors and skipped queries."""
    monkeypatch.setattr(neighbours, "HEAD", head)
    rng = np.random.default_rng(seed)
    source: SimilaritySource = TextToImage(0.9, 0.0, 0.1) if image else TextToText()
    source.bind(unit(rng.integers(-2, 3, (rows, dim)).astype(float)), rng)
    indexes: list[Index] = [
        search.open(source, rows, floor, None)()
        for search in (Exact(block), CachedSearch(max_neighbours=max_neighbours), CachedSearch(max_rows=0))
    ]
    live, entry = dict[int, int](), 0
    for row, (chance, leave) in zip(range(rows), actions, strict=False):
        if chance < 0.9:
            expected = brute(source, live, row, floor)
            assert [index.best(row) for index in indexes] == [expected] * len(indexes)
        if chance > 0.2:
            for index in indexes:
                index.add(entry, row)
            live[entry] = row
            entry += 1
        for gone in list(live)[:: max(1, leave)][: leave if chance < 0.5 else 0]:
            for index in indexes:
                index.remove(gone)
            del live[gone]
        assert [len(index) for index in indexes] == [len(live)] * len(indexes)


def test_lower_floor_uses_more_axes_and_the_bound_is_never_below_the_product() -> None:
    """With few axes and a low floor every pair passes; then fetching pairs costs more than multiplying."""
    rng = np.random.default_rng(0)
    source = TextToText()
    source.bind(unit(rng.normal(size=(1000, 64)) * np.linspace(1.0, 0.05, 64)), rng)
    rows = source.queries(0, 1000)
    axes = []
    for floor in (0.95, 0.6, 0.3):
        bound = cheapest(source, 1000, floor)
        axes.append(bound.axes.shape[1])
        assert (bound.short(rows) @ bound.short(rows).T >= rows @ rows.T - SLACK).all()
    assert axes == sorted(axes)
    assert axes[0] < axes[-1]
    assert cheapest(source, 1000, -1.0, nearest=True).axes.shape[1] < cheapest(source, 1000, 0.3).axes.shape[1]


def test_cached_search_falls_back_only_if_its_cut_list_holds_no_live_row() -> None:
    source = TextToText()
    source.bind(unit(np.array([[1, 0], [1, 0.01], [1, 0.02], [0, 1], [1, 0.03]])), np.random.default_rng(0))
    index = CachedSearch(max_neighbours=1).open(source, 5, 0.5, None)()
    assert isinstance(index, CachedIndex)
    for row in range(3):
        index.add(row, row)
    assert index.best(3) is None
    assert index.fallbacks == 0
    assert index.best(4) == (2, 0.99995)
    assert index.fallbacks == 1, "its one neighbour may have an equal that is older"
    index.remove(2)
    assert index.best(4) == (1, 0.9998)


@pytest.mark.invariant(12)
def test_neighbours_are_computed_once_and_an_interrupted_search_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path))
    monkeypatch.setattr(neighbours, "QUERIES", 100)
    source = TextToText()
    vectors = unit(np.random.default_rng(0).normal(size=(300, 4)))
    source.bind(vectors, np.random.default_rng(0))
    whole = neighbours.cached_neighbours(source, 300, 0.5, 8, None)
    asked: list[int] = []

    class Watched(TextToText):
        def queries(self, start: int, stop: int) -> np.ndarray:
            if stop - start == 100:
                if asked == [0, 100]:
                    asked.append(-1)
                    raise KeyboardInterrupt
                asked.append(start)
            return super().queries(start, stop)

    watched = Watched()
    watched.bind(vectors, np.random.default_rng(0))
    with pytest.raises(KeyboardInterrupt):
        neighbours.cached_neighbours(watched, 300, 0.5, 8, "trace encoder")
    for _ in range(2):
        found = neighbours.cached_neighbours(watched, 300, 0.5, 8, "trace encoder")
        for name in neighbours.FILES:
            np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
        assert asked == [0, 100, -1, 200]
    neighbours.cached_neighbours(watched, 300, 0.6, 8, "trace encoder")
    assert asked[4:] == [0, 100, 200]


def test_first_runs_of_a_long_trace_search_exactly_until_known_neighbours_pay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEZZOTINT_CACHE", str(tmp_path))
    monkeypatch.setattr(cached, "FEW_ROWS", 99)
    source = TextToText()
    source.bind(unit(np.random.default_rng(0).integers(-1, 2, (100, 4)) + 0.0), np.random.default_rng(0))

    def run(rows: int, content: str | None = "trace encoder", **settings: int) -> tuple[type[Index], list[object]]:
        index, found = CachedSearch(**settings).open(source, rows, 0.5, content)(), list[object]()
        for row in range(rows):
            found.append(index.best(row))
            index.add(row, row)
        return type(index), found

    kinds, found = zip(*(run(100) for _ in range(4)), strict=True)
    assert kinds == (ExactIndex, CachedIndex, CachedIndex, CachedIndex)
    assert found[0] == found[1] == found[2] == found[3]
    for at_once in (run(99), run(100, None), run(100, "another trace", exact_runs=0), run(100, exact_runs=9)):
        assert at_once[0] is CachedIndex
    for kept in tmp_path.glob("neighbours/*/"):
        shutil.rmtree(kept)
    assert run(100)[0] is CachedIndex, "it was evicted, and still pays"


def test_image_similarity_has_the_given_clip_score_and_spread() -> None:
    source = TextToImage(clip_score=0.3, spread=0.02, unrelated=0.1)
    source.bind(np.eye(2000, 64, dtype=np.float32)[np.arange(2000) % 64], np.random.default_rng(0))
    products = [float(source.artifacts(np.array([row]))[0] @ source.queries(row, row + 1)[0]) for row in range(2000)]
    own = np.array([source.similar(product) for product in products])
    assert own.mean() == pytest.approx(0.3, abs=0.002)
    assert own.std() == pytest.approx(0.02, rel=0.1)
    assert source.similar(float(source.artifacts(np.array([0]))[0] @ source.queries(1, 2)[0])) == pytest.approx(0.1)
    assert [assumption.what for assumption in source.assumptions()] == [
        "text-to-image similarity",
        "scale of similarity",
    ]


def test_double_precision_embeddings_are_refused() -> None:
    """A stray float64 array makes a search fifteen times slower without any other sign."""
    source = TextToText()
    source.bind(np.eye(3), np.random.default_rng(0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="found float64, expected float32"):
        Exact().open(source, 3, 0.5, None)


@pytest.mark.parametrize("given_", [(0.1, 0.02, 0.2), (1.2, 0.02, 0.1), (0.3, -1.0, 0.1), (float("nan"), 0.1, 0.1)])
def test_invalid_text_to_image_setting_is_refused(given_: tuple[float, float, float]) -> None:
    with pytest.raises(TraceError, match="expected 0 <= unrelated < clip_score"):
        TextToImage(*given_)


@pytest.mark.parametrize("uncoded", [4096, 100])
def test_approximate_search_has_recall_99_and_exact_similarities(uncoded: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sliding window of prompts in themes: recall at 1 is 0.99, and every match has its reported similarity. The
    recall holds too when more artifacts than the limit wait for their codes before a block of queries ends."""
    pytest.importorskip("faiss")
    from mezzotint.traces.similarity import approximate
    from mezzotint.traces.similarity.approximate import Approximate

    monkeypatch.setattr(approximate, "UNCODED", uncoded)

    rng = np.random.default_rng(0)
    themes = rng.normal(size=(200, 64))
    vectors = unit(themes[rng.integers(0, 200, 6000)] + 0.4 * rng.normal(size=(6000, 64)))
    source = TextToText()
    source.bind(vectors, rng)
    exact, near = (search.open(source, 6000, 0.65, None)() for search in (Exact(), Approximate(axes=33)))
    same = asked = 0
    for row in range(6000):
        expected, found = exact.best(row), near.best(row)
        asked += expected is not None
        same += expected is not None and found == expected
        if found is not None:
            assert expected is not None
            assert 0.65 <= found[1] <= expected[1]
            assert found[1] == similarity(vectors[row : row + 1], vectors[found[0] : found[0] + 1])[0]
        for index in (exact, near):
            index.add(row, row)
            if row >= 2000:
                index.remove(row - 2000)
        assert len(exact) == len(near) == min(row + 1, 2000)
    assert asked > 3000
    assert same / asked >= 0.99


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize("floor", [-0.3, 0.2, 0.9])
def test_neighbours_match_a_comparison_of_all_pairs(floor: float, image: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of any length, with repeated prompts."""
    monkeypatch.setattr(neighbours, "QUERIES", 13)
    monkeypatch.setattr(neighbours, "ARTIFACTS", 29)
    monkeypatch.setattr(neighbours, "PAIRS", 5)
    rng = np.random.default_rng(4)
    vectors = rng.standard_normal((40, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors[rng.integers(0, 40, 150)]
    source = TextToImage(clip_score=0.28, spread=0.03, unrelated=0.1) if image else TextToText()
    source.bind(vectors, np.random.default_rng(0))
    found = neighbours.cached_neighbours(source, len(vectors), floor, 20, None)
    for row in range(len(vectors)):
        earlier = np.arange(row)
        scores = similarity(np.repeat(source.queries(row, row + 1), row, 0), source.artifacts(earlier))
        order = np.lexsort((earlier, -scores))
        order = order[scores[order] >= floor]
        units = np.rint(scores[order] * 10**6).astype(int)
        expected = (order[:20].tolist(), units[:20].tolist(), len(order) <= 20)
        assert found.first(row, 20) == expected


def test_exact_search_breaks_ties_by_age() -> None:
    source = TextToText()
    source.bind(unit(np.ones((5, 3))), np.random.default_rng(0))
    index = Exact().open(source, 5, 0.5, None)()
    for entry in range(3):
        index.add(entry, entry)
    assert index.best(3) == (0, 1.0)
    index.remove(0)
    assert index.best(4) == (1, 1.0)


def test_lists_are_read_as_far_as_needed_and_ties_across_the_parts_read_go_to_the_oldest() -> None:
    rng = np.random.default_rng(5)
    rows = 1200
    known = neighbours.Neighbours(  # of the last row alone: similarities in runs of about 60 equal ones
        np.repeat([0, rows - 1], [rows - 1, 1]),
        rng.permutation(rows - 1).astype(np.int32),
        np.sort(rng.integers(0, 20, rows - 1))[::-1].astype(np.int32),
        np.ones(rows, np.bool_),
    )
    for kept in (0, 1, 3, 30, 300, 1199):
        for _ in range(20):
            index = CachedIndex(known, lambda: pytest.fail("the list is complete"))
            entry_of = {int(row): entry for entry, row in enumerate(rng.permutation(rows - 1)[:kept])}
            for row, entry in entry_of.items():
                index.add(entry, row)
            found = [
                (-int(unit), entry_of[int(row)])
                for row, unit in zip(known.rows, known.units, strict=True)
                if row in entry_of
            ]
            best = min(found, default=None)
            assert index.best(rows - 1) == (None if best is None else (best[1], -best[0] / neighbours.UNIT))
