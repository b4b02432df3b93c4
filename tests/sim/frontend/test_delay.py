"""Delays: distributions of seconds, drawn row by row."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.frontend.delay import Constant, Delay, Empirical, LogNormal, RowDelays
from tests.sim.lab import simulated

MANY = 200_000


def drawn(delay: Delay) -> np.ndarray:
    return delay.draw(np.random.default_rng(3), MANY)


@settings(max_examples=10)
@given(median_s=st.floats(1e-3, 10), times=st.floats(1, 8))
def test_log_normal_has_the_given_median_and_p99(median_s: float, times: float) -> None:
    quantiles = np.percentile(drawn(LogNormal(median_s=median_s, p99_s=median_s * times)), [50, 99])
    assert quantiles == pytest.approx([median_s, median_s * times], rel=0.05)


@settings(max_examples=10)
@given(mean_s=st.floats(1e-3, 10), cv=st.floats(0, 1))
def test_log_normal_has_the_given_mean_and_cv(mean_s: float, cv: float) -> None:
    seconds = drawn(LogNormal(mean_s=mean_s, cv=cv))
    assert seconds.mean() == pytest.approx(mean_s, rel=0.02)
    assert seconds.std() / seconds.mean() == pytest.approx(cv, rel=0.05, abs=1e-6)


@settings(max_examples=10)
@given(quantiles_s=st.lists(st.floats(0, 5), min_size=2, max_size=8).map(sorted))
def test_empirical_delay_stays_within_its_quantiles_and_has_their_mean(quantiles_s: list[float]) -> None:
    seconds = drawn(Empirical(quantiles_s))
    assert seconds.min() >= quantiles_s[0]
    assert seconds.max() <= quantiles_s[-1]
    assert seconds.mean() == pytest.approx(np.mean([(low + high) / 2 for low, high in pairwise(quantiles_s)]), abs=0.02)


@given(rows=st.sets(st.integers(0, 5000), min_size=1, max_size=20))
def test_delay_of_a_row_does_not_depend_on_other_rows(rows: set[int]) -> None:
    delay = LogNormal(median_s=0.1, p99_s=0.4)
    some, every = (RowDelays(delay, np.random.default_rng(1)) for _ in range(2))
    wanted = {row: every.for_row(row) for row in range(max(rows) + 1)}
    assert all(some.for_row(row) == wanted[row] for row in sorted(rows))


SPREAD = "frontend.search_s={_target_: mezzotint.sim.frontend.delay.LogNormal, median_s: 0.1, p99_s: 0.4}"


def test_two_systems_draw_the_same_delay_for_each_request() -> None:
    runs = [
        simulated(f"system={name}", "trace.requests=200", SPREAD).requests["search_s"].to_numpy()
        for name in ("nirvana-no-predictor", "pinecone")
    ]
    np.testing.assert_array_equal(*runs)
    assert runs[0].std() > 0.01
    other = simulated("system=pinecone", "trace.requests=200", "seed=2", SPREAD).requests["search_s"].to_numpy()
    assert (other != runs[0]).all()


def test_plain_number_is_a_constant_delay_and_stated_as_one() -> None:
    run = simulated("system=pinecone", "trace.requests=50", "frontend.search_s=0.25")
    assert set(run.requests["search_s"].to_pylist()) == {0.25}
    what = "times that are the same for every request"
    assert [a["value"] for a in run.summary["assumptions"] if a["what"] == what] == ["search_s, fetch_s"]
    assert set(Constant(0.25).draw(np.random.default_rng(0), 9)) == {0.25}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("frontend.search_s=-1", r"frontend\.search_s: found -1, expected float at least 0"),
        ("frontend.fetch_s=nan", r"frontend\.fetch_s: found nan"),
        ("frontend.fetch_s=soon", r"frontend\.fetch_s: found 'soon', expected float at least 0 .* or Delay"),
        (
            "frontend.search_s={_target_: mezzotint.sim.frontend.delay.LogNormal, median_s: 0.1}",
            "expected either median_s and",
        ),
        (
            "frontend.search_s={_target_: mezzotint.sim.frontend.delay.LogNormal, mean_s: 1, cv: 1, p99_s: 2}",
            "expected either",
        ),
        (
            "frontend.search_s={_target_: mezzotint.sim.frontend.delay.LogNormal, median_s: 2, p99_s: 1}",
            "expected either",
        ),
        (
            "frontend.search_s={_target_: mezzotint.sim.frontend.delay.Empirical, quantiles_s: [1, 0.5]}",
            "that do not fall",
        ),
        (
            "frontend.search_s={_target_: mezzotint.sim.cache.selector.Thresholds, thresholds: {5: 0.5}}",
            "is no Delay: it lacks draw",
        ),
    ],
)
def test_malformed_delay_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        simulated("system=nirvana", "trace.requests=20", override)
