"""Division of a log by time: requests to fit on, and later ones to check, since a service changes from day to day."""

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
    """The training requests from ``start`` on, and the error of their fit on the last fifth of the training requests.

    ``error`` is the mean of the absolute errors of mean and p90 over all cells, weighted by requests, None where
    nothing could be compared; ``noise`` the relative standard error of the cells' means, with the same weights.
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
    found = []
    for start in dict.fromkeys(len(earlier) * tenth // STARTS for tenth in range(STARTS)):
        cells = check(earlier[start:], later)
        requests = sum(cell.requests for cell in cells)
        error = sum(cell.requests * (abs(cell.mean_error) + abs(cell.p90_error)) / 2 for cell in cells)
        noise = sum(cell.requests * cell.noise for cell in cells)
        found.append(Window(start, error / requests, noise / requests) if requests else Window(start, None, 0.0))
    return found


def longest(found: Sequence[Window]) -> Window:
    """Return the longest window whose error is within the noise of the smallest error.

    This is the one-standard-error rule (Breiman et al., Classification and Regression Trees, 1984, section 3.4.3).
    """
    judged = [(window.error, window) for window in found if window.error is not None]
    if not judged:
        return found[0]
    error, best = min(judged, key=lambda each: each[0])
    return next(window for other, window in judged if other <= error + best.noise)
