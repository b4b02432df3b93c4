"""A quantity that was measured at some sizes and batches, and what it is in between."""

from collections.abc import Iterable
from typing import Any

import numpy as np


class Table:
    """A quantity over (pixels, batch), on the points that were measured.

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
        """The largest batch that was measured."""
        return int(self.batches[-1])

    def covers(self, pixels: int, batch: int) -> bool:
        """Whether (pixels, batch) lies inside the measured grid."""
        return all(pix[0] <= pixels <= pix[-1] for pix, _ in self._bracket(batch)) and bool(
            self.batches[0] <= batch <= self.batches[-1]
        )

    def at(self, pixels: int, batch: int) -> float:
        """The value: linear interpolation inside the grid; outside it, the edge scaled by pixels and by batch."""
        found = [_along(pix, values, pixels) for pix, values in self._bracket(batch)]
        sizes = [int(self.batches[i]) for i in self._neighbours(batch)]
        if len(found) == 2:
            return float(np.interp(batch, sizes, found))
        return found[0] * (batch / sizes[0])

    def grid(self) -> str:
        """The measured grid in words, for error messages."""
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

    def _bracket(self, batch: int) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        return [self.rows[i] for i in self._neighbours(batch)]


def _along(pixels: np.ndarray[Any, Any], values: np.ndarray[Any, Any], at: int) -> float:
    if at < pixels[0]:
        return float(values[0] * at / pixels[0])
    if at > pixels[-1]:
        return float(values[-1] * at / pixels[-1])
    return float(np.interp(at, pixels, values))
