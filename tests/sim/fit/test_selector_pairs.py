"""Pairs cover the range of similarities, are distinct, and depend on the seed alone."""

from __future__ import annotations

import numpy as np
import pytest

from mezzotint.sim.fit.selector.pairs import choose
from mezzotint.traces.encoders.embeddings import embed
from mezzotint.traces.encoders.ngram import HashedNgrams
from mezzotint.traces.error import TraceError
from mezzotint.traces.sources.synthetic import Synthetic
from mezzotint.traces.table.trace import Trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return Synthetic(requests=2600).load(np.random.default_rng(4))


def vectors(trace: Trace) -> np.ndarray:
    return np.asarray(embed(trace, HashedNgrams()))


def test_each_query_appears_once_with_an_earlier_prompt(trace: Trace) -> None:
    rows, prompts = vectors(trace), trace.prompts().to_pylist()
    pairs = choose(trace, rows, 200, 1)
    assert len({pair.query for pair in pairs}) == 200
    for pair in pairs:
        assert pair.cached < pair.query
        assert (prompts[pair.query], prompts[pair.cached]) == (pair.query_prompt, pair.cached_prompt)
        assert pair.similarity == pytest.approx(float(rows[pair.query] @ rows[pair.cached]), abs=2e-6)


def test_pair_similarities_are_spread_evenly(trace: Trace) -> None:
    """Uniform draws would put nearly all pairs into one tenth of the range."""
    pairs = choose(trace, vectors(trace), 100, 1)
    counts, _ = np.histogram([pair.similarity for pair in pairs], bins=10, range=(0, 1))
    held = counts[counts > 0]
    assert len(held) >= 8
    assert held.max() <= 2 * held.min()


def test_more_pairs_extend_the_fewer_ones(trace: Trace) -> None:
    """A larger calibration measures only the new pairs."""
    rows = vectors(trace)
    assert choose(trace, rows, 1200, 5)[:50] == choose(trace, rows, 50, 5)
    assert choose(trace, rows, 50, 5) != choose(trace, rows, 50, 6)


def test_trace_with_too_few_prompts_is_refused() -> None:
    few = Synthetic(requests=5).load(np.random.default_rng(1))
    assert len(choose(few, vectors(few), 4, 0)) == 4
    with pytest.raises(TraceError, match=r"5 prompts make 4 pairs, expected 5.*--pairs"):
        choose(few, vectors(few), 5, 0)
