"""Latency limits in seconds beside multiples of the standalone latency."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.slo import Limit, parse_limit
from mezzotint.sim.core.workload import StandaloneLatency, Workload
from mezzotint.traces.arrivals.base import Schedule
from tests.sim.lab import configured, simulated

SMALL = ("trace.requests=60", "cluster.count=4", "arrivals.rate_rpm=4")


@given(value=st.floats(1e-6, 1e6).map(lambda x: float(f"{x:g}")), unit=st.sampled_from(("x", "s", "")))
def test_latency_limit_round_trips_through_text(value: float, unit: str) -> None:
    limit = parse_limit(f"{value:g}{unit}")
    assert limit == Limit("s" if unit == "s" else "x", value)
    assert parse_limit(str(limit)) == limit
    assert parse_limit(value) == Limit("x", value), "a plain number is a multiple"


@pytest.mark.parametrize("found", ["fast", "10m", "-1s", "0", "nan", "inf", "1e99s", "2x4", "", True, None, [2]])
def test_malformed_latency_limit_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="expected a multiple"):
        parse_limit(found)


def test_limit_in_seconds_counts_the_requests_that_took_longer() -> None:
    outcome = simulated(*SMALL, "slo=[2x,300s,2.5]")
    rows = outcome.requests.to_pandas()
    latency_s = rows["finish_s"] - rows["arrival_s"]
    assert list(outcome.summary["slo"]) == ["2x", "300s", "2.5x"]
    found = outcome.summary["slo"]["300s"]
    assert (found["limit_s"], found["violation_rate"]) == (300.0, float((latency_s > 300).mean()))
    assert 0 < outcome.summary["slo"]["300s"]["violation_rate"] < 1
    assert outcome.summary["slo"]["2x"] == simulated(*SMALL, "slo=[2]").summary["slo"]["2x"]


def test_first_limit_is_the_deadline_in_its_own_unit() -> None:
    shapes = tuple(np.full(2, value, np.int32) for value in (64, 64, 4))
    full = StandaloneLatency(np.array([1.0, 5.0]), np.array([1.0, 5.0]))
    for deadline, expected in (
        ({}, [np.inf, np.inf]),
        ({"deadline": 2.0}, [2.0, 10.0]),
        ({"deadline_s": 7.0}, [7.0, 7.0]),
    ):
        assert list(Workload(Schedule(np.zeros(2)), shapes, full, **deadline).limit_s) == expected  # type: ignore[arg-type]


def test_slack_and_edf_take_a_deadline_in_seconds() -> None:
    """At one size, the multiple expressed in seconds is the same deadline, so the same requests meet it."""
    words = ("system=patchedserve", "cluster=h100", "trace.requests=60", "arrivals.rate_rpm=60")
    multiple = simulated(*words, "slo=[3]")
    limit_s = multiple.summary["slo"]["3x"]["limit_s"]
    seconds = simulated(*words, f"slo=[{limit_s!r}s]")
    assert seconds.requests["finish_s"].equals(multiple.requests["finish_s"])


def test_limits_with_the_same_name_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"slo\.1: expected a multiple .* or seconds .*, found '10m'"):
        simulated("slo=[2x,10m]")
    with pytest.raises(ConfigError, match=r"slo: .*differ"):
        simulated("slo=[2,2x]")
    assert configured()["slo"] == [2, 4]
