"""Arrivals of a trace: rate over time, burstiness, day cycle."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mezzotint.traces.describe.arrays import HOUR_S, Floats, Indices

WINDOWS_S = (60.0, 300.0, 900.0, 3600.0)

MIN_COUNT = 20
"""Fewest gaps or windows of a statistic."""


@dataclass(frozen=True, slots=True)
class ArrivalStatistics:
    """Statistics of the arrivals of a trace.

    Attributes:
        gap_s: (n - 1,) seconds between one arrival and the next.
        by_hour: (24,) share of the requests by hour since the start, modulo 24, corrected for hours observed longer
            than others; None below a day.
        gap_cv: coefficient of variation of the gaps; 1 for a Poisson process.
        gap_cv_by_hour: (24,) the same of the gaps that end in each hour of the day; NaN where there are few.
        dispersion: by window in seconds, variance over mean of the counts in whole windows; 1 for Poisson.
    """

    gap_s: Floats
    by_hour: Floats | None
    gap_cv: float | None
    gap_cv_by_hour: Floats | None
    dispersion: dict[float, float]

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics, JSON-able."""
        known = np.empty(0) if self.gap_cv_by_hour is None else self.gap_cv_by_hour[~np.isnan(self.gap_cv_by_hour)]
        return {
            "gap_cv": self.gap_cv,
            "gap_cv_by_hour_median": float(np.median(known)) if known.size else None,
            "dispersion": {f"{window:g}s": value for window, value in self.dispersion.items()},
            "busiest_hour_over_mean": None if self.by_hour is None else float(self.by_hour.max() * 24),
            "quietest_hour_over_mean": None if self.by_hour is None else float(self.by_hour.min() * 24),
        }


def arrival_statistics(arrival_s: Floats) -> ArrivalStatistics:
    """Measure arrivals, (n,) seconds, never falling; statistics of fewer than `MIN_COUNT` gaps or windows are None."""
    since_s = arrival_s - arrival_s[0]
    gap_s = np.diff(arrival_s)
    span_s = float(since_s[-1])
    of_day = (since_s // HOUR_S % 24).astype(np.int64)
    has_day = span_s >= 24 * HOUR_S
    dispersion = {}
    for window_s in WINDOWS_S:
        windows = int(span_s // window_s)
        if windows >= MIN_COUNT:
            dispersion[window_s] = _dispersion(since_s[since_s < windows * window_s] // window_s, windows)
    return ArrivalStatistics(
        gap_s=gap_s,
        by_hour=_of_day(of_day, span_s) if has_day else None,
        gap_cv=_variation(gap_s),
        gap_cv_by_hour=_by_hour(gap_s, of_day[1:]) if has_day else None,
        dispersion=dispersion,
    )


def _dispersion(window: Floats, windows: int) -> float:
    """Return variance over mean of the counts in `windows` windows, from the window of each request, (n,).

    Empty windows are counted and not laid out: a decade has five million minutes.
    """
    counts = np.unique(window, return_counts=True)[1]
    mean = len(window) / windows
    empty = windows - len(counts)
    return float((((counts - mean) ** 2).sum() + empty * mean**2) / (windows - 1) / mean)


def _of_day(of_day: Indices, span_s: float) -> Floats:
    days, rest_s = divmod(span_s, 24 * HOUR_S)
    seen_s = days * HOUR_S + np.clip(rest_s - HOUR_S * np.arange(24), 0.0, HOUR_S)
    rate = np.bincount(of_day, minlength=24) / seen_s
    shares: Floats = rate / rate.sum()
    return shares


def _by_hour(gap_s: Floats, of_day: Indices) -> Floats:
    return np.array([_variation(gap_s[of_day == hour]) for hour in range(24)], np.float64)  # None is NaN


def _variation(gap_s: Floats) -> float | None:
    mean = float(gap_s.mean()) if gap_s.size else 0.0
    return float(gap_s.std()) / mean if gap_s.size >= MIN_COUNT and mean > 0 else None
