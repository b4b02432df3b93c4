"""A monitor with a forecast: exact on repeating load, MoDM's own before a full season, and early after it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.sim.control.monitor import GlobalMonitor
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.modm.forecast import HoltWinters
from mezzotint.sim.scheduling.hit_miss import HitMiss
from tests.sim.control.test_monitor import MODELS, Cached, Timed
from tests.sim.lab import engine

SEASON_S, PERIOD_S, TURN_S = 3600.0, 180.0, 1800.0


def shown(forecast: HoltWinters, rates: list[float], period_s: float = 1.0) -> HoltWinters:
    forecast.begin(period_s)
    for rate in rates:
        forecast.observed(rate)
    return forecast


@given(st.lists(st.floats(0, 100), min_size=2, max_size=12), st.integers(1, 3), st.integers(1, 9))
def test_holt_winters_predicts_an_exact_season_exactly(season: list[float], times: int, ahead: int) -> None:
    forecast = shown(HoltWinters(season_s=float(len(season)), smooth=1), season * times)
    assert forecast.expected(ahead) == pytest.approx(season[(ahead - 1) % len(season)], abs=1e-6)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=9), st.integers(1, 5))
def test_holt_winters_repeats_the_last_window_before_a_full_season(rates: list[float], ahead: int) -> None:
    assert shown(HoltWinters(season_s=10.0), rates).expected(ahead) == rates[-1]


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.integers(1, 5))
def test_forecast_rate_is_never_negative(rates: list[float], ahead: int) -> None:
    assert 0 <= shown(HoltWinters(season_s=4.0), rates).expected(ahead) < float("inf")


def test_holt_winters_follows_a_level_shift_and_keeps_the_season() -> None:
    season = [0.0, 10.0, 20.0, 10.0]
    rates = season * 2 + [rate + 30 for rate in season * 20]
    forecast = shown(HoltWinters(season_s=4.0, smooth=1), rates)
    assert [forecast.expected(n) for n in range(1, 5)] == pytest.approx([rate + 30 for rate in season], abs=0.5)


def test_season_or_smoothing_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"controller\.forecast\.smooth: found 4"):
        HoltWinters(smooth=4)
    with pytest.raises(ConfigError, match="less than two windows"):
        HoltWinters(season_s=100.0).begin(180.0)


def targets(forecast: HoltWinters | None) -> dict[float, int]:
    """Return time of each decision -> its target, on 16 GPUs. For three hours, 6 requests a minute come in the first
    half of each hour and 24 in the second."""
    hour = np.concatenate((np.arange(0, TURN_S, 10.0), np.arange(TURN_S, SEASON_S, 2.5)))
    times = np.concatenate([hour + n * SEASON_S for n in range(3)]) + 0.1
    hits = {row for row in range(len(times)) if row % 4}
    gains = {} if forecast is None else {"kp": 1.0, "ki": 0.0, "kd": 0.0, "ahead": 2}
    run = engine(
        times,
        [90.0] * len(times),
        frontend=Cached(hits),
        backend=Timed([90.0] * len(times), 20.0),
        roles=["large"] * 16,
        models={role: MODELS[role] for role in ("large", "small")},
        scheduler=HitMiss(large_takes_hits=True),
        controllers=[GlobalMonitor(period_s=PERIOD_S, forecast=forecast, **gains)],
    )
    run.run()
    return {at_s: details["target"] for at_s, what, details in run.record.decisions if what == "split"}


def test_monitor_with_a_forecast_switches_before_the_load_rises() -> None:
    """In the third hour the season is known. MoDM's own monitor reacts after the first window of the load."""
    blind, ahead = targets(None), targets(HoltWinters(season_s=SEASON_S, smooth=1))
    turn_s = 2 * SEASON_S + TURN_S
    light, heavy = blind[turn_s], blind[turn_s + PERIOD_S]
    assert heavy < light
    assert ahead[turn_s] == ahead[turn_s - PERIOD_S] == heavy  # two windows ahead
    assert ahead[turn_s - 2 * PERIOD_S] == light
    first_s = TURN_S  # in the first hour it acts as MoDM's
    assert ahead[first_s] == blind[first_s]
    assert ahead[first_s + PERIOD_S] == blind[first_s + PERIOD_S]
