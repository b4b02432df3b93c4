"""The spread of a repetition, and the requests that met no other."""

import numpy as np
import pytest

from mezzotint.sim.fit.measured.statistics import closed_loop, quiet, spread, statistics
from tests.sim.fit.measured.lab import fifo, poisson


def test_quiet_requests_begin_when_no_other_is_in_flight() -> None:
    arrival_s = np.array([0.0, 1.0, 3.0, 9.0, 9.5, 20.0])
    latency_s = np.array([2.0, 1.5, 1.0, 8.0, 0.2, 1.0])
    assert quiet(arrival_s, latency_s).tolist() == [True, False, True, True, False, True]


def test_no_request_is_quiet_after_one_without_an_answer() -> None:
    """It might still be in flight."""
    latency_s = np.array([1.0, np.nan, 1.0])
    assert quiet(np.array([0.0, 5.0, 100.0]), latency_s).tolist() == [True, False, False]


def test_statistics_count_throughput_to_the_last_answer() -> None:
    found = statistics(np.array([10.0, 20.0, 30.0]), np.array([1.0, 2.0, 10.0]))
    assert found["mean"] == pytest.approx(13 / 3)
    assert found["p50"] == 2.0
    assert found["throughput"] == pytest.approx(60 * 3 / 30)


def test_spread_of_independent_latencies_is_that_of_their_mean() -> None:
    """Of 3,600 exponential latencies the mean has a standard error of a 60th; 95 % are 1.96 of it on each side."""
    low, high = spread(np.random.default_rng(1).exponential(1.0, 3600))["mean"]
    assert (high - low) / 2 == pytest.approx(1.96 / 60, rel=0.15)


def test_spread_of_waves_is_wider_than_that_of_the_same_latencies_shuffled() -> None:
    """Blocks keep what neighbours share; a bootstrap of single requests would not."""
    rng = np.random.default_rng(2)
    waves = np.repeat(rng.exponential(1.0, 40), 25)
    kept, shuffled = (spread(latency_s)["mean"] for latency_s in (waves, rng.permutation(waves)))
    assert kept[1] - kept[0] > 2.5 * (shuffled[1] - shuffled[0])


@pytest.mark.parametrize("clients", [1, 3])
def test_closed_loop_is_told_from_an_open_one(clients: int) -> None:
    """N clients of a serial server of 1 s: each sends its next request 5 ms after its answer."""
    answer_s = 1.0 * np.arange(1, 61)
    arrival_s = np.concatenate((np.zeros(clients), answer_s[: 60 - clients] + 0.005))
    assert closed_loop(arrival_s, answer_s - arrival_s) == clients
    open_s = poisson(60, 1.4)
    assert closed_loop(open_s, fifo(open_s, np.full(60, 1.0))) is None
