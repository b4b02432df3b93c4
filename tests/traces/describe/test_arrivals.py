"""Statistics of arrivals."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.traces.describe.arrivals import arrival_statistics
from mezzotint.traces.table.validation import LONGEST_S


@given(st.lists(st.floats(0, 20_000), min_size=25, max_size=60).map(sorted))
def test_dispersion_is_variance_over_mean_of_the_counts(arrivals: list[float]) -> None:
    since = np.array(arrivals) - arrivals[0]
    for window_s, value in arrival_statistics(np.array(arrivals)).dispersion.items():
        whole = int(since[-1] // window_s)
        counts = np.bincount((since[since < whole * window_s] // window_s).astype(int), minlength=whole)
        assert value == pytest.approx(counts.var(ddof=1) / counts.mean())


def test_longest_trace_is_described_in_little_memory() -> None:
    tracemalloc.start()
    arrival_statistics(np.linspace(0.0, LONGEST_S, 100))
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
