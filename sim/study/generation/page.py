"""The check of a profile on a later part of its log, as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.profile import Profile
from conf.page import table
from sim.study.generation.cells import Cell
from sim.study.generation.window import Window


@dataclass(frozen=True, slots=True)
class Tried:
    """A window that was tried, as the page shows it.

    Attributes:
        period: time of its requests, in words.
        requests: how many.
        window: its error on the last fifth of the training requests.
        taken: whether the profile is fitted on it.
    """

    period: str
    requests: int
    window: Window
    taken: bool


def render(found: Sequence[Cell], tried: Sequence[Tried], profile: Profile, held_out: str, min_requests: int) -> str:
    """Return the page.

    Args:
        found: the cells of the held-out requests.
        tried: all windows.
        profile: what was fitted.
        held_out: the time of the held-out requests, in words.
        min_requests: of a cell.
    """
    head = ("size", "steps", "requests", "mean [s]", "error", "p90 [s]", "error", "noise of the mean", "")
    rows = [
        (
            f"{cell.width}x{cell.height}", str(cell.steps), f"{cell.requests:,}", f"{cell.mean_s:.2f}",
            f"{100 * cell.mean_error:+.1f} %", f"{cell.p90_s:.2f}", f"{100 * cell.p90_error:+.1f} %",
            f"{100 * cell.noise:.1f} %", "held" if cell.held else "missed",
        )
        for cell in found
    ]  # fmt: skip
    choices = [
        (each.period, f"{each.requests:,}", _percent(each.window.error), "taken" if each.taken else "")
        for each in tried
    ]
    return "\n\n".join(
        [
            f"# Generation seconds: {profile.model} on {profile.gpu}",
            f"{profile.source}.",
            f"The check is made on later requests: the last fifth of the log, {held_out}. No part of it was used for "
            f"the fit. Cells have {min_requests} requests or more; an error is the profile's prediction over what the "
            "requests took, less one. Noise is the standard error of the mean of the held-out requests: no prediction "
            "can be sure to come nearer.",
            table(head, rows),
            "## How far back the fit reaches",
            "A service changes, so the fit uses a recent window. The training requests alone choose it: windows that "
            "begin at each tenth of them are fitted up to their own last fifth and judged on that fifth (mean of the "
            "absolute errors of mean and p90, weighted by requests). The longest window whose error is within the "
            "noise of the smallest is taken, and fitted again up to the end of the training requests.",
            table(("training requests", "requests", "error on their last fifth", ""), choices),
        ]
    ) + "\n"  # fmt: skip


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:.2f} %"
