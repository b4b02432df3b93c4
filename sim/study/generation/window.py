"""Division of a log by time: the requests that a profile is fitted on, and the later requests that check it.

A service changes: a fit that pools its slow days with its fast ones predicts neither, and a check on random requests of
the same days cannot show it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.study.generation.cells import Cell
from sim.study.generation.observed import Observed

HELD_OUT = 0.2
"""Share of the requests, the last to arrive, that is held out."""

STARTS = 10
"""Starts of the window that are tried."""


@dataclass(frozen=True, slots=True)
class Window:
    """The training requests from one start on, and the error of their fit on the last fifth of the training requests.

    Attributes:
        start: index of the first request.
        error: mean of the absolute errors of mean and p90 over all cells, weighted by requests; None where nothing
            could be compared.
        noise: standard error of the cells' means, relative, with the same weights.
    """

    start: int
    error: float | None
    noise: float


Check = Callable[[Observed, Observed], Sequence[Cell]]
"""Fit on the first requests, and return the cells of the second ones."""


def split(seen: Observed) -> tuple[Observed, Observed]:
    """Return the earlier requests and the last fifth, at least one request each."""
    cut = min(max(round(len(seen) * (1 - HELD_OUT)), 1), len(seen) - 1)
    return seen[:cut], seen[cut:]


def windows(training: Observed, check: Check) -> list[Window]:
    """Judge windows of different length on the last fifth of the training requests, the longest window first.

    Each window ends where that fifth begins. No held-out request takes part.
    """
    if len(training) < 2:
        return [Window(0, None, 0.0)]
    earlier, later = split(training)
    starts = dict.fromkeys(len(earlier) * tenth // STARTS for tenth in range(STARTS))
    return [_window(start, check(earlier[start:], later)) for start in starts]


def longest(found: Sequence[Window]) -> Window:
    """Return the longest window whose error is within the noise of the smallest error.

    This is the one-standard-error rule (Breiman et al., Classification and Regression Trees, 1984, section 3.4.3).
    """
    judged = [(window.error, window) for window in found if window.error is not None]
    if not judged:
        return found[0]
    error, best = min(judged, key=lambda each: each[0])
    return next(window for other, window in judged if other <= error + best.noise)


def _window(start: int, cells: Sequence[Cell]) -> Window:
    requests = sum(cell.requests for cell in cells)
    if not requests:
        return Window(start, None, 0.0)
    error = sum(cell.requests * (abs(cell.mean_error) + abs(cell.p90_error)) / 2 for cell in cells)
    return Window(start, error / requests, sum(cell.requests * cell.noise for cell in cells) / requests)
