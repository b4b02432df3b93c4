"""The mark of an unstable run against queueing theory."""

import numpy as np
import pytest
from scipy.special import stdtrit

from mezzotint.sim.cli import main
from mezzotint.sim.metrics.backlog import FALSE_ALARM, QUANTILE, SPANS, backlog
from mezzotint.sim.metrics.request_columns import RequestColumns
from tests.sim.lab import engine, simulated


def mm1(load: float, requests: int, seed: int) -> RequestColumns:
    """Simulate M/M/1 from empty by Lindley's recursion, with a mean service of 1 s."""
    rng = np.random.default_rng([seed, requests])
    arrival_s, service_s = np.cumsum(rng.exponential(1 / load, requests)), rng.exponential(1.0, requests)
    walk = np.concatenate([[0.0], np.cumsum(service_s[:-1] - np.diff(arrival_s))])
    columns = RequestColumns(requests, ["large"])
    columns["arrival_s"][:] = arrival_s
    columns["start_s"][:] = arrival_s + walk - np.minimum.accumulate(walk)
    columns["finish_s"][:] = columns["start_s"] + service_s
    return columns


def share_marked(load: float, requests: int, seeds: int = 200) -> float:
    every = (mm1(load, requests, seed) for seed in range(seeds))
    return float(np.mean([backlog(columns, columns["arrival_s"][0])["grows"] for columns in every]))


@pytest.mark.parametrize(("load", "requests", "min_share", "max_share"), [
    (0.5, 100, 0.0, 0.01), (0.9, 1000, 0.0, 0.01), (0.95, 400, 0.0, 0.015), (0.95, 4000, 0.0, 0.0),
    (1.0, 4000, 0.0, 0.04), (1.1, 4000, 0.85, 1.0), (1.1, 16000, 1.0, 1.0), (1.5, 400, 0.98, 1.0),
])  # fmt: skip
def test_backlog_is_marked_above_a_load_of_one_and_not_below(
    load: float, requests: int, min_share: float, max_share: float
) -> None:
    """False alarms and power; the docstring gives those of 1,500 seeds. At a load of exactly 1, a walk reflected at
    zero, the level of the test is twice its nominal one."""
    assert min_share <= share_marked(load, requests) <= max_share


def test_fluid_queue_grows_by_its_excess_arrivals() -> None:
    """One arrival a second on 2 GPUs of 3 s each: one request in three is left over, 1,200 an hour."""
    over = engine(np.arange(3000.0), [3.0] * 3000, 2)
    over.run()
    found = backlog(over.record.request_columns, 0.0)
    assert found["grows"]
    assert found["per_hour"] == pytest.approx(1200, rel=0.01)
    assert found["at_last_arrival"] == pytest.approx(1000, abs=3)
    assert "length of the trace" in found["note"]


def test_filling_the_gpus_is_no_backlog() -> None:
    """Fifty requests on fifty GPUs all arrive before the first ends: many in service, none in the queue."""
    filling = engine(np.arange(50.0), [100.0] * 50, 50)
    filling.run()
    assert backlog(filling.record.request_columns, 0.0) == {
        "grows": False,
        "per_hour": 0.0,
        "at_last_arrival": 0,
        "note": None,
    }


def test_closed_loop_has_no_growing_backlog() -> None:
    summary = simulated("arrivals=closed", "arrivals.outstanding=40", "trace.requests=400").summary
    assert summary["backlog"]["grows"] is False
    assert 0 < summary["backlog"]["at_last_arrival"] <= 24


def test_simultaneous_arrivals_have_no_trend() -> None:
    burst = engine(np.zeros(5), [1.0] * 5)
    burst.run()
    assert set(backlog(burst.record.request_columns, 0.0).values()) == {None}


def test_throughput_until_last_arrival_is_capacity_in_overload_and_excludes_the_drain() -> None:
    """MoDM's artifact: 16 MI210 at 91.5 s serve 10.49 requests/min. A stable run serves the arrival rate."""
    over = simulated("arrivals.rate_rpm=12", "trace.requests=3000").summary
    assert over["backlog"]["grows"]
    assert over["throughput_until_last_arrival_rpm"] == pytest.approx(16 * 60 / 91.5, rel=0.02)
    under = simulated("arrivals.rate_rpm=8", "trace.requests=3000", "warmup=200")
    assert not under.summary["backlog"]["grows"]
    rows = under.requests.to_pandas()
    start, last = rows.arrival_s[200], rows.arrival_s.max()
    inside = rows.finish_s.between(start, last, inclusive="right").sum()
    assert under.summary["throughput_until_last_arrival_rpm"] == pytest.approx(60 * inside / (last - start))


def test_printed_line_of_an_overloaded_run_says_unstable(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    for rate, unstable in ((40, True), (4, False)):
        assert main(["run", f"arrivals.rate_rpm={rate}", "trace.requests=300", f"run.dir={tmp_path}/{rate}"]) == 0
        assert ("overloaded" in capsys.readouterr().out) is unstable


def test_backlog_quantile_is_students_t() -> None:
    assert float(stdtrit(SPANS - 1, 1 - FALSE_ALARM)) == QUANTILE
