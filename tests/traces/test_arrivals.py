"""Arrival processes against theory."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.config.build import build
from mezzotint.traces.arrivals.base import LAST_S, Arrivals, Schedule
from mezzotint.traces.arrivals.closed import Closed
from mezzotint.traces.arrivals.day import Day
from mezzotint.traces.arrivals.fluctuating import Fluctuating
from mezzotint.traces.arrivals.loadgen import LoadGen
from mezzotint.traces.arrivals.poisson import Poisson
from mezzotint.traces.arrivals.profile import RateProfile
from mezzotint.traces.arrivals.ramp import Ramp
from mezzotint.traces.arrivals.saturation import Saturation
from mezzotint.traces.arrivals.trace_clock import TraceClock
from mezzotint.traces.error import TraceError


def expected(profile: RateProfile, time_s: Any) -> Any:
    """Return the mean number of arrivals up to each of `time_s`, (n,): the integral of the rate."""
    so_far = np.concatenate([[0.0], np.cumsum(profile.rate_hz * np.diff(profile.edges_s))])
    rounds, rest_s = np.divmod(time_s, profile.edges_s[-1])
    return rounds * so_far[-1] + np.interp(rest_s, profile.edges_s, so_far)


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
    st.builds(
        Fluctuating,
        rate_rpm=st.floats(0.01, 1e5),
        levels=st.lists(st.floats(0, 1e3), min_size=1, max_size=9).filter(lambda levels: max(levels) > 1e-3),
        every_s=st.floats(0.01, 1e5),
    ),
    st.builds(Day, rate_rpm=st.floats(0.01, 1e5), day_ratio=st.floats(1, 100), peak_hour=st.floats(0, 24)),
    st.builds(Saturation, gap_s=st.floats(0, 1e5)),
)


@given(process=processes, gaps=st.lists(st.floats(0, 1e5), max_size=20), seed=st.integers(0, 9))
def test_every_process_gives_sorted_times_and_repeats_by_seed(process: Arrivals, gaps: list[float], seed: int) -> None:
    own = np.cumsum(np.array(gaps, np.float64))
    first = process.schedule(own, np.random.default_rng(seed))
    again = process.schedule(own, np.random.default_rng(seed))
    assert first.times.dtype == np.float64
    assert (np.diff(first.times) >= 0).all()
    assert first.times.tobytes() == again.times.tobytes()
    expected = min(process.outstanding, len(own)) if isinstance(process, Closed) else len(own)
    assert len(first.times) == expected


def test_trace_clock_keeps_or_scales_the_gaps(rng: np.random.Generator) -> None:
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


def test_linear_ramp_has_linear_rates(rng: np.random.Generator) -> None:
    times = Ramp(6.0, 26.0, "linear").schedule(np.zeros(5), rng).times
    assert times[0] == 0.0
    assert 60.0 / np.diff(times) == pytest.approx([6.0, 11.0, 16.0, 21.0])


def test_sigmoid_ramp_matches_modm(rng: np.random.Generator) -> None:
    count = 1001
    times = Ramp(6.0, 26.0).schedule(np.zeros(count), rng).times
    x = np.linspace(-2.0, 6.0, count)[:-1]
    assert 60.0 / np.diff(times) == pytest.approx(6.0 + 20.0 / (1.0 + np.exp(-1.5 * x)))
    # half way up at x = 0, a quarter of the requests in
    assert 60.0 / np.diff(times)[250] == pytest.approx(16.0)


VARYING = [
    Fluctuating(rate_rpm=14.0, levels=[6, 14, 22, 14], every_s=1800.0),
    Fluctuating(rate_rpm=14.0, levels=[0, 3, 0, 1], every_s=977.0),
    Day(rate_rpm=10.0, day_ratio=20.0, peak_hour=7.5),
]


@pytest.mark.parametrize("process", VARYING)
def test_time_changed_varying_rate_is_unit_poisson(process: Fluctuating | Day, rng: np.random.Generator) -> None:
    """Gaps of the expected number of arrivals are exponential with a mean of 1 (Kolmogorov and Smirnov)."""
    times_s = process.schedule(np.zeros(20_000), rng).times
    gaps = np.diff(expected(process.profile, times_s), prepend=0.0)
    assert stats.kstest(gaps, stats.expon.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 4 / math.sqrt(len(gaps))


@pytest.mark.parametrize("process", VARYING)
def test_window_counts_match_the_rate(process: Fluctuating | Day, rng: np.random.Generator) -> None:
    """Counts of windows off the edges are within Poisson bounds, with a Poisson variance."""
    times_s = process.schedule(np.zeros(60_000), rng).times
    edges_s = np.arange(0.0, times_s[-1], 1234.5)
    counts, _ = np.histogram(times_s, edges_s)
    mean = np.diff(expected(process.profile, edges_s))
    some = mean > 1.0
    off = (counts[some] - mean[some]) / np.sqrt(mean[some])
    assert np.abs(off).max() < 6
    assert off.std() == pytest.approx(1.0, abs=0.15)
    assert (counts[mean == 0.0] == 0).all()


def test_level_is_its_share_of_the_mean_and_repeats(rng: np.random.Generator) -> None:
    process = Fluctuating(rate_rpm=12.0, levels=[1, 3], every_s=600.0)
    assert process.rates_rpm == [6.0, 18.0]
    assert Fluctuating(rate_rpm=12.0, levels=[5, 15], every_s=600.0).rates_rpm == [6.0, 18.0]
    assert expected(process.profile, np.array([0.0, 600.0, 1200.0, 1500.0])) == pytest.approx([0, 60, 240, 270])
    times_s = process.schedule(np.zeros(48_000), rng).times
    high = times_s % 1200.0 >= 600.0
    assert high.mean() == pytest.approx(0.75, abs=4 * math.sqrt(0.75 * 0.25 / len(high)))


def test_day_peaks_at_its_hour_and_has_its_mean_rate() -> None:
    process = Day(rate_rpm=10.0, day_ratio=20.0, peak_hour=7.5)
    rate = process.profile.rate_hz
    assert rate.mean() * 60.0 == pytest.approx(10.0)
    assert rate.max() / rate.min() == pytest.approx(20.0, rel=1e-4)
    assert int(rate.argmax()) in (449, 450)  # the minutes on either side of 7:30
    assert expected(process.profile, np.array([86_400.0])) == pytest.approx(14_400.0)


def test_constant_rate_equals_the_homogeneous_process() -> None:
    """For every rate the gaps are the same exponentials, scaled."""
    steady = Poisson(10.0).schedule(np.zeros(500), np.random.default_rng(3)).times
    for process in (
        Fluctuating(rate_rpm=10.0, levels=[2.0], every_s=300.0),
        Day(rate_rpm=10.0, day_ratio=1.0, peak_hour=3.0),
    ):
        assert process.schedule(np.zeros(500), np.random.default_rng(3)).times == pytest.approx(steady)
    twice = Poisson(20.0).schedule(np.zeros(500), np.random.default_rng(3)).times
    assert twice * 2 == pytest.approx(steady)


@settings(max_examples=40)
@given(
    spans=st.lists(st.tuples(st.floats(1.0, 1e4), st.floats(0.0, 10.0)), min_size=1, max_size=8).filter(
        lambda spans: max(rate for _, rate in spans) > 0.1
    ),
    seed=st.integers(0, 99),
)
def test_arrival_times_invert_the_integrated_rate(spans: list[tuple[float, float]], seed: int) -> None:
    edges_s = np.concatenate([[0.0], np.cumsum([length for length, _ in spans])])
    profile = RateProfile(edges_s, np.array([rate for _, rate in spans]))
    unit = np.cumsum(np.random.default_rng(seed).exponential(1.0, 300))
    times_s = profile.times(300, np.random.default_rng(seed))
    assert expected(profile, times_s) == pytest.approx(unit, rel=1e-6, abs=1e-6)


def test_saturation_arrives_at_once_or_at_a_fixed_gap(rng: np.random.Generator) -> None:
    assert Saturation().schedule(OWN, rng).times.tolist() == [0.0] * 4
    assert Saturation(gap_s=1.5).schedule(OWN, rng).times.tolist() == [0.0, 1.5, 3.0, 4.5]


def test_closed_loop_starts_its_outstanding_requests(rng: np.random.Generator) -> None:
    schedule = Closed(outstanding=3, think_s=2.5).schedule(OWN, rng)
    assert schedule.times.tolist() == [0.0, 0.0, 0.0]
    assert schedule.think_s == 2.5
    assert len(Closed(outstanding=9).schedule(OWN, rng).times) == 4


@pytest.mark.parametrize(
    ("kind", "chosen", "message"),
    [
        (Poisson, {"rate_rpm": 0}, r"arrivals\.rate_rpm: found 0, expected"),
        (Poisson, {"rate_rpm": math.nan}, "rate_rpm: found nan"),
        (Poisson, {"rate_rpm": True}, "rate_rpm: found True"),
        (Poisson, {"rate_rpm": 10**400}, "rate_rpm.*at most"),
        (TraceClock, {"speedup": 0.0}, "speedup"),
        (LoadGen, {"rate_rpm": 60.0, "seed": -1}, "seed"),
        (LoadGen, {"rate_rpm": 60.0, "seed": 1, "least_s": math.nan}, "least_s"),
        (Closed, {"outstanding": 1, "think_s": 1e20}, "think_s"),
        (Ramp, {"start_rpm": 1.0, "end_rpm": -1.0}, "end_rpm"),
        (Ramp, {"start_rpm": 1.0, "end_rpm": 2.0, "shape": "cubic"}, "shape.*linear.*sigmoid"),
        (Closed, {"outstanding": 0}, "outstanding: found 0, expected .*at least 1"),
        (Closed, {"outstanding": 1.5}, "outstanding: found 1.5"),
        (Saturation, {"gap_s": -1.0}, "gap_s: found -1.0"),
        (Day, {"rate_rpm": 10.0, "day_ratio": 0.5, "peak_hour": 1.0}, "day_ratio: found 0.5, expected .*at least 1"),
        (Day, {"rate_rpm": 10.0, "day_ratio": 2.0, "peak_hour": 25.0}, "peak_hour: found 25.0"),
        (Day, {"rate_rpm": 6e7, "day_ratio": 2.0, "peak_hour": 1.0}, "at the busiest minute"),
        (Fluctuating, {"rate_rpm": 1.0, "levels": [], "every_s": 1.0}, "levels: found"),
        (Fluctuating, {"rate_rpm": 1.0, "levels": [0, 0.0], "every_s": 1.0}, "levels=.*one above 0"),
        (Fluctuating, {"rate_rpm": 1.0, "levels": [1, -1], "every_s": 1.0}, "levels: found"),
        (Fluctuating, {"rate_rpm": 1.0, "levels": [1], "every_s": 0.0}, "every_s: found 0.0"),
        (Fluctuating, {"rate_rpm": 6e7, "levels": [1, 2], "every_s": 1.0}, "at the highest of the levels"),
    ],
)
def test_invalid_arrival_setting_is_refused(kind: Any, chosen: dict[str, Any], message: str) -> None:
    with pytest.raises((TraceError, ConfigError), match=message):
        build({"_target_": f"{kind.__module__}.{kind.__name__}", **chosen}, "arrivals")


@pytest.mark.parametrize("times", [[1.0, 0.0], [math.nan], [-1.0], [[0.0]], [math.inf, 0.0]])
def test_decreasing_schedule_is_refused(times: list[Any]) -> None:
    with pytest.raises(TraceError, match="arrival times"):
        Schedule(np.array(times))


def test_largest_time_resolves_microseconds() -> None:
    assert np.spacing(np.nextafter(LAST_S, 0.0)) < 1e-6 < np.spacing(LAST_S)
    Schedule(np.array([np.nextafter(LAST_S, 0.0)]))


@pytest.mark.parametrize(
    "process",
    [
        *(Poisson(1e-15), Ramp(1e-15, 1e-15), Closed(1, 5e9), TraceClock(1e-6), Poisson(5e-324), Saturation(5e9)),
        *(Poisson(1e-320), Fluctuating(1e-15, [1, 2], 60.0), Day(1e-15, 2.0, 1.0), Fluctuating(1.0, [0, 1], 2.0**33)),
    ],
)
def test_times_beyond_float_resolution_are_refused(process: Any, rng: np.random.Generator) -> None:
    with pytest.raises(TraceError, match="272 years"):
        process.schedule(np.linspace(0.0, 1e5, 10), rng)
