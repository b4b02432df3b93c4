"""What is popular at which time: subjects and styles whose popularity drifts over days."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from traces.synthetic.clock import DAY_S
from traces.synthetic.laws import Floats, Indices

STEP_S = 6 * 3600.0
MOST_CELLS = 4_000_000
"""Longer traces, or more things, have longer periods: bounds the memory."""
TOPICS = 40
"""Subjects, and styles, fall into so many groups, each of which rises and falls as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Themes:
    """The law of popularity.

    Args:
        theme_sigma: width of the log-normal law by which a group's popularity leaves its mean; 0 stops the drift.
        theme_days: days in which a group's popularity forgets all but 1/e of where it was.
    """

    theme_sigma: float
    theme_days: float

    def heights(self, things: int, skew: float, arrival_s: Floats, rng: np.random.Generator) -> tuple[Floats, Indices]:
        """How to draw things at any time, by a Zipf law of exponent `skew` all days together: cumulative weights,
        (periods x things,), each period's from its number to its number + 1; and the period of each row, (n,)."""
        step_s = max(STEP_S, float(arrival_s[-1]) * things / MOST_CELLS)
        period = (arrival_s / step_s).astype(np.int64)
        periods = int(period[-1]) + 1
        keep = math.exp(-step_s / (self.theme_days * DAY_S))
        noise = rng.standard_normal((periods, TOPICS))
        noise[1:] *= math.sqrt(1 - keep**2)
        level = self.theme_sigma * lfilter([1.0], [1.0, -keep], noise, axis=0)
        weight = np.arange(1, things + 1, dtype=np.float64) ** -skew
        heights = np.cumsum(weight * np.exp(level)[:, np.arange(things) % TOPICS], axis=1)
        heights /= heights[:, -1:]
        heights += np.arange(periods, dtype=np.float64)[:, None]
        return heights.ravel(), period
