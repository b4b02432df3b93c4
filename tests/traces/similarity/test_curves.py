"""A FIFO cache of any size against one pass over the neighbours of every row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.cache.admission import All
from mezzotint.sim.cache.cache import ArtifactCache
from mezzotint.sim.cache.eviction import Fifo
from mezzotint.sim.cache.selector import Thresholds
from mezzotint.sim.frontend.cached import CachedFrontEnd
from mezzotint.traces.similarity.neighbours import UNIT, Neighbours, cached_neighbours
from mezzotint.traces.similarity.similarities import TextToText
from tests.sim.lab import engine

TABLE = {5: 0.65, 10: 0.75, 25: 0.95}


def reached(neighbours: Neighbours, size: int, threshold: float, strict: bool) -> float:
    """Return the share of rows with an artifact at or above ``threshold`` among the ``size`` rows before them. Without
    service time, a FIFO cache that admits all holds the artifacts of the last ``size`` requests."""
    assert neighbours.complete.all()
    rows = len(neighbours.ends)
    asking = np.repeat(np.arange(rows), np.diff(neighbours.ends, prepend=0))
    similar = neighbours.units > threshold * UNIT if strict else neighbours.units >= round(threshold * UNIT)
    return len(set(asking[similar & (asking - neighbours.rows <= size)])) / rows


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 120), strict=st.booleans())
def test_fifo_hits_are_the_matches_among_the_last_rows(seed: int, rows: int, strict: bool) -> None:
    rng = np.random.default_rng(seed)
    raw = rng.integers(-2, 3, (rows, 4)) + 0.01
    vectors = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
    source = TextToText()
    source.bind(vectors, rng)
    neighbours = cached_neighbours(source, rows, 0.65, rows, None)
    for size in (1, 2, 3, 7, 20, 119):
        frontend = CachedFrontEnd(
            ArtifactCache(size, TextToText(), Fifo()), Thresholds(dict(TABLE), strict=strict), All()
        )
        run = engine(np.arange(rows), np.zeros(rows), frontend=frontend, embeddings=lambda: vectors)
        run.run()
        skipped = np.array(run.record.request_columns["skipped"])
        for k, threshold in TABLE.items():
            assert (skipped >= k).mean() == pytest.approx(reached(neighbours, size, threshold, strict))
