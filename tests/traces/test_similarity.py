"""Search against brute force: the best live artifact, ties to the oldest."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traces.error import TraceError
from traces.similarity import DECIMALS, ExactIndex, Space, TextToImage, TextToText


def unit(rows: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(norms == 0, 1, norms)).astype(np.float32)


def brute(space: Space, live: dict[int, int], row: int) -> tuple[int, float] | None:
    if not live:
        return None
    query = space.queries(row, row + 1)[0].astype(np.float64)
    scored = [(round(float(space.artifact(r).astype(np.float64) @ query), DECIMALS), -e) for e, r in live.items()]
    similarity, entry = max(scored)
    return -entry, similarity


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 120),
    dim=st.integers(1, 6),
    block=st.integers(1, 40),
    image=st.booleans(),
    actions=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4)), min_size=120, max_size=120),
)
def test_the_index_finds_what_brute_force_finds(
    seed: int, rows: int, dim: int, block: int, image: bool, actions: list[tuple[float, int]]
) -> None:
    """Whatever enters and leaves, in whatever order, with many equal vectors and skipped queries."""
    rng = np.random.default_rng(seed)
    space: Space = TextToImage(0.3, 0.0, 0.1) if image else TextToText()
    space.bind(unit(rng.integers(-2, 3, (rows, dim)).astype(float)), rng)
    index, live, entry = ExactIndex(space, rows, block), dict[int, int](), 0
    for row, (chance, leave) in zip(range(rows), actions, strict=False):
        if chance < 0.9:
            assert index.best(row) == brute(space, live, row)
        if chance > 0.2:
            index.add(entry, row)
            live[entry] = row
            entry += 1
        for gone in list(live)[:: max(1, leave)][: leave if chance < 0.5 else 0]:
            index.remove(gone)
            del live[gone]
        assert len(index) == len(live)


def test_among_equals_the_oldest_is_found() -> None:
    space = TextToText()
    space.bind(unit(np.ones((5, 3))), np.random.default_rng(0))
    index = ExactIndex(space, 5)
    for entry in range(3):
        index.add(entry, entry)
    assert index.best(3) == (0, 1.0)
    index.remove(0)
    assert index.best(4) == (1, 1.0)


def test_an_image_scores_its_own_clip_score_on_its_own_prompt_and_little_on_others() -> None:
    space = TextToImage(clip_score=0.3, spread=0.02, unrelated=0.1)
    space.bind(np.eye(2000, 64, dtype=np.float32)[np.arange(2000) % 64], np.random.default_rng(0))
    own = np.array([space.artifact(row) @ space.queries(row, row + 1)[0] for row in range(2000)])
    assert own.mean() == pytest.approx(0.3, abs=0.002)
    assert own.std() == pytest.approx(0.02, rel=0.1)
    assert space.artifact(0) @ space.queries(1, 2)[0] == pytest.approx(0.1)
    assert [what for what, _, _ in space.assumptions()] == ["text-to-image similarity"]


def test_double_precision_is_refused() -> None:
    """A stray float64 array makes a search fifteen times slower, and nobody would notice."""
    space = TextToText()
    space.bind(np.eye(3), np.random.default_rng(0))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="float64, expected float32"):
        ExactIndex(space, 3).add(0, 0)


@pytest.mark.parametrize("given_", [(0.1, 0.02, 0.2), (1.2, 0.02, 0.1), (0.3, -1.0, 0.1), (float("nan"), 0.1, 0.1)])
def test_a_space_that_cannot_be_is_refused(given_: tuple[float, float, float]) -> None:
    with pytest.raises(TraceError, match="expected 0 <= unrelated < clip_score"):
        TextToImage(*given_)
