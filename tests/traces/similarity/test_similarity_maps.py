"""Similarity maps: increasing, inverse to their own inverses, and composed with sources of similarity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.traces.error import TraceError
from mezzotint.traces.similarity.similarities import SimilaritySource, TextToImage, TextToText
from mezzotint.traces.similarity.similarity_map import Fitted, Identity, PiecewiseLinear

CUBES = st.integers(-1000, 1000).map(lambda n: n / 1000)
KNOTS = PiecewiseLinear(at={0.5: 0.65, 0.8: 0.75, 0.9: 0.85, 0.97: 0.95, 1.0: 1.0}, source="made up")


@st.composite
def knots(draw: st.DrawFn) -> PiecewiseLinear:
    own = sorted(draw(st.sets(CUBES, min_size=2, max_size=6)))
    clip = sorted(draw(st.sets(CUBES, min_size=len(own), max_size=len(own))))
    return PiecewiseLinear(at=dict(zip(own, clip, strict=True)), source="any")


@given(similarity_map=knots(), one=CUBES, other=CUBES)
def test_similarity_map_is_increasing_and_invertible(similarity_map: PiecewiseLinear, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert similarity_map.to_clip(low) <= similarity_map.to_clip(high)
    assert (similarity_map.to_clip(low) < similarity_map.to_clip(high)) or high - low < 1e-6
    assert similarity_map.from_clip(similarity_map.to_clip(one)) == pytest.approx(one, abs=1e-6)
    for own, clip in similarity_map.at.items():
        assert similarity_map.to_clip(own) == clip
        assert similarity_map.from_clip(clip) == own


def test_similarity_map_extends_its_end_segments() -> None:
    similarity_map = PiecewiseLinear(at={0.5: 0.6, 0.7: 0.7, 0.8: 0.9}, source="any")
    assert similarity_map.to_clip(0.3) == pytest.approx(0.5)
    assert similarity_map.to_clip(0.9) == pytest.approx(1.1)
    assert similarity_map.from_clip(float("-inf")) == float("-inf")


@pytest.mark.parametrize("at", [{0.5: 0.6}, {0.5: 0.6, 0.7: 0.6}, {0.5: 0.6, 0.7: 0.5}, {0.5: 0.6, 0.7: float("nan")}])
def test_non_increasing_similarity_map_is_refused(at: dict[float, float]) -> None:
    with pytest.raises(TraceError, match=r"similarity_map\.at: found .* rising"):
        PiecewiseLinear(at=at, source="any")


def test_similarity_map_states_its_fit() -> None:
    similarity_map = PiecewiseLinear(at={0.5: 0.65, 1.0: 1.0}, source="by eye", fitted=[Fitted("N04a", 0.88, 0.85)])
    points, residuals = similarity_map.assumptions()
    assert points.value == {"0.5": 0.65, "1": 1.0}
    assert points.source == "by eye"
    assert residuals.value == {"N04a": -0.03}
    assert Identity().assumptions()[0].what == "scale of similarity"


@pytest.mark.parametrize("source", [TextToText(), TextToImage(clip_score=0.3, spread=0.0, unrelated=0.1)])
def test_similarity_source_maps_products_to_the_scale_of_its_thresholds(source: SimilaritySource) -> None:
    vectors = np.array([[1, 0], [0.6, 0.8]], np.float32)
    source.bind(vectors, np.random.default_rng(0), KNOTS)
    product = float(source.artifacts(np.array([1]))[0] @ source.queries(0, 1)[0])
    assert product == pytest.approx(0.6)
    on_clip = 0.65 + 0.1 / 3
    expected = on_clip if isinstance(source, TextToText) else 0.1 + 0.2 * on_clip
    assert source.similar(product) == pytest.approx(expected)
    assert source.product(source.similar(product)) == pytest.approx(product)
