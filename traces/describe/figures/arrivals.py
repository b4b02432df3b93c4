"""Panels of arrivals (rate over time, gaps, the day, bursts), of users and of their sessions."""

import numpy as np
from matplotlib.axes import Axes

from mezzotint.figures.palette import INK
from mezzotint.traces.describe.arrays import HOUR_S
from mezzotint.traces.describe.arrivals import ArrivalStatistics
from mezzotint.traces.describe.figures.axes import (
    Series,
    ages,
    annotate,
    draw_ranks,
    durations,
    empty,
    falling,
    logarithmic,
    published,
)
from mezzotint.traces.describe.users import UserStatistics
from mezzotint.traces.table.sessions import SESSION_GAP_S

BINS = {
    60.0: "1 min", 300.0: "5 min", 900.0: "15 min", 3600.0: "1 h", 4 * 3600.0: "4 h", 86_400.0: "1 d",
    7 * 86_400.0: "7 d",
}  # fmt: skip
"""Seconds -> name of a bin; includes the windows of `mezzotint.traces.describe.arrivals`."""

MAX_BINS = 140
"""Bins of the rate over time, at most; a longer trace gets wider bins."""


def rate(panel: Axes, series: Series[ArrivalStatistics]) -> None:
    span_s = max(float(traffic.gap_s.sum()) for _, traffic in series)
    bin_s = next((seconds for seconds in BINS if span_s / seconds <= MAX_BINS), max(BINS))
    unit_s, unit = (86_400.0, "days") if span_s > 4 * 86_400 else (HOUR_S, "hours")
    for look, traffic in series:
        at_s = np.concatenate(([0.0], np.cumsum(traffic.gap_s)))
        edges = np.arange(0.0, at_s[-1] + bin_s, bin_s)
        counts = np.histogram(at_s, edges)[0]
        complete = counts[:-1] if len(counts) > 1 else counts  # the last bin is cut short
        panel.stairs(complete / bin_s * 60.0, edges[: len(complete) + 1] / unit_s, color=look.colour)
    panel.set_ylim(bottom=0.0)
    label = f"Requests per minute, by {BINS[bin_s]}"
    panel.set(xlabel=f"Time since the start ({unit})", ylabel=label, title="Rate over time")


def gaps(panel: Axes, series: Series[ArrivalStatistics]) -> None:
    """Draw gaps between arrivals beside those of a Poisson process of the same rate."""
    longest = 0.0
    for look, traffic in series:
        if not traffic.gap_s.any():
            continue
        falling(panel, traffic.gap_s[traffic.gap_s > 0], look)
        longest = max(longest, float(traffic.gap_s.max()))
        mean = float(traffic.gap_s.mean())
        at_s = np.geomspace(mean / 100, mean * 15, 200)
        panel.plot(at_s, np.exp(-at_s / mean), color=look.colour, linestyle=":", linewidth=1.1)
    lowest = min(1.0 / (len(traffic.gap_s) + 1) for _, traffic in series)
    panel.set_yscale("log")
    panel.set_ylim(max(lowest, 1e-6), 1.3)
    logarithmic(panel, "y", percent=True)
    durations(panel, 0.5, longest * 1.2, "Gap between one arrival and the next")
    panel.set(ylabel="Gaps at least as long", title="Burstiness: gaps")
    lines = [f"variation {traffic.gap_cv:.2f}" for _, traffic in series if traffic.gap_cv is not None]
    annotate(panel, "; ".join(lines) + f"\ndotted: Poisson, {published()['poisson']:.0f}", 0.03, 0.14)


def dispersion(panel: Axes, series: Series[ArrivalStatistics]) -> None:
    windows = sorted({window for _, traffic in series for window in traffic.dispersion})
    for look, traffic in series:
        shift, width = look.offset(0.7)
        at = [position + shift for position, window in enumerate(windows) if window in traffic.dispersion]
        heights = list(traffic.dispersion.values())
        bars = panel.bar(at, heights, width, color=look.colour)
        panel.bar_label(bars, [f"{height:.3g}" for height in heights], fontsize=7.5, padding=2)
    panel.axhline(published()["poisson"], color=INK, linestyle="--", linewidth=1.0)
    annotate(panel, "dashed: Poisson, 1", 0.03, 0.93)
    panel.set_xticks(range(len(windows)), [BINS[window] for window in windows])
    panel.margins(y=0.15)
    panel.grid(False, axis="x")
    panel.set(xlabel="Window", ylabel="Variance over mean of the counts", title="Burstiness: counts")


def day(panel: Axes, series: Series[ArrivalStatistics]) -> None:
    for look, traffic in series:
        if traffic.by_hour is not None:
            panel.stairs(traffic.by_hour * 24, np.arange(25), color=look.colour, linewidth=1.6, baseline=None)
    _by_hour(panel, series)
    panel.set(ylabel="Rate over the mean", title="Day cycle")


def variation(panel: Axes, series: Series[ArrivalStatistics]) -> None:
    for look, traffic in series:
        if traffic.gap_cv_by_hour is not None:
            panel.plot(np.arange(24) + 0.5, traffic.gap_cv_by_hour, color=look.colour, marker="o", markersize=3)
    _by_hour(panel, series)
    annotate(panel, "dashed: Poisson, 1", 0.97, 0.93, left=False)
    panel.set(ylabel="Variation of gaps (std over mean)", title="Burstiness by the hour")


def _by_hour(panel: Axes, series: Series[ArrivalStatistics]) -> None:
    """Draw an x axis of the hours of a day, and a dashed line at 1."""
    panel.axhline(1.0, color=INK, linestyle="--", linewidth=1.0)
    panel.set_xlim(0, 24)
    panel.set_xticks(range(0, 25, 4))
    panel.set_ylim(bottom=0.0)
    panel.set_xlabel("Hour of the day, from the start")
    if all(traffic.by_hour is None for _, traffic in series):
        empty(panel, "needs a day or more")


def activity(panel: Axes, series: Series[UserStatistics]) -> None:
    draw_ranks(panel, [(look, traffic.requests) for look, traffic in series])
    panel.set(xlabel="Users, the most active first", ylabel="Requests of the user", title="Activity of users")
    lines = [f"{len(traffic.requests):,} users, Gini {traffic.gini:.2f}" for _, traffic in series]
    annotate(panel, "\n".join(lines), 0.03, 0.06 + 0.04 * len(lines))


def session_length(panel: Axes, series: Series[UserStatistics]) -> None:
    for look, traffic in series:
        falling(panel, traffic.length, look)
    logarithmic(panel, "x")
    logarithmic(panel, "y", percent=True)
    title = f"Sessions (pauses up to {SESSION_GAP_S / 60:.0f} min)"
    panel.set(xlabel="Requests of a session", ylabel="Sessions at least as long", title=title)
    lines = [f"{len(traffic.length):,} sessions, mean {traffic.length.mean():.1f}" for _, traffic in series]
    annotate(panel, "\n".join(lines), 0.03, 0.06 + 0.04 * len(lines))


def session_gap(panel: Axes, series: Series[UserStatistics]) -> None:
    gaps_s = [(look, traffic.gap_s) for look, traffic in series]
    ages(panel, gaps_s, "Gap between requests of a session", "Gaps no longer", "Pace within a session", SESSION_GAP_S)
