"""Panels of users and sessions."""

from matplotlib.axes import Axes

from mezzotint.traces.describe.figures.axes import (
    Series,
    annotate,
    durations,
    falling,
    logarithmic,
    ranked,
    rising,
    shares,
)
from mezzotint.traces.describe.users import UserStatistics
from mezzotint.traces.table.sessions import SESSION_GAP_S


def activity(panel: Axes, series: Series[UserStatistics]) -> None:
    ranked(panel, [(look, found.each) for look, found in series])
    panel.set(xlabel="Users, the most active first", ylabel="Requests of the user", title="Activity of users")
    lines = [f"{len(found.each):,} users, Gini {found.gini:.2f}" for _, found in series]
    annotate(panel, "\n".join(lines), 0.03, 0.06 + 0.04 * len(lines))


def session_length(panel: Axes, series: Series[UserStatistics]) -> None:
    for look, found in series:
        falling(panel, found.length, look)
    logarithmic(panel, "x")
    logarithmic(panel, "y", percent=True)
    title = f"Sessions (pauses up to {SESSION_GAP_S / 60:.0f} min)"
    panel.set(xlabel="Requests of a session", ylabel="Sessions at least as long", title=title)
    lines = [f"{len(found.length):,} sessions, mean {found.length.mean():.1f}" for _, found in series]
    annotate(panel, "\n".join(lines), 0.03, 0.06 + 0.04 * len(lines))


def session_gap(panel: Axes, series: Series[UserStatistics]) -> None:
    rising(panel, [(look, found.gap_s) for look, found in series])
    durations(panel, 1.0, SESSION_GAP_S, "Gap between requests of a session")
    shares(panel, "Gaps no longer")
    panel.set_title("Pace within a session")
