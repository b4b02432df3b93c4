"""Forecasts of the request rate in the next windows, from the windows before them."""

from dataclasses import dataclass, field

from mezzotint.settings.ranges import Count, Share, SomeSeconds
from mezzotint.sim.control.monitor import Forecast
from mezzotint.sim.core.errors import ConfigError


@dataclass(slots=True)
class HoltWinters(Forecast):
    """Exponential smoothing with a damped trend and an additive season (Holt 1957, Winters 1960): the day's shape.

    Until a whole season was observed it expects the rate of the last window. That season sets the first level, trend
    and deviations. Each later window moves them: l' = alpha (y - s) + (1 - alpha)(l + phi b). Trend and season follow:
    b' = beta (l' - l) + (1 - beta) phi b. s' = gamma (y - l') + (1 - gamma) s.

    Args:
        season_s: length of the season in seconds, a day; two windows at least.
        alpha, beta, gamma: weights of a new window in level, trend and season.
        phi: share of the trend that is left a window later.
        smooth: number of windows, odd, to average the first season over: a window's count is noisy.
    """

    season_s: SomeSeconds = 86400.0
    alpha: Share = 0.2
    beta: Share = 0.02
    gamma: Share = 0.3
    phi: Share = 0.9
    smooth: Count = 5
    _first_rates: list[float] = field(init=False, default_factory=list, repr=False)
    _season: list[float] = field(init=False, default_factory=list, repr=False)
    _windows: int = field(init=False, default=0, repr=False)
    _observed: int = field(init=False, default=0, repr=False)
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
        place, self._observed = self._observed % self._windows, self._observed + 1
        if not self._season:
            self._first_rates.append(rate_rpm)
            if len(self._first_rates) == self._windows:
                self._begin_season()
            return
        season, last_level = self._season[place], self._level
        self._level = self.alpha * (rate_rpm - season) + (1 - self.alpha) * (last_level + self.phi * self._trend)
        self._trend = self.beta * (self._level - last_level) + (1 - self.beta) * self.phi * self._trend
        self._season[place] = self.gamma * (rate_rpm - self._level) + (1 - self.gamma) * season

    def _begin_season(self) -> None:
        rates, half, windows = self._first_rates, self.smooth // 2, self._windows
        self._level = sum(rates) / windows
        around = [[rates[(place + i) % windows] for i in range(-half, half + 1)] for place in range(windows)]
        self._season = [sum(near) / self.smooth - self._level for near in around]

    def expected(self, ahead: int) -> float:
        if not self._season:
            return self._first_rates[-1] if self._first_rates else 0.0
        trend = self._trend * sum(self.phi**n for n in range(1, ahead + 1))
        season = self._season[(self._observed + ahead - 1) % self._windows]
        return max(0.0, self._level + trend + season)
