"""All sizes at once against one simulation for each size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.reuse.admission import All
from sim.reuse.cache import Cache
from sim.reuse.door import Reuse
from sim.reuse.eviction import Fifo
from sim.reuse.selector import Thresholds
from tests.sim.lab import engine
from traces.error import TraceError
from traces.similarity.curves import fifo
from traces.similarity.neighbours import find
from traces.similarity.spaces import TextToText

TABLE = {5: 0.65, 10: 0.75, 25: 0.95}


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), rows=st.integers(1, 120), strict=st.booleans())
def test_the_curve_is_what_a_simulation_of_each_size_gives(seed: int, rows: int, strict: bool) -> None:
    rng = np.random.default_rng(seed)
    raw = rng.integers(-2, 3, (rows, 4)) + 0.01
    vectors = (raw / np.linalg.norm(raw, axis=1, keepdims=True)).astype(np.float32)
    space = TextToText()
    space.bind(vectors, rng)
    curve = fifo(find(space, rows, 0.65, rows), TABLE, strict=strict)
    sizes = [1, 2, 3, 7, 20, 119]
    for at, size in enumerate(sizes):
        door = Reuse(Cache(size, TextToText(), Fifo()), Thresholds(dict(TABLE), strict=strict), All())
        run = engine(np.arange(rows), np.zeros(rows), door=door, embeddings=lambda: vectors)
        run.run()
        skipped = np.array(run.record.facts["skipped"])
        assert curve.hit_rate(sizes)[at] == pytest.approx((skipped > 0).mean())
        for k, share in curve.share_by_k(sizes).items():
            assert share[at] == pytest.approx((skipped == k).mean())
        assert curve.saving(sizes)[at] == pytest.approx(skipped.sum() / 50 / rows)


def test_lists_that_were_cut_are_refused() -> None:
    space = TextToText()
    space.bind(np.ones((9, 1), np.float32), np.random.default_rng(0))
    with pytest.raises(TraceError, match="6 rows have more neighbours than were kept"):
        fifo(find(space, 9, 0.5, 2), TABLE)
    with pytest.raises(TraceError, match="no K"):
        fifo(find(space, 9, 0.5, 9), {})
