"""Arrival processes against what theory says of them."""

import math
from pathlib import Path
from pydoc import locate
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import conf
from traces.arrivals.base import LAST_S, Arrivals, Schedule
from traces.arrivals.closed import Closed
from traces.arrivals.poisson import Poisson
from traces.arrivals.ramp import Ramp
from traces.arrivals.trace_clock import TraceClock
from traces.error import TraceError

OWN = np.array([3.0, 4.0, 4.0, 10.0])

processes = st.one_of(
    st.builds(TraceClock, speedup=st.floats(0.01, 100)),
    st.builds(Poisson, rate_rpm=st.floats(0.01, 1e6)),
    st.builds(
        Ramp,
        start_rpm=st.floats(0.1, 1e4),
        end_rpm=st.floats(0.1, 1e4),
        shape=st.sampled_from(["linear", "sigmoid"]),
    ),
    st.builds(Closed, outstanding=st.integers(1, 9), think_s=st.floats(0, 99)),
)


@given(process=processes, gaps=st.lists(st.floats(0, 1e5), max_size=20), seed=st.integers(0, 9))
def test_every_process_gives_sorted_times_and_repeats_itself(process: Arrivals, gaps: list[float], seed: int) -> None:
    own = np.cumsum(np.array(gaps, np.float64))
    first = process.schedule(own, np.random.default_rng(seed))
    again = process.schedule(own, np.random.default_rng(seed))
    assert first.times.dtype == np.float64
    assert (np.diff(first.times) >= 0).all()
    assert first.times.tobytes() == again.times.tobytes()
    expected = min(process.outstanding, len(own)) if isinstance(process, Closed) else len(own)
    assert len(first.times) == expected


def test_the_trace_s_own_clock(rng: np.random.Generator) -> None:
    assert TraceClock().schedule(OWN, rng).times.tolist() == OWN.tolist()
    assert TraceClock(speedup=2.0).schedule(OWN, rng).times.tolist() == [3.0, 3.5, 3.5, 6.5]
    assert TraceClock(speedup=0.5).schedule(OWN, rng).times.tolist() == [3.0, 5.0, 5.0, 17.0]


def test_poisson_gaps_are_exponential(rng: np.random.Generator) -> None:
    count, rate_rpm = 40_000, 12.0
    gaps = np.diff(Poisson(rate_rpm).schedule(np.zeros(count), rng).times, prepend=0.0)
    mean_s = 60.0 / rate_rpm
    assert gaps.mean() == pytest.approx(mean_s, abs=4 * mean_s / math.sqrt(count))
    # of an exponential law: standard deviation equals mean, and P(gap > mean) = 1/e
    assert gaps.std() == pytest.approx(mean_s, rel=0.03)
    assert (gaps > mean_s).mean() == pytest.approx(math.exp(-1), abs=0.01)


def test_the_linear_ramp(rng: np.random.Generator) -> None:
    times = Ramp(6.0, 26.0, "linear").schedule(np.zeros(5), rng).times
    assert times[0] == 0.0
    assert 60.0 / np.diff(times) == pytest.approx([6.0, 11.0, 16.0, 21.0])


def test_the_sigmoid_ramp_is_modm_s(rng: np.random.Generator) -> None:
    count = 1001
    times = Ramp(6.0, 26.0).schedule(np.zeros(count), rng).times
    x = np.linspace(-2.0, 6.0, count)[:-1]
    assert 60.0 / np.diff(times) == pytest.approx(6.0 + 20.0 / (1.0 + np.exp(-1.5 * x)))
    # half way up at x = 0, a quarter of the requests in
    assert 60.0 / np.diff(times)[250] == pytest.approx(16.0)


def test_a_closed_loop_starts_what_may_be_outstanding(rng: np.random.Generator) -> None:
    schedule = Closed(outstanding=3, think_s=2.5).schedule(OWN, rng)
    assert schedule.times.tolist() == [0.0, 0.0, 0.0]
    assert schedule.think_s == 2.5
    assert len(Closed(outstanding=9).schedule(OWN, rng).times) == 4


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Poisson, {"rate_rpm": 0}, "rate_rpm=0, expected a finite number, above 0"),
        (Poisson, {"rate_rpm": -1.0}, "rate_rpm"),
        (Poisson, {"rate_rpm": math.nan}, "rate_rpm=nan"),
        (Poisson, {"rate_rpm": math.inf}, "rate_rpm=inf"),
        (Poisson, {"rate_rpm": "ten"}, "rate_rpm='ten'"),
        (Poisson, {"rate_rpm": True}, "rate_rpm=True"),
        (Poisson, {"rate_rpm": 1e300}, "at most 6e"),
        (Poisson, {"rate_rpm": 10**400}, "at most 6e"),
        (TraceClock, {"speedup": 0.0}, "speedup"),
        (TraceClock, {"speedup": 1e300}, "speedup"),
        (Closed, {"outstanding": 10**400}, "outstanding"),
        (Closed, {"outstanding": 1, "think_s": 1e20}, "think_s"),
        (Ramp, {"start_rpm": 0.0, "end_rpm": 1.0}, "start_rpm"),
        (Ramp, {"start_rpm": 1.0, "end_rpm": -1.0}, "end_rpm"),
        (Ramp, {"start_rpm": 1.0, "end_rpm": 2.0, "shape": "cubic"}, "expected linear or sigmoid"),
        (Closed, {"outstanding": 0}, "outstanding=0, expected a whole number, 1 or more"),
        (Closed, {"outstanding": 1.5}, "outstanding=1.5"),
        (Closed, {"outstanding": 1, "think_s": -1.0}, "think_s"),
    ],
)
def test_settings_that_make_no_sense(kind: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        kind(**settings)


@pytest.mark.parametrize("times", [[1.0, 0.0], [math.nan], [-1.0], [[0.0]], [0.0, math.inf]])
def test_a_schedule_that_runs_backwards(times: list[Any]) -> None:
    with pytest.raises(TraceError, match="arrival times"):
        Schedule(np.array(times))


@pytest.mark.parametrize("name", ["trace", "poisson", "ramp", "closed"])
def test_the_configuration_names_real_settings(name: str, rng: np.random.Generator) -> None:
    settings = yaml.safe_load((Path(conf.__path__[0]) / "arrivals" / f"{name}.yaml").read_text())
    kind = locate(settings.pop("_target_"))
    assert kind(**settings).schedule(OWN, rng).times.ndim == 1


def test_before_the_bound_floats_tell_microseconds_apart() -> None:
    assert np.spacing(np.nextafter(LAST_S, 0.0)) < 1e-6 < np.spacing(LAST_S)
    Schedule(np.array([np.nextafter(LAST_S, 0.0)]))


@pytest.mark.parametrize(
    "process", [Poisson(1e-15), Ramp(1e-15, 1e-15), Closed(1, 5e9), TraceClock(1e-6), Poisson(5e-324)]
)
def test_what_floats_cannot_tell_apart_is_refused(process: Any, rng: np.random.Generator) -> None:
    with pytest.raises(TraceError, match=r"272 years|finite seconds"):
        process.schedule(np.linspace(0.0, 1e5, 10), rng)
