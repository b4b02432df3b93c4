"""cluster.parquet against Little's law: how accurate a mean over its rows is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.engine import Engine
from mezzotint.sim.metrics.time_series import series
from tests.sim.lab import engine

TWO_BURSTS = np.concatenate([np.arange(50) * 2.03, 1e6 + np.arange(50) * 2.03])
"""Two bursts out of step with the samples, with a pause between them that is nearly all of the run."""


def means(run: Engine) -> tuple[float, float, float]:
    """Return the number in the system averaged over the rows, then weighted by their duration, then by Little's law."""
    run.run()
    rows = series(run.record).to_pandas()
    arrival_s, finish_s = run.record.request_columns["arrival_s"], run.record.request_columns["finish_s"]
    span_s = finish_s.max() - arrival_s[0]
    assert (rows.seconds >= 0).all()
    assert rows.seconds.sum() == pytest.approx(span_s, rel=1e-9)
    weighted = float((rows.in_system * rows.seconds).sum() / span_s)
    return float(rows.in_system.mean()), weighted, float((finish_s - arrival_s).sum() / span_s)


@pytest.mark.invariant(4)
@given(
    gaps=st.lists(st.one_of(st.floats(0, 5), st.floats(0, 5000)), min_size=1, max_size=60),
    services=st.lists(st.floats(0.01, 9), min_size=60, max_size=60),
    servers=st.integers(1, 5),
    sample_s=st.floats(0.1, 100),
)
@settings(max_examples=40)
def test_time_weighted_mean_matches_littles_law_within_one_sample(
    gaps: list[float], services: list[float], servers: int, sample_s: float
) -> None:
    """L = (sum of stays) / span. A sample sees an arrival up to one period late, which adds at most that to the error,
    and an end likewise takes at most that away: |mean - L| <= sample_s x n / span."""
    run = engine(np.cumsum(gaps), services[: len(gaps)], servers, sample_s=sample_s)
    _, weighted, little = means(run)
    columns = run.record.request_columns
    span_s = columns["finish_s"].max() - columns["arrival_s"][0]
    assert abs(weighted - little) <= sample_s * len(gaps) / span_s * (1 + 1e-6) + 1e-9


def test_pause_is_one_row_weighted_by_its_duration() -> None:
    plain, weighted, little = means(engine(TWO_BURSTS, [1.0] * 100, sample_s=0.25))
    assert little == pytest.approx(1e-4, rel=0.01)
    assert weighted == pytest.approx(little, rel=0.05)
    assert plain > 1000 * little  # by the rows alone
