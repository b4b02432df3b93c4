"""Starts of sessions: a Poisson process whose rate follows the hour of the day and has bursts."""

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from mezzotint.traces.synthetic.distributions import Floats

DAY_S = 86_400.0
STEP_S = 300.0
MAX_STEPS = 2_000_000


def day_cycle(time_s: Floats, day_ratio: float, peak_hour: float) -> Floats:
    """Return the rate at `time_s`, (n,), over its mean of a day: exp(k cos(2 pi (t - peak) / 24 h)) / I0(k).

    `day_ratio` = exp(2 k) is the highest rate over the lowest.
    """
    from scipy.special import i0  # slow to import, and most traces have no day; numpy's differs in the last bit

    swing = math.log(day_ratio) / 2
    rate: Floats = np.exp(swing * np.cos(2 * np.pi * (time_s / DAY_S - peak_hour / 24))) / i0(swing)
    return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRate:
    """Rate of new sessions over time, as a multiple of its mean.

    At time t it is day(t) x burst(t). day(t) is `day_cycle`, of mean 1 over a day. burst(t) is log-normal of mean 1 and
    coefficient of variation `burst_cv`, with a correlation that falls to 1/e in `burst_s`.

    Args:
        day_ratio: busiest over quietest moment of the day, at least 1; 1 switches the cycle off.
        peak_hour: hours from the trace's start to the busiest moment, the same every day.
        burst_cv: 0 switches bursts off.
        burst_s: seconds.
    """

    day_ratio: float
    peak_hour: float
    burst_cv: float
    burst_s: float

    def starts(self, rate_hz: float, since_s: float, until_s: float, rng: np.random.Generator) -> Floats:
        """Draw times of a Poisson process of mean rate `rate_hz` from `since_s` to `until_s`, sorted, seconds."""
        span_s = until_s - since_s
        if self.day_ratio == 1.0 and self.burst_cv == 0.0:
            return since_s + np.sort(rng.random(rng.poisson(rate_hz * span_s))) * span_s
        step_s = max(min(STEP_S, self.burst_s / 4), span_s / MAX_STEPS)
        edges: Floats = since_s + np.arange(math.ceil(span_s / step_s) + 1, dtype=np.float64) * step_s
        total = np.zeros(len(edges))
        np.cumsum(self._rate(edges[:-1] + step_s / 2, step_s, rng) * step_s, out=total[1:])
        clock = np.sort(rng.random(rng.poisson(rate_hz * total[-1]))) * total[-1]
        times: Floats = np.interp(clock, total, edges)
        return times[times < until_s]

    def _rate(self, time_s: Floats, step_s: float, rng: np.random.Generator) -> Floats:
        rate = day_cycle(time_s, self.day_ratio, self.peak_hour)
        if self.burst_cv > 0.0:
            sigma = math.sqrt(math.log1p(self.burst_cv**2))
            keep = math.exp(-step_s / self.burst_s)
            noise = rng.standard_normal(len(time_s))
            noise[1:] *= math.sqrt(1 - keep**2)
            level = np.fromiter(accumulate(noise.tolist(), lambda was, step: keep * was + step), np.float64, len(noise))
            rate = rate * np.exp(sigma * level - sigma**2 / 2)
        return np.asarray(rate, np.float64)
