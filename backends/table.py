"""Interpolation of a quantity measured at some image sizes and batches."""

from collections.abc import Iterable
from typing import Any

import numpy as np


class Table:
    """A quantity over (pixels, batch), interpolated between measured points.

    Args:
        points: (pixels per image, batch, value).
    """

    def __init__(self, points: Iterable[tuple[int, int, float]]) -> None:
        rows: dict[int, dict[int, float]] = {}
        for pixels, batch, value in points:
            rows.setdefault(batch, {})[pixels] = value
        self.batches = np.array(sorted(rows))
        self.rows = [(np.array(sorted(rows[b])), np.array([rows[b][p] for p in sorted(rows[b])])) for b in self.batches]

    @property
    def max_batch(self) -> int:
        return int(self.batches[-1])

    def covers(self, pixels: int, batch: int, tolerance: float = 0.0) -> bool:
        """Return True if (pixels, batch) lies inside the measured grid, wider by ``tolerance`` of its edges' pixels."""
        inside = bool(self.batches[0] <= batch <= self.batches[-1])
        # A batch between two measured ones is interpolated from both rows
        # (test_points_outside_the_grid_are_not_covered).
        low, high = 1 - tolerance, 1 + tolerance
        rows = (self.rows[i][0] for i in self._neighbours(batch))
        return inside and all(low * sizes[0] <= pixels <= high * sizes[-1] for sizes in rows)

    def max_covered(self, pixels: int, batch: int) -> int | None:
        """Return the largest batch up to ``batch`` that the grid covers at ``pixels``; None if it covers none."""
        upto = [batch, *(int(b) for b in self.batches[::-1] if b < batch)]
        return next((each for each in upto if self.covers(pixels, each)), None)

    def at(self, pixels: int, batch: int) -> float:
        """Interpolate linearly inside the grid; outside it, scale its edge by pixels and by batch."""
        near = self._neighbours(batch)
        values, sizes = [_along(*self.rows[i], pixels) for i in near], self.batches[near]
        if len(values) == 2:
            return float(np.interp(batch, sizes, values))
        # In proportion to the batch, beyond both ends (test_batch_beyond_the_grid_is_extrapolated_and_stated).
        return values[0] * (batch / int(sizes[0]))

    def grid(self) -> str:
        """Describe the measured grid, for error messages."""
        return "; ".join(
            f"batch {b}: {', '.join(str(int(p)) for p in pix)} pixels"
            for b, (pix, _) in zip(self.batches, self.rows, strict=True)
        )

    def _neighbours(self, batch: int) -> list[int]:
        right = int(np.searchsorted(self.batches, batch))
        if right < len(self.batches) and self.batches[right] == batch:
            return [right]
        if right == 0:
            return [0]
        return [right - 1] if right == len(self.batches) else [right - 1, right]


def _along(pixels: np.ndarray[Any, Any], values: np.ndarray[Any, Any], at: int) -> float:
    # In proportion to the pixels, beyond both ends (test_extrapolation_scales_by_pixels_and_is_stated).
    if at < pixels[0]:
        return float(values[0] * at / pixels[0])
    if at > pixels[-1]:
        return float(values[-1] * at / pixels[-1])
    return float(np.interp(at, pixels, values))
