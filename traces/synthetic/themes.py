"""What prompts are about at which time: subjects whose popularity drifts over days."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from traces.synthetic.clock import DAY_S
from traces.synthetic.laws import Floats, Indices

STEP_S = 6 * 3600.0
MOST_STEPS = 20_000
TOPICS = 40
"""Subjects are cut into so many neighbourhoods, which rise and fall together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Themes:
    """The law of subjects.

    Args:
        theme_skew: exponent of the Zipf law of subjects, all days together.
        theme_sigma: width of the log-normal law by which a topic's popularity leaves its mean; 0 stops the drift.
        theme_days: days in which a topic's popularity forgets all but 1/e of where it was.
    """

    theme_skew: float
    theme_sigma: float
    theme_days: float

    def heights(self, subjects: int, arrival_s: Floats, rng: np.random.Generator) -> tuple[Floats, Indices]:
        """How to draw subjects at any time: cumulative weights, (periods x subjects,), each period's from its
        number to its number + 1; and the period of each row, (n,)."""
        step_s = max(STEP_S, float(arrival_s[-1]) / MOST_STEPS)
        period = (arrival_s / step_s).astype(np.int64)
        periods = int(period[-1]) + 1
        keep = math.exp(-step_s / (self.theme_days * DAY_S))
        noise = rng.standard_normal((periods, TOPICS))
        noise[1:] *= math.sqrt(1 - keep**2)
        level = self.theme_sigma * lfilter([1.0], [1.0, -keep], noise, axis=0)
        weight = np.arange(1, subjects + 1, dtype=np.float64) ** -self.theme_skew
        topic = np.arange(subjects) * TOPICS // subjects
        heights = np.cumsum(weight * np.exp(level)[:, topic], axis=1)
        heights /= heights[:, -1:]
        numbered: Floats = heights + np.arange(periods, dtype=np.float64)[:, None]
        return numbered.ravel(), period
