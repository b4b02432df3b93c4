"""Types of the arrays that statistics are made of, and their percentiles."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Vectors = npt.NDArray[np.float32]

HOUR_S = 3600.0


def quantiles(values: npt.NDArray[Any], levels: tuple[int, ...]) -> dict[str, float] | None:
    """Return percentiles of (n,) values by name: p50 and so on; None without values."""
    return {f"p{level}": float(np.percentile(values, level)) for level in levels} if len(values) else None


def mean(values: npt.NDArray[Any]) -> float | None:
    """Return the mean of (n,) values, the share of (n,) booleans; None without values."""
    return float(values.mean()) if len(values) else None
