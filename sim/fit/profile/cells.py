"""A profile against requests that it was not fitted on, and the choice of those that it is: a service changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from backends.base import Work
from backends.profiled import Profiled
from sim.fit.profile.observed import Observed

TOLERANCE = 0.05
"""Relative error that is held."""

HELD_OUT = 0.2
"""Share of the requests, the last to arrive, that is held out."""

STARTS = 10
"""Starts of the window that are tried."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The held-out requests of one size and number of steps: mean and 90th percentile of their seconds, the relative
    errors of the profile's, and the relative standard error of the mean, which no profile can be nearer than."""

    width: int
    height: int
    steps: int
    requests: int
    mean_s: float
    p90_s: float
    mean_error: float
    p90_error: float
    noise: float

    @property
    def error(self) -> float:
        """The larger of both errors, without its sign."""
        return max(abs(self.mean_error), abs(self.p90_error))

    @property
    def held(self) -> bool:
        """Whether both are within the tolerance."""
        return self.error <= TOLERANCE


def cells(held_out: Observed, backend: Profiled, model: str, least: int) -> list[Cell]:
    """The cells of at least ``least`` requests that ``backend`` predicts, the most frequent first.

    Raises BackendError where a size is outside the profile's grid.
    """
    asked = np.stack([held_out.width, held_out.height, held_out.steps])
    kinds, which, counts = np.unique(asked, axis=1, return_inverse=True, return_counts=True)
    scatter, found = backend.profiles[model].scatter, []
    for kind in np.argsort(-counts, kind="stable"):
        if counts[kind] < least:
            break
        work, seconds = Work(model, *kinds[:, kind].tolist()), held_out.seconds[which.ravel() == kind]
        typical_s = backend.typical_s(work)
        mean, p90 = (1.0, 1.0) if scatter is None else (scatter.mean(typical_s), scatter.quantile(typical_s, 0.9))
        mean_s, p90_s = float(seconds.mean()), float(np.quantile(seconds, 0.9))
        errors = typical_s * mean / mean_s - 1, typical_s * p90 / p90_s - 1
        noise = float(seconds.std() / np.sqrt(len(seconds)) / mean_s)
        found.append(Cell(work.width, work.height, work.steps, len(seconds), mean_s, p90_s, *errors, noise))
    return found


def told(found: Sequence[Cell]) -> str:
    held, requests = sum(cell.held for cell in found), sum(cell.requests for cell in found)
    inside = sum(cell.requests for cell in found if cell.held)
    worst = max((cell.error for cell in found), default=0.0)
    share = f", {100 * inside / requests:.1f} % of the {requests:,} held-out requests" if requests else ""
    return (
        f"mean and p90 within {100 * TOLERANCE:g} % in {held} of {len(found)} cells of one size and number of steps"
        f"{share}, worst {100 * worst:.1f} %"
    )


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
