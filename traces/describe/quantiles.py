"""Quantiles as facts tell them."""

from typing import Any

import numpy as np
import numpy.typing as npt


def quantiles(values: npt.NDArray[Any], levels: tuple[int, ...]) -> dict[str, float]:
    """Return the percentiles of (n,) values by name: p50 and so on."""
    return {f"p{level}": float(np.percentile(values, level)) for level in levels}
