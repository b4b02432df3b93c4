"""``warmup=auto`` against queueing theory, and what the summary says of the state of a run."""

import numpy as np
import pytest

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.metrics.warmup import MAX_SHARE, mser
from tests.sim.lab import simulated


def mm1(load: float, requests: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return waits and latencies of M/M/1 from empty by Lindley's recursion, with a mean service of 1 s."""
    rng = np.random.default_rng([seed, requests])
    between_s, service_s = rng.exponential(1 / load, requests), rng.exponential(1.0, requests)
    walk = np.concatenate([[0.0], np.cumsum(service_s[:-1] - between_s[1:])])
    wait_s = walk - np.minimum.accumulate(walk)
    return wait_s, wait_s + service_s


def bias(load: float, head: float = 0.0, seeds: int = 300, requests: int = 2000) -> tuple[float, float]:
    """Return the relative error of the mean of M/M/1 over seeds, without a warm-up and with it.

    With ``head`` > 0 that of the latencies, the first of which are so many times higher.
    """
    found = []
    for seed in range(seeds):
        wait_s, latency_s = mm1(load, requests, seed)
        measured = wait_s if not head else latency_s * (1 + head * np.exp(-np.arange(requests) / (0.05 * requests)))
        end = mser(np.log(measured if head else latency_s))
        found.append((measured.mean(), measured[end:].mean()))
    expected = 1 / (1 - load) if head else load / (1 - load)
    without, with_ = np.mean(found, axis=0) / expected - 1
    return float(without), float(with_)


def test_warmup_takes_the_bias_of_an_empty_start_and_adds_hardly_any() -> None:
    """Erlang's mean wait at a load of .95: from empty it is a sixth too low. At .8 nothing is to be won."""
    without, with_ = bias(0.95)
    assert -0.25 < without < -0.08
    assert abs(with_) < abs(without) / 2
    without, with_ = bias(0.8)
    assert abs(without) < 0.03
    assert -0.05 < with_ < 0.03


def test_warmup_takes_the_bias_of_a_slow_start() -> None:
    without, with_ = bias(0.8, head=5.0, seeds=100)
    assert without > 0.15
    assert abs(with_) < 0.07


def test_mser_leaves_out_a_step_and_nothing_of_a_constant_and_at_most_half() -> None:
    noise = np.random.default_rng(1).normal(size=1000)
    assert 200 <= mser(noise + 10.0 * (np.arange(1000) < 200)) <= 220
    assert mser(np.ones(1000)) == 0
    assert mser(np.arange(1000.0)) == MAX_SHARE * 1000
    assert mser(np.ones(3)) == 0


def test_cache_that_fills_is_left_out() -> None:
    words = ("system=nirvana", "arrivals.rate_rpm=6", "trace.requests=2000", "warmup=auto")
    cold = simulated(*words, "cluster.count=16").summary
    assert cold["state"]["warmup_rule"].startswith("MSER of the ")
    assert cold["state"]["cache_start"] == "empty"
    left_out = 2000 - cold["requests"]["arrived"]
    assert 50 < left_out < 1000
    every = simulated(*words[:-1], "cluster.count=16").summary
    same = simulated(*words[:-1], "cluster.count=16", f"warmup={left_out}").summary
    assert cold["cache"]["hit_rate"] > every["cache"]["hit_rate"]
    assert {key: value for key, value in cold.items() if key not in ("state", "wall")} == {
        key: value for key, value in same.items() if key not in ("state", "wall")
    }
    assert same["state"]["warmup_rule"] == f"the first {left_out} requests"


def test_controller_has_decided_once_before_the_window_and_few_decisions_are_noted() -> None:
    words = ("system=modm-quality", "arrivals.rate_rpm=40", "cluster.count=60", "trace.requests=400", "preload=100")
    state = simulated(*words, "warmup=auto", "hits=modm").summary["state"]
    assert state["warmup_s"] >= 180.0 - 60 / 40
    assert state["periods"] == {"GlobalMonitor": pytest.approx(state["span_s"] / 180)}
    assert "GlobalMonitor decided 1 times" in state["note"] or "GlobalMonitor decided 2 times" in state["note"]
    assert state["preloaded"] == 100
    assert state["cache_start"] is None  # the hits are declared


def test_overloaded_run_does_not_settle() -> None:
    summary = simulated("arrivals.rate_rpm=15", "trace.requests=1000", "warmup=auto").summary
    assert "not settled: MSER of the latencies" in summary["state"]["note"]
    assert summary["load"]["verdict"] == "overloaded"


def test_default_leaves_nothing_out() -> None:
    state = simulated("trace.requests=100").summary["state"]
    assert (state["warmup_s"], state["warmup_rule"], state["periods"]) == (0.0, "none", {})


@pytest.mark.parametrize("value", ["often", "-1", "1.5", "null", "true"])
def test_other_warmups_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="warmup"):
        simulated(f"warmup={value}")
