"""Errors of a profile on held-out requests, and the choice of the recent window to fit it on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mezzotint.backends.base import Work
from mezzotint.backends.profiled import Profiled
from mezzotint.sim.fit.profile.observed import SHAPE

TOLERANCE = 0.05
"""Largest relative error that counts as within tolerance."""

HELD_OUT = 0.2
"""Share of the requests that is held out: the last to arrive."""

MAX_WINDOWS = 10
"""Number of window starts to try."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The profile's errors on the held-out requests of one size and number of steps.

    Attributes:
        mean_s, p90_s: mean and 90th percentile of the observed seconds.
        mean_error, p90_error: relative errors of the profile's mean and 90th percentile.
        noise: relative standard error of the observed mean, a lower bound of any profile's expected error.
    """

    width: int
    height: int
    frames: int
    steps: int
    requests: int
    mean_s: float
    p90_s: float
    mean_error: float
    p90_error: float
    noise: float

    @property
    def error(self) -> float:
        """The larger of the two absolute errors."""
        return max(abs(self.mean_error), abs(self.p90_error))

    @property
    def is_within_tolerance(self) -> bool:
        """True if both errors are within the tolerance."""
        return self.error <= TOLERANCE


def measure_cells(held_out: pd.DataFrame, backend: Profiled, model: str, min_requests: int) -> list[Cell]:
    """Return the cells of at least ``min_requests`` requests, the most frequent first.

    Raises:
        BackendError: a size is outside the profile's grid.
    """
    scatter, cells = backend.profiles[model].scatter, []
    groups: list[Any] = [(shape, group["seconds"].to_numpy()) for shape, group in held_out.groupby(SHAPE)]
    for (width, height, steps, frames), seconds in sorted(groups, key=lambda group: -len(group[1])):
        if len(seconds) < min_requests:
            break
        typical_s = backend.typical_s(Work(model, width, height, steps, frames=frames))
        mean, p90 = (1.0, 1.0) if scatter is None else (scatter.mean(typical_s), scatter.quantile(typical_s, 0.9))
        mean_s, p90_s = float(seconds.mean()), float(np.quantile(seconds, 0.9))
        errors = typical_s * mean / mean_s - 1, typical_s * p90 / p90_s - 1
        noise = float(seconds.std() / np.sqrt(len(seconds)) / mean_s)
        cells.append(Cell(width, height, frames, steps, len(seconds), mean_s, p90_s, *errors, noise))
    return cells


def accuracy_text(cells: Sequence[Cell]) -> str:
    """Return one line: the share of cells and requests within the tolerance, and the worst error."""
    if not cells:
        return "not checked: no size and number of steps has so many held-out requests as --least asks for"
    within = [cell for cell in cells if cell.is_within_tolerance]
    requests = sum(cell.requests for cell in cells)
    inside = sum(cell.requests for cell in within)
    worst = max(cell.error for cell in cells)
    return (
        f"mean and p90 within {100 * TOLERANCE:g} % in {len(within)} of {len(cells)} cells of one size and number of "
        f"steps, {100 * inside / requests:.1f} % of the {requests:,} held-out requests, worst {100 * worst:.1f} %"
    )


@dataclass(frozen=True, slots=True)
class Window:
    """The training requests from ``start`` on, judged by their fit's error on the last fifth of them.

    Attributes:
        error: mean of the absolute errors of mean and p90 over all cells, weighted by requests; None without cells.
        noise: relative standard error of the cells' means, with the same weights.
    """

    start: int
    error: float | None
    noise: float


Check = Callable[[pd.DataFrame, pd.DataFrame], Sequence[Cell]]
"""(requests to fit, requests to check) -> cells of the second."""


def split(seen: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the earlier requests and the last fifth, at least one request each."""
    cut = min(max(round(len(seen) * (1 - HELD_OUT)), 1), len(seen) - 1)
    return seen[:cut], seen[cut:]


def judge_windows(training: pd.DataFrame, check: Check) -> list[Window]:
    """Judge windows of different length on the last fifth of the training requests, the longest window first.

    Each window ends where that fifth begins. No held-out request takes part.
    """
    if len(training) < 2:
        return [Window(0, None, 0.0)]
    earlier, later = split(training)
    windows = []
    for start in dict.fromkeys(len(earlier) * tenth // MAX_WINDOWS for tenth in range(MAX_WINDOWS)):
        cells = check(earlier[start:], later)
        requests = sum(cell.requests for cell in cells)
        error = sum(cell.requests * (abs(cell.mean_error) + abs(cell.p90_error)) / 2 for cell in cells)
        noise = sum(cell.requests * cell.noise for cell in cells)
        windows.append(Window(start, error / requests, noise / requests) if requests else Window(start, None, 0.0))
    return windows


def longest(windows: Sequence[Window]) -> Window:
    """Return the longest window whose error is within the noise of the smallest error.

    This is the one-standard-error rule (Breiman et al., Classification and Regression Trees, 1984, section 3.4.3).
    """
    with_error = [(window.error, window) for window in windows if window.error is not None]
    if not with_error:
        return windows[0]
    error, best = min(with_error, key=lambda pair: pair[0])
    return next(window for other, window in with_error if other <= error + best.noise)
