"""Distributions of synthetic traffic, and inheritance of draws from one request to the next."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mezzotint.traces.error import TraceError

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def zipf(size: int, skew: float, count: int, rng: np.random.Generator, shift: float = 0.0) -> Indices:
    """Return `count` draws from 0..size-1 with weights (1 + rank + shift) ** -skew (Zipf, Mandelbrot)."""
    return choices(np.asarray((np.arange(1, size + 1) + shift) ** -skew, np.float64), count, rng)


def choices(weights: Floats, count: int, rng: np.random.Generator) -> Indices:
    """Return `count` draws from 0..len(weights)-1 with these weights."""
    heights = np.cumsum(weights)
    drawn: Indices = np.searchsorted(heights, rng.random(count) * heights[-1], side="right").astype(np.int64)
    return np.minimum(drawn, len(weights) - 1)


def lognormal(median: float, sigma: float, count: int, rng: np.random.Generator) -> Floats:
    """Return `count` log-normal draws with this median and standard deviation of the logarithm."""
    return rng.lognormal(math.log(median), sigma, count)


def inherited_from(is_new: Flags, parent: Indices) -> Indices:
    """Return the row whose draw each row has, (n,): itself if new, else that of its parent.

    Each round halves the longest chain of parents, so there are few rounds.
    """
    source = np.where(is_new, np.arange(len(parent)), parent)
    while True:
        further = source[source]
        if np.array_equal(further, source):
            return source
        source = further


def numbered_names(prefix: str, numbers: Indices, size: int) -> pa.Array:
    """Return names of equal length for numbers from 0 to `size` - 1, such as `prefix`-07."""
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), len(str(max(size - 1, 0))), "0")
    return pc.binary_join_element_wise(pa.scalar(prefix), digits, "-")


def split_weights(
    rows: Sequence[Sequence[Any]], name: str, widths: Sequence[int], where: str = "synthetic trace"
) -> tuple[Indices, Floats]:
    """Split rows of positive whole numbers and a weight: (n, width) values, (n,) weights that sum to 1.

    Args:
        widths: the numbers of values that rows may have; all rows have one of them.

    Raises TraceError if `rows`, the setting `name`, has another form, or is empty.
    """
    try:
        table = np.array([list(row) for row in rows], np.float64)
    except (TypeError, ValueError):
        table = np.empty(0)
    positive = table.ndim == 2 and table.shape[1] - 1 in widths and ((table > 0) & (table < 2.0**63)).all()
    if not positive or (table[:, :-1] % 1.0).any():
        numbers = " or ".join(map(str, widths))
        expected = f"expected rows of {numbers} positive whole numbers and a positive weight, each below 2^63"
        raise TraceError(f"{where}: {name}={rows!r}, {expected}")
    return table[:, :-1].astype(np.int64), table[:, -1] / table[:, -1].sum()
