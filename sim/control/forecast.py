"""Forecasts of the load: what the next windows will bring, from those before them."""

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from conf.ranges import Count, Share, SomeSeconds
from sim.core.errors import ConfigError


@runtime_checkable
class Forecast(Protocol):
    """Expects a rate of each window from those that were seen."""

    def begin(self, period_s: float) -> None:
        """Windows of ``period_s`` are to be told, from the first one of the run on."""

    def observed(self, rate_rpm: float) -> None:
        """The next window is over, and so many requests a minute came in it."""

    def expected(self, ahead: int) -> float:
        """The rate of the window ``ahead`` (1 is the next) windows after the last one seen, in requests a minute."""


@dataclass(slots=True)
class HoltWinters:
    """Exponential smoothing with a damped trend and an additive season (Holt 1957, Winters 1960): the day's shape.

    Until a whole season was seen it expects what the last window had. Then level, trend and deviations begin from that
    season, and each window moves them: l' = alpha (y - s) + (1 - alpha)(l + phi b), b' = beta (l' - l) + (1 - beta) phi
    b and s' = gamma (y - l') + (1 - gamma) s.

    Args:
        season_s: what repeats, a day; two windows at least.
        alpha, beta, gamma: how much of a window goes into level, trend and season.
        phi: how much of the trend is left a window later.
        smooth: windows, an odd number, over which the first season is averaged, since a window's count is noise too.
    """

    season_s: SomeSeconds = 86400.0
    alpha: Share = 0.2
    beta: Share = 0.02
    gamma: Share = 0.3
    phi: Share = 0.9
    smooth: Count = 5
    _seen: list[float] = field(init=False, default_factory=list, repr=False)
    _season: list[float] = field(init=False, default_factory=list, repr=False)
    _windows: int = field(init=False, default=0, repr=False)
    _at: int = field(init=False, default=0, repr=False)
    _level: float = field(init=False, default=0.0, repr=False)
    _trend: float = field(init=False, default=0.0, repr=False)

    def __post_init__(self) -> None:
        if not self.smooth % 2:
            raise ConfigError(f"controller.forecast.smooth: found {self.smooth}, expected an odd number of windows")

    def begin(self, period_s: float) -> None:
        self._windows = round(self.season_s / period_s)
        if self._windows < 2:
            raise ConfigError(
                f"controller.forecast.season_s: found {self.season_s}, which is less than two windows of {period_s} s"
            )

    def observed(self, rate_rpm: float) -> None:
        at, self._at = self._at % self._windows, self._at + 1
        if not self._season:
            self._seen.append(rate_rpm)
            if len(self._seen) == self._windows:
                self._begin_season()
            return
        season, before = self._season[at], self._level
        self._level = self.alpha * (rate_rpm - season) + (1 - self.alpha) * (before + self.phi * self._trend)
        self._trend = self.beta * (self._level - before) + (1 - self.beta) * self.phi * self._trend
        self._season[at] = self.gamma * (rate_rpm - self._level) + (1 - self.gamma) * season

    def _begin_season(self) -> None:
        seen, half, windows = self._seen, self.smooth // 2, self._windows
        self._level = sum(seen) / windows
        near = [[seen[(at + by) % windows] for by in range(-half, half + 1)] for at in range(windows)]
        self._season = [sum(rates) / self.smooth - self._level for rates in near]

    def expected(self, ahead: int) -> float:
        if not self._season:
            return self._seen[-1] if self._seen else 0.0
        trend = self._trend * sum(self.phi**n for n in range(1, ahead + 1))
        season = self._season[(self._at + ahead - 1) % self._windows]
        return max(0.0, self._level + trend + season)
