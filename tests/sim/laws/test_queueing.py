"""The engine against queueing theory: exact results on waiting."""

import heapq
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mezzotint.sim.engine import Engine
from mezzotint.traces.arrivals.base import Schedule
from tests.sim.lab import engine


def waits(run: Engine) -> np.ndarray:
    run.run()
    return run.record.request_columns["start_s"] - run.record.request_columns["arrival_s"]


def mmc_wait(rate: float, service: float, servers: int) -> float:
    """Mean wait of M/M/c by Erlang's C formula."""
    offered = rate * service
    rho = offered / servers
    top = offered**servers / factorial(servers) / (1 - rho)
    delayed = top / (sum(offered**k / factorial(k) for k in range(servers)) + top)
    return delayed * service / (servers - offered)


def mdc_wait(rate: float, service: float, servers: int) -> float:
    """Mean wait of M/D/c from its chain embedded every service time (Crommelin, 1932), solved by iteration."""
    states = 600
    offered = rate * service
    arrivals = stats.poisson.pmf(np.arange(states), offered)
    held = np.zeros(states)
    held[0] = 1.0
    for _ in range(20_000):
        left = np.concatenate(([held[: servers + 1].sum()], held[servers + 1 :]))
        after = np.convolve(left, arrivals)[:states]
        after /= after.sum()
        if np.abs(after - held).max() < 1e-13:
            break
        held = after
    waiting = (np.clip(np.arange(states) - servers, 0, None) * held).sum()
    return float(waiting / rate)


def check(measured: np.ndarray, expected: float) -> None:
    """The mean of 25 batch means lies within the 99.9 % confidence interval of ``expected``."""
    batches = measured[len(measured) // 10 :]
    means = batches[: len(batches) // 25 * 25].reshape(25, -1).mean(axis=1)
    half = stats.t.ppf(0.9995, 24) * means.std(ddof=1) / 5
    assert abs(means.mean() - expected) < half
    assert half < 0.3 * expected + 1e-3  # the test would reject a wait that is a third off


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.5), (4, 0.8), (16, 0.8)])
def test_mmc_mean_wait_matches_erlang_c(servers: int, rho: float) -> None:
    rng = np.random.default_rng(servers)
    rate, count = rho * servers, 150_000 if servers == 16 else 50_000  # rare waits vary more
    times = np.cumsum(rng.exponential(1 / rate, count))
    check(waits(engine(times, rng.exponential(1.0, count), servers)), mmc_wait(rate, 1.0, servers))


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.8), (4, 0.5), (16, 0.8)])
def test_mdc_mean_wait_matches_crommelin(servers: int, rho: float) -> None:
    rng = np.random.default_rng(10 + servers)
    rate, count = rho * servers, 50_000
    times = np.cumsum(rng.exponential(1 / rate, count))
    check(waits(engine(times, np.ones(count), servers)), mdc_wait(rate, 1.0, servers))


def test_md1_oracle_matches_pollaczek_khinchine() -> None:
    assert mdc_wait(0.8, 1.0, 1) == pytest.approx(0.8 / (2 * 0.2), rel=1e-6)
    assert mmc_wait(0.8, 1.0, 1) == pytest.approx(0.8 / 0.2)


@given(
    gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60),
    services=st.lists(st.floats(0, 9), min_size=60, max_size=60),
    servers=st.integers(1, 5),
)
def test_fcfs_is_work_conserving(gaps: list[float], services: list[float], servers: int) -> None:
    """Every request starts as soon as a server is free and its turn has come, and no later."""
    times = np.cumsum(gaps)
    run = engine(times, services[: len(gaps)], servers)
    run.run()
    free = [0.0] * servers
    for row, at in enumerate(times):
        start = max(at, heapq.heappop(free))
        assert run.record.request_columns["start_s"][row] == start
        heapq.heappush(free, start + services[row])


def test_closed_loop_keeps_a_constant_number_outstanding() -> None:
    run = engine(Schedule(np.zeros(3), think_s=0.5), [2.0] * 9, count=3)
    run.run()
    assert list(run.record.request_columns["arrival_s"]) == [0.0] * 3 + [2.5] * 3 + [5.0] * 3
    assert set(run.record.request_columns["finish_s"][6:]) == {7.0}
