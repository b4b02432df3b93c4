"""Latency limits: multiples of the standalone latency, or seconds; of all requests, of a size, or a request's own."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mezzotint.backends.base import size_text
from mezzotint.sim.core.errors import ConfigError

OWN = "own"
"""Name of the requests' own deadlines among the limits of a summary."""

MAX_MULTIPLE = 1e6
MAX_S = 1e9
"""Thirty years."""


@dataclass(frozen=True, slots=True, order=True)
class Limit:
    """A latency limit: ``value`` times the request's standalone latency (x), or seconds (s)."""

    unit: Literal["x", "s"]
    value: float

    def __str__(self) -> str:
        return f"{self.value:g}{self.unit}"

    def seconds(self, standalone_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the limit of requests of this standalone latency, in seconds; one for all if it is in seconds."""
        return np.asarray(self.value * standalone_s if self.unit == "x" else self.value)


def is_late(latency_s: NDArray[np.float64], limit_s: NDArray[np.float64] | float) -> NDArray[np.bool_]:
    """Return which latencies exceed their limit; a sum of step times may exceed one that it equals by rounding."""
    late: NDArray[np.bool_] = latency_s > np.asarray(limit_s) * (1 + 1e-9)
    return late


def parse_limit(written: object) -> Limit:
    """Read a limit: a number or "2x" is a multiple, "10s" is seconds. Raises ValueError with what was expected."""
    text = str(written).strip() if isinstance(written, str | int | float) and not isinstance(written, bool) else ""
    parts = re.fullmatch(r"([-+.\deE]+)\s*([xs]?)", text)
    try:
        value = float(parts[1]) if parts else 0.0
    except ValueError:
        value = 0.0
    unit: Literal["x", "s"] = "s" if parts and parts[2] == "s" else "x"
    if not 0 < value <= (MAX_S if unit == "s" else MAX_MULTIPLE):
        raise ValueError("expected a multiple of the standalone latency (2 or 2x) or seconds (10s), above 0")
    return Limit(unit, value)


def parse_by_size(by_size: Mapping[object, object]) -> dict[str, Limit]:
    """Read limits by size, {"512x512": "1.5s", "854x480x80": "3x"}. Raises ValueError with what was expected."""
    return {name: parse_limit(limit) for name, limit in by_size_name(by_size).items()}


def by_size_name(by_size: Mapping[Any, Any]) -> dict[str, Any]:
    """Return values by the names of their sizes, "512x512" or "854x480x80". Raises ValueError with what was
    expected."""
    named: dict[str, Any] = {}
    for text, value in by_size.items():
        name = size_text(*parse_size(text))
        if name in named:
            raise ValueError("expected each size once; an image has 1 frame")
        named[name] = value
    return named


def parse_size(text: Any) -> tuple[int, int, int]:
    """Return width, height and frames of "512x512" or "854x480x80". Raises ValueError with what was expected."""
    size = re.fullmatch(r"([1-9]\d{0,8})x([1-9]\d{0,8})(?:x([1-9]\d{0,8}))?", str(text))
    if size is None:
        raise ValueError("expected sizes as WIDTHxHEIGHT or, of videos, WIDTHxHEIGHTxFRAMES")
    return int(size[1]), int(size[2]), int(size[3] or 1)


def own_deadlines(
    slo_s: NDArray[np.float64],
    sizes: Callable[[], NDArray[np.int32]],
    by_size: Mapping[str, Limit],
    standalone_s: NDArray[np.float64],
) -> NDArray[np.float64] | None:
    """Return the seconds from arrival to each request's own deadline, (n,): ``slo_s``, else that of its size.

    Args:
        slo_s: of the trace, (n,), NaN where it has none.
        sizes: returns width, height and frames, (3, n).
        by_size: as of ``parse_by_size``.
        standalone_s: standalone latency, (n,), for multiples.

    Returns:
        NaN where a request has none; None if no request has one.

    Raises:
        ConfigError: no request has one of the sizes of ``by_size``.
    """
    if by_size:
        kinds, which = np.unique(sizes(), axis=1, return_inverse=True)
        names = [size_text(*size) for size in kinds.T.tolist()]
        if by_size.keys().isdisjoint(names):
            named = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise ConfigError(
                f"slo_by_size: no request has the size {', '.join(by_size)}; name some of {named}, or add shapes=trace"
            )
        slo_s = slo_s.copy()
        for code, name in enumerate(names):
            if name in by_size:
                rows = (which.ravel() == code) & np.isnan(slo_s)
                slo_s[rows] = by_size[name].seconds(standalone_s[rows])
    return None if np.isnan(slo_s).all() else slo_s
